//! By which wire a client reaches a server: UDP, or TLS where UDP does not pass. A state machine over `now`, without sockets.
//!
//! ```text
//!            nobody answers a UDP attempt for 1.5 s or two round trips, or its
//!            handshake does not end within 6 s or six round trips,
//!            or the tunnel is silent for 10 s                        opened
//!   Udp ─────────────────────────────────────────────────► Opening ─────────► Tls ─ ended ─► Broken ─► Opening
//!    ▲                                      cannot be opened │                 │
//!    └──────────────────────────────────────────────────────┴─────────────────┴─ a handshake over UDP succeeds
//! ```
//!
//! A middle box may acknowledge what it does not deliver, which TCP cannot tell from a server that has nothing to say. So a tunnel that is
//! silent on TLS for 10 s gets another TLS connection beside the silent one, and the silent one goes when that is open: then after 20, 40
//! and every 60 s. UDP is tried each time.
//!
//! On TLS the client tries UDP every minute at first, then ever more seldom: losses hold up nothing there, and nobody pays
//! for two congestion controls. After an attempt that nobody answered by UDP it tries at once, for the server may have started only
//! since: what that finds is what is remembered of the network. The tunnel's connection is the same on both wires; no flow notices.

use std::time::{Duration, Instant};

use crate::config::WirePreference;

/// Shortest time for which an attempt over UDP goes unanswered before TLS is tried beside it.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Shortest time from the beginning of an attempt that is answered over UDP to its end after which TLS is tried beside it. Where only small
/// datagrams pass, the handshake never ends; where some are lost, it is sent again within so long.
const STUCK: Duration = Duration::from_secs(6);

/// Silence of the tunnel after which TLS is tried: gaps of a link are shorter, and in an outage of the link TLS fails, too.
const SILENT: Duration = Duration::from_secs(10);

/// Pauses after a TLS connection that took the place of a silent one, in seconds; it is silent as well.
const RENEWED: [u64; 4] = [10, 20, 40, 60];

/// Pauses after a TLS connection that could not be opened, in seconds.
const FAILED: [u64; 5] = [5, 10, 20, 40, 60];

/// Shortest and longest time from one attempt at UDP to the next while TLS is in use.
const ATTEMPTS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

/// A TLS connection that lasted shorter is not opened again at once.
const SHORT: Duration = Duration::from_secs(10);

/// Use that the client wants to make of a server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// None.
    Nothing,
    /// An attempt at a tunnel.
    Attempt {
        /// Instant at which it began.
        since: Instant,
        /// The server has answered.
        heard: bool,
        /// Round-trip time of the path, if it is remembered.
        rtt: Option<Duration>,
        /// UDP did not pass on this network the last time.
        blocked: bool,
    },
    /// The tunnel.
    Tunnel {
        /// Instant at which it was last heard, if it is silent.
        silent: Option<Instant>,
    },
}

/// Next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireStep {
    /// Nothing before this time; `None`: nothing until something happens.
    Wait(Option<Instant>),
    /// Open a TLS connection.
    Open,
    /// Try a handshake over UDP.
    TryUdp,
}

/// Use of a TLS connection that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsFate {
    /// None: UDP was answered meanwhile.
    Unwanted,
    /// Datagrams leave by it, in place of UDP.
    Used,
    /// Datagrams leave by it, in place of an earlier one.
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireState {
    /// Datagrams leave by UDP.
    Udp,
    /// A TLS connection is being opened; `again`: in place of one that was in use.
    Opening { again: bool },
    /// By TLS; `next` is when UDP is tried, `None` while it is.
    Tls {
        since: Instant,
        next: Option<Instant>,
    },
    /// By a TLS connection that is silent, while another one is being opened.
    Renewing { since: Instant },
    /// The TLS connection that was in use has ended.
    Broken,
}

/// Decides by which wire one server is reached.
#[derive(Debug)]
pub(super) struct WireChoice {
    preference: WirePreference,
    state: WireState,
    /// Earliest instant at which a TLS connection is opened.
    earliest: Option<Instant>,
    /// TLS connections that could not be opened, one after the other.
    failures: usize,
    /// TLS connections that took the place of silent ones, one after the other.
    renewals: usize,
    /// Time from the last attempt at UDP to the next.
    pause: Duration,
    /// Instant at which UDP was last returned to.
    returned: Option<Instant>,
    /// The network is another one than UDP was last tried on.
    moved: bool,
    /// TLS is in use because an attempt over UDP went unanswered, and UDP has not been tried since.
    checking: bool,
}

