//! One mapping: whom it has spoken to, and how long it lasts.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{Inner, Kind};

/// Addresses that one mapping hears from: the last that it has spoken to.
pub const PEERS: usize = 64;

/// Time for which a mapping of UDP lasts after its last packet (RFC 4787 §4.3: two minutes at least, five recommended).
pub const UDP_LIFE: Duration = Duration::from_secs(300);

/// Time for which a mapping of UDP lasts while no answer has come.
pub const UNANSWERED_LIFE: Duration = Duration::from_secs(120);

/// Time for which a mapping of UDP lasts that has asked name servers alone: an exchange, and over.
const DNS_LIFE: Duration = Duration::from_secs(30);

/// The port of name servers.
const DNS: u16 = 53;

/// Time for which a mapping of ICMP echo lasts (RFC 5508 §3.2).
pub const ECHO_LIFE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) inner: Inner,
    /// Peers that it has spoken to, the latest last.
    peers: VecDeque<IpAddr>,
    used: Instant,
    answered: bool,
    /// Name servers alone were asked.
    dns: bool,
}

impl Mapping {
    pub(super) fn new(now: Instant, inner: Inner) -> Self {
        Self {
            inner,
            peers: VecDeque::new(),
            used: now,
            answered: false,
            dns: inner.kind == Kind::Udp,
        }
    }

    pub(super) fn on_sent(&mut self, now: Instant, to: IpAddr, port: u16) {
        self.used = now;
        self.dns &= port == DNS;
        if self.peers.back() == Some(&to) {
            return;
        }
        match self.peers.iter().position(|known| *known == to) {
            Some(place) => drop(self.peers.remove(place)),
            None if self.peers.len() >= PEERS => drop(self.peers.pop_front()),
            None => {}
        }
        self.peers.push_back(to);
    }

    pub(super) fn on_answer(&mut self, now: Instant) {
        self.used = now;
        self.answered = true;
    }

    /// True if `from` may speak to the client here.
    pub(super) fn admits(&self, from: IpAddr) -> bool {
        self.peers.contains(&from)
    }

    /// Forgets addresses that may not be spoken to any more; true if none is left.
    pub(super) fn retain(&mut self, permitted: impl Fn(IpAddr) -> bool) -> bool {
        self.peers.retain(|peer| permitted(*peer));
        self.peers.is_empty()
    }

    pub(super) const fn answered(&self) -> bool {
        self.answered
    }

    pub(super) const fn used(&self) -> Instant {
        self.used
    }

    pub(super) fn expires(&self) -> Instant {
        self.used
            + match self.inner.kind {
                Kind::Echo => ECHO_LIFE,
                Kind::Udp if self.dns => DNS_LIFE,
                Kind::Udp if self.answered => UDP_LIFE,
                Kind::Udp => UNANSWERED_LIFE,
            }
    }
}
