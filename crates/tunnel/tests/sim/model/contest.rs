//! Shares of a link that is full: short downloads go before one that has been served much, and do not starve it.

use std::time::Duration;

use bentpipe_tunnel::engine::ConnectionId;

use super::end::Side;
use super::flow::Flow;
use super::host::Phase;
use super::{PATIENCE, Run};

/// Pause between two looks at what has arrived, so short that no relay's buffer runs dry.
const STEP: Duration = Duration::from_millis(2);

/// Bytes after which a download is bulk for certain.
const SERVED: u64 = 1_500_000;

/// Bytes of the long download, more than it can be served while the others last.
const LONG: u64 = 40_000_000;

/// Short downloads, and the least and most bytes of each; all stay below what makes a flow long.
const SHORT: usize = 120;
const LEAST: u64 = 40_000;
const MOST: u64 = 60_000;

/// Part of the short ones' bytes after which shares are counted, and with which counting ends: the first come while bulk is
/// still under way, and the last are repaired when the others are through. Percent.
const COUNTED: [u64; 2] = [20, 80];

/// Least and most that bulk may have of all, permille: one turn in eight is its own.
const SHARE: std::ops::RangeInclusive<u64> = 60..=300;

impl Run {
    /// Fills the link with one long download, then with short ones besides, and compares what they get.
    pub(super) fn contest(&mut self) {
        self.settle();
        // A handshake that took long may give the client another tunnel meanwhile; what contends shares this one.
        let (tunnel, _) = self.world.terminals[0].ready.expect("it was used just now");
        let long = self.begin(Some(tunnel), LONG);
        self.wait(|run| run.arrived(&[long]) >= SERVED);
        let short: Vec<_> = (0..SHORT)
            .map(|_| {
                let bytes = LEAST + self.dice.below(MOST - LEAST);
                self.begin(Some(tunnel), bytes)
            })
            .collect();
        let total: u64 = short.iter().map(|(_, bytes)| bytes).sum();
        let [first, last] = COUNTED.map(|part| {
            self.wait(|run| run.arrived(&short) * 100 >= total * part);
            [self.arrived(&[long]), self.arrived(&short)]
        });
        let [bulk, others] = [0, 1].map(|index| last[index] - first[index]);
        let share = bulk * 1000 / (bulk + others);
        assert!(
            SHARE.contains(&share),
            "{bulk} bytes of a long download against {others} of short ones: {share} permille"
        );
        let flow = self.flows.iter_mut().find(|flow| flow.number() == long.0);
        flow.expect("it goes on").reset(Side::Client);
        self.finish(Phase::Last, |_| false);
    }

    /// Waits for a tunnel that the server knows.
    fn settle(&mut self) {
        let mut losses = None;
        while losses != Some(self.heard.losses) {
            losses = Some(self.heard.losses);
            self.begin(None, LEAST);
            self.finish(Phase::Last, |_| false);
        }
    }

    /// Opens a download of `bytes` as soon as `tunnel`, or else the client's newest one, takes it; its number, and its bytes.
    fn begin(&mut self, tunnel: Option<ConnectionId>, bytes: u64) -> (u64, u64) {
        let number = self.opened + 1;
        self.wait(|run| {
            let newest = || run.world.terminals[0].ready.map(|(id, _)| id);
            let Some(id) = tunnel.or_else(newest) else {
                return false;
            };
            let lost = run.is_forgotten(id);
            let flow = Flow::download(&mut run.world, &mut run.dice, (number, id, lost), bytes);
            let is_open = flow.is_some();
            run.flows.extend(flow);
            is_open
        });
        self.opened = number;
        (number, bytes)
    }

    /// Bytes of downloads that have arrived; those that are over are complete.
    fn arrived(&self, downloads: &[(u64, u64)]) -> u64 {
        let arrived = |(number, bytes): &(u64, u64)| {
            let mut flows = self.flows.iter();
            let flow = flows.find(|flow| flow.number() == *number);
            flow.map_or(*bytes, Flow::downloaded)
        };
        downloads.iter().map(arrived).sum()
    }

    fn wait(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.world.at() + PATIENCE;
        while !done(self) {
            assert!(
                self.world.at() < end,
                "the contest stands still: {:?}",
                self.flows
            );
            self.world.run_for(STEP);
            self.turn(Phase::Last);
        }
    }
}
