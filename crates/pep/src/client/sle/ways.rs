//! Ways of outer connections, by kind, address and port: which are tried, and on which the server is known to be.
//!
//! To the server's own port there is one way. To the flows' own destinations there are many, and the routes of each may lead past the
//! server; where none of them leads through it, flows are not held up at each. What is known of one way says nothing of another:
//! a middle box may treat each port differently, and the server's own port may be a destination as well.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::trust::Trust;

/// Ways that are remembered.
const MOST: usize = 1024;

/// Time since the last answer for which the server is taken to be on a way still.
const PROVEN: Duration = Duration::from_secs(60);

/// Kind of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WayKind {
    /// To the server's own port.
    Addressed,
    /// To the flow's own destination.
    Transparent,
}

/// One way of outer connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OuterWay {
    pub(super) kind: WayKind,
    /// Address and port that connections are made to.
    pub(super) address: SocketAddr,
}

/// All ways that were tried.
#[derive(Debug, Default)]
pub(super) struct TriedWays {
    all: HashMap<OuterWay, TriedWay>,
    /// Trust in all transparent ways together.
    together: Trust,
}

#[derive(Debug)]
struct TriedWay {
    trust: Trust,
    /// Moment of the last answer, by this tunnel's server.
    answered: Option<Instant>,
    used: Instant,
}

/// Flows that go through the tunnel after a failure, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All flows.
    All(Duration),
    /// Flows to one destination.
    One(Duration),
}

impl TriedWays {
    /// True if a flow that begins now is to be sealed by `way`.
    pub(super) fn permits(&mut self, now: Instant, way: OuterWay) -> bool {
        if way.kind == WayKind::Addressed {
            return self.known(now, way).trust.permits(now);
        }
        // The try for all is not spent on a way that is shut itself, nor the other way round.
        let is_due = self.together.is_due(now) && self.known(now, way).trust.is_due(now);
        is_due && self.together.permits(now) && self.known(now, way).trust.permits(now)
    }

    /// True if the server has answered on this way lately.
    pub(super) fn is_proven(&self, now: Instant, way: OuterWay) -> bool {
        let known = self.all.get(&way);
        known.is_some_and(|known| known.is_proven(now))
    }

    /// True if the server has answered on this way since then.
    pub(super) fn has_answered(&self, way: OuterWay, since: Instant) -> bool {
        let last = self.all.get(&way).and_then(|known| known.answered);
        last.is_some_and(|last| last >= since)
    }

    /// The server has answered on this way.
    pub(super) fn on_answered(&mut self, now: Instant, way: OuterWay) {
        let known = self.known(now, way);
        known.trust.on_answered();
        known.answered = Some(now);
        if way.kind == WayKind::Transparent {
            self.together.on_answered();
        }
    }

    /// An outer connection by this way came to nothing. Returns for how long flows go through the tunnel, if that begins now.
    pub(super) fn on_failed(&mut self, now: Instant, way: OuterWay) -> Option<Pause> {
        let known = self.known(now, way);
        known.answered = None;
        let own = known.trust.on_failed(now);
        if way.kind == WayKind::Addressed {
            return own.map(Pause::All);
        }
        let mut others = self.all.iter();
        let lone = others.all(|(other, it)| other.kind != way.kind || !it.is_proven(now));
        let all = lone.then(|| self.together.on_failed(now)).flatten();
        all.map(Pause::All).or(own.map(Pause::One))
    }

    /// The tunnel is another: where its server is has to be found out.
    pub(super) fn forget_answers(&mut self) {
        self.all
            .values_mut()
            .for_each(|known| known.answered = None);
    }

    fn known(&mut self, now: Instant, way: OuterWay) -> &mut TriedWay {
        if self.all.len() >= MOST && !self.all.contains_key(&way) {
            let longest_unused = self.all.iter().min_by_key(|(_, known)| known.used);
            if let Some((&old, _)) = longest_unused {
                self.all.remove(&old);
            }
        }
        let known = self.all.entry(way).or_insert_with(|| TriedWay {
            trust: Trust::default(),
            answered: None,
            used: now,
        });
        known.used = now;
        known
    }
}

