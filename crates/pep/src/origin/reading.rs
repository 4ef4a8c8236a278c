//! Processor time for links in pages that clients of an origin ask for: a share for each of them, and one for all, whose last part is for
//! those who have had least.
//!
//! Pure: `now` is an argument.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use super::guests::GuestPeer;
use crate::reading::ReadingTime;

/// Shares that there are; peers have one each, which two of them rarely have in common.
const SHARES: usize = 1024;

/// Part of what is saved up for all that is kept from the peer that has had most of late, and for others the less the less they have had.
const KEPT: Duration = Duration::from_millis(500);

/// Time after which what a peer has had counts for a tenth less.
const FORGETS: Duration = Duration::from_secs(1);

/// Shares of an origin's peers.
pub(super) struct ReadingShares {
    /// Key of the hash that shares are found by: no peer can tell whose share is whose.
    secret: RandomState,
    table: RefCell<ShareTable>,
}

struct ShareTable {
    shares: Vec<ReadingShare>,
    all: ReadingTime,
    /// Time that the peer which has had most of late has had.
    most: Duration,
    /// Moment up to which uses were forgotten; `None` before the first look.
    forgotten: Option<Instant>,
}

#[derive(Default)]
struct ReadingShare {
    time: ReadingTime,
    /// Time that was taken of late.
    had: Duration,
}

impl Default for ReadingShares {
    fn default() -> Self {
        let shares = std::iter::repeat_with(ReadingShare::default);
        let table = ShareTable {
            shares: shares.take(SHARES).collect(),
            all: ReadingTime::of_all(),
            most: Duration::ZERO,
            forgotten: None,
        };
        Self {
            secret: RandomState::new(),
            table: RefCell::new(table),
        }
    }
}

impl ReadingShares {
    /// True if some time is left for pages of `peer`.
    pub(super) fn is_left(&self, peer: GuestPeer, now: Instant) -> bool {
        let mut table = self.table.borrow_mut();
        table.forget(now);
        let place = self.place(peer);
        let kept = table.kept_from(place);
        table.shares[place].time.is_left(now) && table.all.is_left_beyond(kept, now)
    }

    /// A page of `peer` took so much.
    pub(super) fn spend(&self, peer: GuestPeer, took: Duration) {
        let mut table = self.table.borrow_mut();
        let share = &mut table.shares[self.place(peer)];
        share.time.spend(took);
        share.had += took;
        let had = share.had;
        table.most = table.most.max(had);
        table.all.spend(took);
    }

    fn place(&self, peer: GuestPeer) -> usize {
        let hash = self.secret.hash_one(peer) % SHARES as u64;
        usize::try_from(hash).unwrap_or_default()
    }
}

impl ShareTable {
    /// Has what peers have had count for less as time goes by.
    fn forget(&mut self, now: Instant) {
        let since = *self.forgotten.get_or_insert(now);
        let times = now.saturating_duration_since(since).as_secs() / FORGETS.as_secs();
        if times == 0 {
            return;
        }
        self.forgotten = Some(now);
        let kept = 0.9_f64.powi(i32::try_from(times).unwrap_or(i32::MAX));
        for share in &mut self.shares {
            share.had = share.had.mul_f64(kept);
        }
        self.most = self.most.mul_f64(kept);
    }

    /// Part of the time for all that is not for the peer with the share at `place`.
    fn kept_from(&self, place: usize) -> Duration {
        if self.most.is_zero() {
            return Duration::ZERO;
        }
        let had = self.shares[place].had.as_secs_f64();
        KEPT.mul_f64((had / self.most.as_secs_f64()).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts that have a share each.
    fn peers(shares: &ReadingShares, count: usize) -> Vec<GuestPeer> {
        let mut places = std::collections::HashSet::new();
        let all =
            (0..u32::MAX).map(|number| GuestPeer::at(std::net::Ipv4Addr::from(number).into()));
        let apart = all.filter(|peer| places.insert(shares.place(*peer)));
        apart.take(count).collect()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn who_has_had_its_share_takes_none_of_others_and_all_have_an_end() {
        let (shares, start) = (ReadingShares::default(), Instant::now());
        let peers = peers(&shares, 12);
        let at = |seconds| start + Duration::from_secs(seconds);
        shares.spend(peers[0], Duration::from_millis(600));
        assert!(!shares.is_left(peers[0], at(0)));
        assert!(shares.is_left(peers[1], at(0)));
        // Nobody has had much, and all of them too much.
        for peer in &peers[1..] {
            shares.spend(*peer, Duration::from_millis(100));
        }
        assert!(peers.iter().all(|peer| !shares.is_left(*peer, at(0))));
        assert!(shares.is_left(peers[1], at(2)));
        assert!(shares.is_left(peers[0], at(60)));
    }

    /// Milliseconds that each of `peers` gets in a minute, of which it would take `wish` a second, in pieces that take one each.
    fn share_out(shares: &ReadingShares, peers: &[(GuestPeer, u32)]) -> Vec<u32> {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let start = Instant::now();
        let piece = Duration::from_millis(1);
        let mut had = vec![0; peers.len()];
        for step in 0..60_000_u32 {
            let now = start + piece * step;
            for (number, (peer, wish)) in peers.iter().enumerate() {
                // Those that come first are always asked first.
                let due = step * wish / 1000 > had[number];
                if due && shares.is_left(*peer, now) {
                    shares.spend(*peer, piece);
                    had[number] += 1;
                }
            }
        }
        had
    }

    #[test]
    fn those_who_take_all_take_nothing_of_who_wants_little() {
        for greedy in [4, 5, 20] {
            let shares = ReadingShares::default();
            let mut all: Vec<_> = peers(&shares, greedy + 1)
                .into_iter()
                .map(|peer| (peer, 1000))
                .collect();
            let modest = all.len() - 1;
            // It wants half of what each would have, and is asked last.
            let wish = 200 / (u32::try_from(greedy).unwrap() + 1);
            all[modest].1 = wish;
            let had = share_out(&shares, &all);
            assert!(
                had[modest] >= wish * 60 * 9 / 10,
                "{greedy}: {} of {}",
                had[modest],
                wish * 60
            );
            let sum: u32 = had.iter().sum();
            assert!(sum <= 60 * 400 + 1001, "{greedy}: all have {sum} ms");
            // Nor does one of those who want more than there is get much more than another.
            let (least, most) = (had[..modest].iter().min(), had[..modest].iter().max());
            let (least, most) = (*least.unwrap(), *most.unwrap());
            assert!(most <= 2 * least.max(1), "{greedy}: {least} to {most} ms");
        }
    }

    #[test]
    fn who_comes_to_many_that_take_all_is_not_kept_waiting() {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let start = Instant::now();
        let shares = ReadingShares::default();
        let peers = peers(&shares, 11);
        let piece = Duration::from_millis(1);
        for step in 0..30_000_u32 {
            let now = start + piece * step;
            for peer in &peers[..10] {
                if shares.is_left(*peer, now) {
                    shares.spend(*peer, piece);
                }
            }
        }
        // A page of 100 ms.
        let now = start + piece * 30_000;
        for number in 0..100 {
            assert!(shares.is_left(peers[10], now), "after {number} ms");
            shares.spend(peers[10], piece);
        }
    }
}
