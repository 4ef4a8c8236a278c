//! Ways of outer connections, by the address that they go to: which are tried, and on which the server is known to be.
//!
//! To the server's own port there is one way. To the flows' own destinations there are many, and the routes of each may lead past the
//! server; where none of them leads through it, flows are not held up at each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::trust::Trust;

/// Ways that are remembered.
const MOST: usize = 1024;

/// Time since the last answer for which the server is taken to be on a way still.
const PROVEN: Duration = Duration::from_secs(60);

/// Kind of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WayKind {
    /// To the server's own port.
    Addressed,
    /// To the flow's own destination.
    Transparent,
}

/// All ways that were tried.
#[derive(Debug, Default)]
pub(super) struct TriedWays {
    all: HashMap<IpAddr, TriedWay>,
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
    /// True if a flow that begins now is to be sealed, by the way to `address`.
    pub(super) fn permits(&mut self, now: Instant, kind: WayKind, address: IpAddr) -> bool {
        self.way(now, address).trust.permits(now)
            && (kind == WayKind::Addressed || self.together.permits(now))
    }

    /// True if the server has answered on the way to `address` lately.
    pub(super) fn is_proven(&self, now: Instant, address: IpAddr) -> bool {
        let way = self.all.get(&address);
        way.is_some_and(|way| way.is_proven(now))
    }

    /// True if the server has answered on the way to `address` since then.
    pub(super) fn has_answered(&self, address: IpAddr, since: Instant) -> bool {
        let last = self.all.get(&address).and_then(|way| way.answered);
        last.is_some_and(|last| last >= since)
    }

    /// The server has answered on the way to `address`.
    pub(super) fn on_answered(&mut self, now: Instant, kind: WayKind, address: IpAddr) {
        let way = self.way(now, address);
        way.trust.on_answered();
        way.answered = Some(now);
        if kind == WayKind::Transparent {
            self.together.on_answered();
        }
    }

    /// An outer connection to `address` came to nothing. Returns for how long flows go through the tunnel, if that begins now.
    pub(super) fn on_failed(
        &mut self,
        now: Instant,
        kind: WayKind,
        address: IpAddr,
    ) -> Option<Pause> {
        let way = self.way(now, address);
        way.answered = None;
        let own = way.trust.on_failed(now);
        if kind == WayKind::Addressed {
            return own.map(Pause::All);
        }
        let lone = self.all.values().all(|way| !way.is_proven(now));
        let all = lone.then(|| self.together.on_failed(now)).flatten();
        all.map(Pause::All).or(own.map(Pause::One))
    }

    /// The tunnel is another: where its server is has to be found out.
    pub(super) fn forget_answers(&mut self) {
        self.all.values_mut().for_each(|way| way.answered = None);
    }

    fn way(&mut self, now: Instant, address: IpAddr) -> &mut TriedWay {
        if self.all.len() >= MOST && !self.all.contains_key(&address) {
            let longest_unused = self.all.iter().min_by_key(|(_, way)| way.used);
            if let Some((&old, _)) = longest_unused {
                self.all.remove(&old);
            }
        }
        let way = self.all.entry(address).or_insert_with(|| TriedWay {
            trust: Trust::default(),
            answered: None,
            used: now,
        });
        way.used = now;
        way
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

    fn host(last: u16) -> IpAddr {
        let [high, low] = last.to_be_bytes();
        [192, 0, high, low].into()
    }

    #[test]
    fn one_destination_past_the_server_does_not_shut_the_others() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        ways.on_answered(now, WayKind::Transparent, host(1));
        assert!(ways.is_proven(now, host(1)) && !ways.is_proven(now, host(2)));
        let failed = ways.on_failed(now, WayKind::Transparent, host(2));
        assert_eq!(failed, Some(Pause::One(MINUTE)));
        assert!(!ways.permits(now, WayKind::Transparent, host(2)));
        assert!(ways.permits(now, WayKind::Transparent, host(1)));
        assert!(ways.permits(now, WayKind::Transparent, host(3)));
    }

    #[test]
    fn where_the_server_is_on_no_way_one_flow_tries_for_all() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        let failed = ways.on_failed(now, WayKind::Transparent, host(1));
        assert_eq!(failed, Some(Pause::All(MINUTE)));
        assert!(!ways.permits(now, WayKind::Transparent, host(2)));
        let later = now + MINUTE;
        assert!(ways.permits(later, WayKind::Transparent, host(2)));
        assert!(!ways.permits(later, WayKind::Transparent, host(3)));
        ways.on_answered(later, WayKind::Transparent, host(2));
        assert!(ways.permits(later, WayKind::Transparent, host(3)));
    }

    #[test]
    fn a_proof_ends_with_its_time_a_failure_and_the_tunnel() {
        let (now, mut ways) = (process::now(), TriedWays::default());
        let prove = |ways: &mut TriedWays| ways.on_answered(now, WayKind::Transparent, host(1));
        prove(&mut ways);
        assert!(ways.has_answered(host(1), now));
        assert!(!ways.is_proven(now + PROVEN, host(1)));
        ways.on_failed(now, WayKind::Transparent, host(1));
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
            ways.on_answered(now, WayKind::Transparent, host(0));
            ways.permits(now, WayKind::Transparent, host(number as u16));
        }
        assert_eq!(ways.all.len(), MOST);
        assert!(ways.is_proven(now, host(0)));
    }
}