impl TriedWay {
    fn is_proven(&self, now: Instant) -> bool {
        self.answered.is_some_and(|last| now < last + PROVEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    const MINUTE: Duration = Duration::from_secs(60);

    fn to(kind: WayKind, last: u16, port: u16) -> OuterWay {
        let [high, low] = last.to_be_bytes();
        let address = ([192, 0, high, low], port).into();
        OuterWay { kind, address }
    }

    fn host(last: u16) -> OuterWay {
        to(WayKind::Transparent, last, 443)
    }

    #[test]
    fn one_destination_past_the_server_does_not_shut_the_others() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        ways.on_answered(now, host(1));
        assert!(ways.is_proven(now, host(1)) && !ways.is_proven(now, host(2)));
        let failed = ways.on_failed(now, host(2));
        assert_eq!(failed, Some(Pause::One(MINUTE)));
        assert!(!ways.permits(now, host(2)));
        assert!(ways.permits(now, host(1)));
        assert!(ways.permits(now, host(3)));
    }

    #[test]
    fn where_the_server_is_on_no_way_one_flow_tries_for_all() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        let failed = ways.on_failed(now, host(1));
        assert_eq!(failed, Some(Pause::All(MINUTE)));
        assert!(!ways.permits(now, host(2)));
        let later = now + MINUTE;
        assert!(ways.permits(later, host(2)));
        assert!(!ways.permits(later, host(3)));
        ways.on_answered(later, host(2));
        assert!(ways.permits(later, host(3)));
    }

    #[test]
    fn a_proof_ends_with_its_time_a_failure_and_the_tunnel() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        let prove = |ways: &mut TriedWays| ways.on_answered(now, host(1));
        prove(&mut ways);
        assert!(ways.has_answered(host(1), now));
        assert!(!ways.is_proven(now + PROVEN, host(1)));
        ways.on_failed(now, host(1));
        assert!(!ways.is_proven(now, host(1)));
        prove(&mut ways);
        ways.forget_answers();
        assert!(!ways.is_proven(now, host(1)));
    }

    #[test]
    fn ways_are_bounded_and_those_in_use_stay() {
        let (mut now, mut ways) = (process::now(), TriedWays::default());
        for number in 0..3 * MOST {
            now += Duration::from_millis(1);
            ways.on_answered(now, host(0));
            ways.permits(now, host(number as u16));
        }
        assert_eq!(ways.all.len(), MOST);
        assert!(ways.is_proven(now, host(0)));
    }

    #[test]
    fn what_is_known_of_one_way_says_nothing_of_another_to_the_same_address() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        let own_port = to(WayKind::Addressed, 1, 443);
        ways.on_answered(now, own_port);
        assert!(!ways.is_proven(now, host(1)), "sealed unasked");
        assert!(!ways.has_answered(host(1), now));
        // Nor is an answer at the server's own port one on the way to a destination.
        let failed = ways.on_failed(now, host(1));
        assert_eq!(failed, Some(Pause::All(MINUTE)));
        assert!(ways.permits(now, own_port) && ways.is_proven(now, own_port));

        ways.on_answered(now + MINUTE, host(2));
        let other_port = to(WayKind::Transparent, 2, 22);
        assert!(!ways.is_proven(now + MINUTE, other_port), "sealed unasked");
        let failed = ways.on_failed(now + MINUTE, other_port);
        assert_eq!(failed, Some(Pause::One(MINUTE)));
        assert!(ways.permits(now + MINUTE, host(2)));
        assert!(!ways.permits(now + MINUTE, other_port));
    }

    #[test]
    fn the_try_for_all_is_not_spent_on_a_way_that_is_shut() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        ways.on_answered(now, host(9));
        let soon = now + PROVEN / 2;
        ways.on_failed(soon, host(1));
        ways.on_failed(now, host(9));
        let later = now + MINUTE;
        assert!(!ways.permits(later, host(1)), "shut for half a minute more");
        assert!(ways.permits(later, host(2)), "nobody tries");
    }
}
