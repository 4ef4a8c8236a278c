//! When a PEP tries to reach the other one: a state machine over `now`, without sockets.
//!
//! Unlike a client, a PEP is never idle: flows of its hosts pass untouched meanwhile, and nobody waits for the tunnel.

use std::time::{Duration, Instant};

/// Pauses from one attempt to the next, in seconds.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// Time after which an attempt without a tunnel is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialStep {
    /// Nothing before this time; `None`: nothing until something happens.
    Wait(Option<Instant>),
    /// Connect.
    Dial,
    /// The attempt has had its time.
    GiveUp,
}

#[derive(Clone, Copy, Debug)]
enum DialState {
    Waiting(Instant),
    Trying(Instant),
    Up,
}

/// Decides on attempts.
#[derive(Debug)]
pub(super) struct Redial {
    state: DialState,
    /// Attempts in a row that have failed.
    failures: usize,
}

impl Redial {
    /// Wants a tunnel at once.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            state: DialState::Waiting(now),
            failures: 0,
        }
    }

    /// The next thing to do; what is asked for counts as done.
    pub(super) fn poll(&mut self, now: Instant) -> DialStep {
        match self.state {
            DialState::Waiting(due) if due <= now => {
                self.state = DialState::Trying(now);
                DialStep::Dial
            }
            DialState::Waiting(due) => DialStep::Wait(Some(due)),
            DialState::Trying(since) if since + PATIENCE <= now => {
                self.on_failed(now);
                DialStep::GiveUp
            }
            DialState::Trying(since) => DialStep::Wait(Some(since + PATIENCE)),
            DialState::Up => DialStep::Wait(None),
        }
    }

    /// The tunnel stands.
    pub(super) const fn on_ready(&mut self) {
        self.state = DialState::Up;
        self.failures = 0;
    }

    /// The attempt has failed, or the tunnel has ended.
    pub(super) fn on_failed(&mut self, now: Instant) {
        let pause = PAUSES[self.failures.min(PAUSES.len() - 1)];
        self.failures += 1;
        self.state = DialState::Waiting(now + Duration::from_secs(pause));
    }

    /// Instant of the next attempt, while one is waited for.
    pub(super) const fn next(&self) -> Option<Instant> {
        match self.state {
            DialState::Waiting(due) => Some(due),
            DialState::Trying(_) | DialState::Up => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_more_seldom_and_begin_anew_after_a_tunnel() {
        let start = crate::process::now();
        let mut redial = Redial::new(start);
        let (mut now, mut dialled) = (start, Vec::new());
        while dialled.len() < 9 {
            match redial.poll(now) {
                DialStep::Dial => dialled.push(now),
                DialStep::GiveUp => {}
                DialStep::Wait(until) => now = until.expect("it tries on"),
            }
        }
        let pauses: Vec<_> = dialled
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs())
            .collect();
        assert_eq!(pauses, [11, 12, 14, 18, 25, 40, 40, 40]);
        redial.on_ready();
        assert_eq!(redial.poll(now), DialStep::Wait(None));
        redial.on_failed(now);
        assert_eq!(redial.next(), Some(now + Duration::from_secs(1)));
    }
}