impl WireChoice {
    /// UDP, until something speaks against it.
    pub(super) fn new(preference: WirePreference) -> Self {
        Self {
            preference,
            state: WireState::Udp,
            earliest: None,
            failures: 0,
            renewals: 0,
            pause: ATTEMPTS[0],
            returned: None,
            moved: false,
            checking: false,
        }
    }

    /// True until UDP was tried beside a TLS connection that took the place of an attempt over UDP.
    pub(super) fn is_checking(&self) -> bool {
        self.checking
    }

    /// True if datagrams may leave by UDP.
    pub(super) fn permits_udp(&self) -> bool {
        self.preference != WirePreference::Tls
    }

    /// True while a TLS connection is being opened.
    pub(super) fn is_opening(&self) -> bool {
        matches!(
            self.state,
            WireState::Opening { .. } | WireState::Renewing { .. }
        )
    }

    /// True while a TLS connection is being opened in place of a silent one.
    pub(super) fn is_renewing(&self) -> bool {
        matches!(self.state, WireState::Renewing { .. })
    }

    /// Step to take now, for this `need`.
    pub(super) fn poll(&mut self, now: Instant, need: Need) -> WireStep {
        match self.state {
            _ if self.preference == WirePreference::Udp => WireStep::Wait(None),
            WireState::Opening { .. } | WireState::Renewing { .. } => WireStep::Wait(None),
            WireState::Tls { since, next } => self.poll_tls(now, need, (since, next)),
            WireState::Udp | WireState::Broken => {
                let Some(due) = self.opens_at(now, need) else {
                    return WireStep::Wait(None);
                };
                if now < due {
                    return WireStep::Wait(Some(due));
                }
                let again = self.state == WireState::Broken;
                self.state = WireState::Opening { again };
                WireStep::Open
            }
        }
    }

    /// Step on a TLS connection in use `since` then, where UDP is to be tried `next`.
    fn poll_tls(
        &mut self,
        now: Instant,
        need: Need,
        (since, next): (Instant, Option<Instant>),
    ) -> WireStep {
        let renewed = match need {
            Need::Tunnel { silent: Some(at) } => {
                let due = at.max(since) + SILENT;
                Some(self.earliest.map_or(due, |earliest| due.max(earliest)))
            }
            Need::Tunnel { silent: None } => {
                (self.renewals, self.failures, self.earliest) = (0, 0, None);
                None
            }
            Need::Attempt { .. } | Need::Nothing => None,
        };
        if renewed.is_some_and(|due| now >= due) {
            self.state = WireState::Renewing { since };
            return WireStep::Open;
        }
        let next = next.filter(|_| self.permits_udp());
        if next.is_some_and(|due| now >= due) {
            self.state = WireState::Tls { since, next: None };
            return WireStep::TryUdp;
        }
        WireStep::Wait(next.into_iter().chain(renewed).min())
    }

    /// Instant at which a TLS connection is to be opened.
    fn opens_at(&self, now: Instant, need: Need) -> Option<Instant> {
        let at_once = !self.permits_udp() || self.state == WireState::Broken;
        let due = match need {
            Need::Nothing => return None,
            Need::Attempt {
                since,
                heard: true,
                rtt,
                ..
            } => stuck_at(since, rtt),
            _ if at_once => now,
            Need::Attempt {
                since,
                blocked: true,
                ..
            } => since,
            Need::Attempt { since, rtt, .. } => since + PATIENCE.max(rtt.unwrap_or_default() * 2),
            Need::Tunnel { silent } => silent? + SILENT,
        };
        Some(self.earliest.map_or(due, |earliest| due.max(earliest)))
    }

