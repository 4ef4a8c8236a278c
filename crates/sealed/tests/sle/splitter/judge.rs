//! End of a run, and what is to be seen of every promise then.

use std::time::Duration;

use bentpipe_sealed::sle::{Conn, Fault, Outcome};

use super::{Harm, Report, World};

impl World<'_> {
    /// Does all that there is left to do, and lets time pass when there is nothing.
    pub(super) fn finish(&mut self) {
        let mut idle = 0;
        while !self.is_over() {
            let mut moved = self.dial();
            for side in [0, 1] {
                moved |= self.host_sends(side, usize::MAX) | self.write_outer(side, usize::MAX);
                moved |= self.read_outer(side, usize::MAX) | self.host_takes(side, usize::MAX);
                moved |= self.host_ends(side) | self.act(side) | self.lan_shuts(side);
            }
            idle = if moved { 0 } else { idle + 1 };
            if idle > 1 {
                self.now += Duration::from_secs(61);
                for conn in self.sides.iter_mut().filter_map(|side| side.conn.as_mut()) {
                    conn.handle_timeout(self.now);
                }
                if self.acceptor.handle_timeout(self.now).is_err() {
                    self.close_outer(1, false);
                }
            }
            if idle > 6 {
                assert!(
                    self.harmed.is_some(),
                    "an end never comes: {:?}",
                    self.outcomes()
                );
                // Something that was thrown away is waited for: somebody loses patience.
                for pipe in &mut self.pipes {
                    pipe.end = Some(false);
                }
            }
            assert!(idle < 20, "never ends: {:?}", self.outcomes());
        }
    }

    fn is_over(&self) -> bool {
        self.sides.iter().all(|side| side.closed)
    }

    fn outcomes(&self) -> [Option<Outcome>; 2] {
        [0, 1].map(|side| self.sides[side].conn.as_ref().and_then(Conn::outcome))
    }

    /// Looks at what came of the flow.
    pub(super) fn judge(mut self) -> Report {
        for side in [0, 1] {
            while self.act(side) {}
        }
        let [client, server] = self.outcomes();
        let client = client.expect("the client's end is over");
        let outcomes = [Some(client), server];
        let [a, b] = self.sides.each_ref().map(|side| &side.host);
        for (outcome, own, other) in [(outcomes[0], a, b), (outcomes[1], b, a)] {
            let whole = own.taken == other.text.len() && other.ended;
            assert!(whole || !own.shut);
            match outcome {
                Some(Outcome::Closed) => assert!(a.shut && b.shut && !own.reset),
                Some(_) => assert!(own.reset, "a LAN side is left open"),
                None => assert!(!own.shut),
            }
            // What was sent before a reset arrives before it, if nothing stands in the way.
            let delivered = own.taken == other.sent || own.did_reset;
            if self.dialled
                && self.harmed.is_none()
                && matches!(outcome, Some(Outcome::PeerAborted(_)))
            {
                assert!(delivered, "bytes before a reset are missing");
            }
        }
        self.judge_harm(outcomes);
        Report {
            harm: self.harmed.map_or(Harm::None, |_| self.harm),
            client,
            server,
        }
    }

    fn judge_harm(&self, outcomes: [Option<Outcome>; 2]) {
        let broken = |side: usize| matches!(outcomes[side], Some(Outcome::Broken(_)));
        match self.harmed {
            Some((side, true)) => {
                // A reset that comes after all was confirmed may find nobody who reads it.
                let seen = outcomes[side] != Some(Outcome::Closed);
                assert!(
                    seen || self.sides[1 - side].host.did_reset,
                    "tampering is not seen"
                );
            }
            Some((_, false)) => {}
            None => {
                let resets = self.sides.iter().any(|side| side.host.did_reset);
                if !resets && self.dials {
                    assert_eq!(outcomes, [Some(Outcome::Closed); 2]);
                } else if !self.dials && !resets {
                    assert_eq!(outcomes, [Some(Outcome::Refused); 2]);
                }
                // Who closes in order while the other still sends may be answered with a reset:
                // never by wrong records.
                for outcome in outcomes.into_iter().flatten() {
                    let fine = !matches!(
                        outcome,
                        Outcome::Broken(Fault::Record(_) | Fault::Order { .. })
                    );
                    assert!(fine, "{outcome:?}");
                }
                assert!(resets || !broken(0) && !broken(1));
            }
        }
    }
}
