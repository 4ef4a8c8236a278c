//! Doubt whether IPv6 leads anywhere behind the server: a state machine over `now`.
//!
//! A host that hears "connected" at once has chosen: if IPv6 is broken behind the server, it waits for as long as the server does, and does
//! not fall back to IPv4. So once an IPv6 destination was not reached, connections to others wait for the server's answer, whose
//! absence hosts pass over within a quarter of a second (RFC 8305). The first that is reached ends that.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::ReplyCode;
use tokio::sync::Notify;

use crate::client::intercept::KernelAnswer;
use crate::process;

/// Time from the end of a doubt to the next: a destination here and there that does not answer costs the others little.
const CALM: Duration = Duration::from_secs(60);

/// Doubt of a front end, which others may wait for.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    doubt: RefCell<Doubt>,
    changed: Notify,
}

impl Doubts {
    /// True while IPv6 connections are to wait for the server's answer.
    pub(super) fn hold(&self) -> bool {
        self.doubt.borrow().raised
    }

    /// Waits until that has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes in what has become of a connection to `destination`.
    pub(super) fn on_outcome(&self, destination: SocketAddr, code: ReplyCode) {
        let reached = match code {
            _ if destination.is_ipv4() => return,
            ReplyCode::Ok | ReplyCode::Refused => true,
            _ if KernelAnswer::lasting(code) == Some(KernelAnswer::HostUnreachable) => false,
            _ => return,
        };
        if !self.doubt.borrow_mut().on_outcome(process::now(), reached) {
            return;
        }
        self.changed.notify_one();
        // Destinations are their users' affair, and stand in no log.
        match reached {
            true => tracing::info!(
                "IPv6 destinations are reached again: connections to them are accepted at once"
            ),
            false => tracing::info!(
                "the server does not reach an IPv6 destination: connections to all of them wait for its answer until one is reached, \
                 so that hosts fall back to IPv4"
            ),
        }
    }
}

/// Doubt about IPv6.
#[derive(Debug, Default)]
struct Doubt {
    raised: bool,
    /// Earliest instant at which it may be raised again.
    earliest: Option<Instant>,
}

impl Doubt {
    /// Takes in that a destination was `reached`, or was not. True if that changes anything.
    fn on_outcome(&mut self, now: Instant, reached: bool) -> bool {
        if self.raised != reached || self.earliest.is_some_and(|at| !reached && now < at) {
            return false;
        }
        self.raised = !reached;
        if reached {
            self.earliest = Some(now + CALM);
        }
        true
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_ends_with_the_first_that_is_reached_and_does_not_come_back_at_once() {
        let start = Instant::now();
        let mut doubt = Doubt::default();
        assert!(!doubt.on_outcome(start, true) && !doubt.raised);
        assert!(doubt.on_outcome(start, false) && doubt.raised);
        assert!(!doubt.on_outcome(start, false) && doubt.raised, "once");
        assert!(doubt.on_outcome(start, true) && !doubt.raised);
        let early = start + CALM - Duration::from_millis(1);
        assert!(!doubt.on_outcome(early, false) && !doubt.raised);
        assert!(doubt.on_outcome(start + CALM, false) && doubt.raised);
    }
}