    /// A TLS connection is open: says what becomes of it, for this `need`. The wire that is answered first wins.
    pub(super) fn on_opened(&mut self, now: Instant, need: Need) -> TlsFate {
        if let WireState::Renewing { since } = self.state {
            return self.on_renewed(now, need, since);
        }
        self.failures = 0;
        let answered = match need {
            Need::Attempt {
                since, heard, rtt, ..
            } => heard && now < stuck_at(since, rtt),
            Need::Tunnel { silent } => silent.is_none(),
            Need::Nothing => false,
        };
        let again = self.state == WireState::Opening { again: true };
        if answered && self.permits_udp() && !again {
            self.state = WireState::Udp;
            return TlsFate::Unwanted;
        }
        let [shortest, longest] = ATTEMPTS;
        let soon = self
            .returned
            .is_some_and(|returned| now.saturating_duration_since(returned) < longest);
        self.pause = if soon {
            (self.pause * 2).min(longest)
        } else {
            shortest
        };
        let unanswered = matches!(need, Need::Attempt { blocked: false, .. });
        self.checking = unanswered && self.permits_udp();
        let moved = std::mem::take(&mut self.moved);
        self.state = WireState::Tls {
            since: now,
            next: Some(match moved || self.checking {
                true => now,
                false => now + self.pause,
            }),
        };
        match again {
            true => TlsFate::Again,
            false => TlsFate::Used,
        }
    }

    /// A TLS connection is open that was to take the place of one in use `since` then.
    fn on_renewed(&mut self, now: Instant, need: Need, since: Instant) -> TlsFate {
        // That one may be heard again.
        let silent = matches!(need, Need::Tunnel { silent: Some(_) });
        self.state = WireState::Tls {
            since: if silent { now } else { since },
            next: Some(now),
        };
        if !silent {
            return TlsFate::Unwanted;
        }
        self.failures = 0;
        let pause = RENEWED[self.renewals.min(RENEWED.len() - 1)];
        self.renewals += 1;
        self.earliest = Some(now + Duration::from_secs(pause));
        TlsFate::Again
    }

    /// A TLS connection could not be opened; a silent one stays in use.
    pub(super) fn on_not_opened(&mut self, now: Instant) {
        let pause = FAILED[self.failures.min(FAILED.len() - 1)];
        self.failures += 1;
        self.earliest = Some(now + Duration::from_secs(pause));
        self.state = match self.state {
            WireState::Renewing { since } => WireState::Tls {
                since,
                next: Some(now),
            },
            _ => WireState::Udp,
        };
    }

    /// The TLS connection in use has ended.
    pub(super) fn on_ended(&mut self, now: Instant) {
        if let WireState::Tls { since, .. } | WireState::Renewing { since } = self.state {
            let lasted = now.saturating_duration_since(since);
            let pause = Duration::from_secs(if lasted < SHORT { FAILED[0] } else { 0 });
            self.earliest = Some(now + pause);
            self.state = WireState::Broken;
        }
    }

    /// Nobody answers over the TLS connection either: the next attempt is made over UDP.
    pub(super) fn on_unanswered(&mut self, now: Instant) {
        if let WireState::Tls { .. } | WireState::Renewing { .. } = self.state {
            self.state = WireState::Udp;
            self.on_not_opened(now);
        }
    }

    /// The handshake over UDP has ended. True if the server has `answered`, and datagrams leave by UDP again.
    pub(super) fn on_tried(&mut self, now: Instant, answered: bool) -> bool {
        if !matches!(
            self.state,
            WireState::Tls { .. } | WireState::Renewing { .. }
        ) {
            return false;
        }
        let first = std::mem::take(&mut self.checking);
        if answered {
            self.state = WireState::Udp;
            self.returned = Some(now);
            // A tunnel that was silent has that long to be heard.
            self.earliest = Some(now + SILENT);
        } else if let WireState::Tls { next, .. } = &mut self.state {
            if !first {
                self.pause = (self.pause * 2).min(ATTEMPTS[1]);
            }
            *next = Some(match std::mem::take(&mut self.moved) {
                // It was tried from where the client is no more.
                true => now,
                false => now + self.pause,
            });
        }
        answered
    }

    /// The client is in another network: UDP is tried as soon as there is a TLS connection from there.
    pub(super) fn on_moved(&mut self, now: Instant) {
        self.pause = ATTEMPTS[0];
        self.earliest = None;
        match &mut self.state {
            WireState::Tls {
                next: Some(next), ..
            } => *next = now,
            WireState::Tls { next: None, .. }
            | WireState::Udp
            | WireState::Opening { .. }
            | WireState::Renewing { .. }
            | WireState::Broken => self.moved = true,
        }
    }
}

/// Instant from which on the handshake of an attempt that is answered counts as one that does not end.
fn stuck_at(since: Instant, rtt: Option<Duration>) -> Instant {
    since + STUCK.max(rtt.unwrap_or_default() * 6)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests;
