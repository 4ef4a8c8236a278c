//! Permission to send data: the window and the pacer give it.

use std::time::{Duration, Instant};

use bentpipe_congestion::Pacer;
use bentpipe_units::BitRate;

/// Reason why data has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shut {
    /// The window is full: an acknowledgement opens it.
    Window,
    /// The pacer permits none yet: time opens it.
    Pacer,
    /// quinn keeps its DATAGRAM frames to itself: the peer's new address has not proved itself, which a datagram from there
    /// ends, or the connection is closed.
    Unproven,
}

/// Permission to send data now, and what forbade it when last asked.
pub(super) struct Permit {
    pacer: Pacer,
    shut: Option<Shut>,
}

impl Permit {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pacer: Pacer::new(now),
            shut: None,
        }
    }

    /// True if sending was forbidden when last asked.
    pub(super) fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// Sets what forbids sending now; `None`: it is permitted.
    pub(super) fn set(&mut self, shut: Option<Shut>) {
        self.shut = shut;
    }

    /// Datagrams of `mtu` bytes that may leave now at `rate`, when the window has room for `room` of them; at least one.
    pub(super) fn datagrams(
        &mut self,
        now: Instant,
        room: usize,
        rate: BitRate,
        mtu: u16,
        min_rtt: Duration,
    ) -> Result<usize, Shut> {
        if room == 0 {
            self.pacer.on_shut();
            return Err(Shut::Window);
        }
        let paced = self.pacer.budget(now, rate, mtu, min_rtt);
        match room.min(paced as usize) {
            0 => Err(Shut::Pacer),
            permits => Ok(permits),
        }
    }

    /// Charges `bytes` that left to the pacer.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize, rate: BitRate) {
        self.pacer.on_sent(now, bytes as u64, rate);
    }

    /// Instant at which time permits sending.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let paced = self.shut == Some(Shut::Pacer);
        paced.then(|| self.pacer.poll_timeout()).flatten()
    }
}
