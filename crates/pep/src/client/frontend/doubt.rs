//! Doubt whether IPv6 leads anywhere behind the server: a state machine over `now`.
//!
//! A host that hears "connected" at once has chosen: if IPv6 is broken behind the server, it waits for as long as the server does, and does
//! not fall back to IPv4. A server cannot know beforehand: its route says nothing of what lies behind the next hop. So until an IPv6
//! destination has been reached behind a server, and again once one was not, connections wait for the server's answer, whose absence hosts pass over
//! within a quarter of a second (RFC 8305). The first that is reached ends that.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::ReplyCode;
use tokio::sync::Notify;

use crate::client::intercept::KernelAnswer;
use crate::client::reach::ServerPlace;
use crate::process;

/// Time from the end of a doubt to the next: a destination here and there that does not answer costs the others little.
const CALM: Duration = Duration::from_secs(60);

/// Doubt of a front end, which others may wait for.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    doubt: RefCell<Doubt>,
    /// Server that the doubt is about.
    server: Cell<Option<ServerPlace>>,
    changed: Notify,
}

impl Doubts {
    /// True while IPv6 connections are to wait for the server's answer.
    pub(super) fn hold(&self) -> bool {
        self.doubt.borrow().holds()
    }

    /// Waits until that has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes in which server the tunnel leads to. Behind another one nothing is known, whereas one that the client comes back to is as it
    /// was.
    pub(super) fn on_server(&self, server: Option<ServerPlace>) {
        let Some(server) = server else {
            return;
        };
        let last = self.server.replace(Some(server));
        if last.is_some_and(|last| last != server) {
            self.doubt.replace(Doubt::default());
        }
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
                "IPv6 destinations are reached: connections to them are accepted at once"
            ),
            false => tracing::info!(
                "the server does not reach an IPv6 destination: connections to all of them wait for its answer until one is reached, \
                 so that hosts fall back to IPv4"
            ),
        }
    }
}

/// Doubt about IPv6.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Nothing is known yet.
    #[default]
    Unproven,
    /// A destination was not reached, and none since.
    Raised,
    /// A destination was reached; no other raises a doubt before this instant.
    Ended(Instant),
}

impl Doubt {
    /// True while IPv6 connections are to wait for the server's answer.
    fn holds(self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// Takes in that a destination was `reached`, or was not. True if that changes anything.
    fn on_outcome(&mut self, now: Instant, reached: bool) -> bool {
        let next = match (*self, reached) {
            (Self::Unproven | Self::Raised, true) => Self::Ended(now + CALM),
            (Self::Ended(until), false) if now < until => return false,
            (Self::Unproven | Self::Ended(_), false) => Self::Raised,
            (Self::Raised, false) | (Self::Ended(_), true) => return false,
        };
        *self = next;
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
        assert!(doubt.holds(), "nothing is known yet");
        assert!(doubt.on_outcome(start, false) && doubt.holds());
        assert!(!doubt.on_outcome(start, false) && doubt.holds(), "once");
        assert!(doubt.on_outcome(start, true) && !doubt.holds());
        assert!(!doubt.on_outcome(start, true) && !doubt.holds(), "once");
        let early = start + CALM - Duration::from_millis(1);
        assert!(!doubt.on_outcome(early, false) && !doubt.holds());
        assert!(doubt.on_outcome(start + CALM, false) && doubt.holds());
        let mut proven = Doubt::default();
        assert!(proven.on_outcome(start, true) && !proven.holds());
    }

    #[test]
    fn what_one_server_reached_says_nothing_of_another() {
        let doubts = Doubts::default();
        let place = |index, address: [u8; 4]| {
            let address = address.into();
            doubts.on_server(Some(ServerPlace { index, address }));
        };
        let reach = || {
            doubts.on_outcome("[2001:db8::1]:80".parse().unwrap(), ReplyCode::Ok);
            assert!(!doubts.hold());
        };
        place(0, [192, 0, 2, 1]);
        reach();
        doubts.on_server(None);
        place(0, [192, 0, 2, 1]);
        assert!(!doubts.hold(), "the tunnel came back to the same");
        place(1, [192, 0, 2, 1]);
        assert!(doubts.hold(), "another server");
        reach();
        place(1, [192, 0, 2, 2]);
        assert!(doubts.hold(), "another machine by the same name");
    }
}
