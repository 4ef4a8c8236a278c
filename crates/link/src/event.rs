//! What happens on a link, in the order of time.
//!
//! Whoever runs the link collects events; if nobody does, the oldest are forgotten.

use std::collections::BTreeMap;
use std::time::Instant;

use bentpipe_units::{BitRate, ByteCount, Decibel};
use serde::Serialize;

use crate::ids::{DropCause, TerminalId, Way};

/// Events that wait to be collected; a flood that fills a queue for a second has about as many.
const MOST: usize = 1 << 16;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Instant of the event.
    pub at: Instant,
    /// Direction in which the event happened.
    pub way: Way,
    /// To whom.
    pub terminal: TerminalId,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A packet was dropped.
    Dropped {
        /// Cause of the loss.
        cause: DropCause,
        /// IP-layer size of the packet.
        size: ByteCount,
    },
    /// The sender began to use another MODCOD for a terminal.
    Modcod {
        /// Before.
        from: u8,
        /// From now on.
        to: u8,
        /// C/N that the receiver had measured.
        cn: Decibel,
    },
    /// A terminal was admitted to the return link, and knows it.
    LoggedOn,
    /// A terminal has lost the network and must log on anew.
    LoggedOff,
    /// A terminal asked for capacity.
    Requested {
        /// A rate, until further notice.
        rbdc: BitRate,
        /// A volume.
        vbdc: ByteCount,
        /// The request did not reach the gateway.
        lost: bool,
    },
    /// The gateway grants a terminal another capacity than before.
    Granted {
        /// Bits of burst payload per second.
        bit_rate: BitRate,
    },
    /// The gateway chose another waveform for a terminal; none if not even the most robust one closes.
    Waveform {
        /// Number of the waveform in EN 301 545-2.
        waveform: Option<u8>,
    },
}

impl EventKind {
    pub(crate) const fn dropped(cause: DropCause, size: ByteCount) -> Self {
        Self::Dropped { cause, size }
    }
}

/// Events that nobody has collected yet.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// By instant, and among equals in the order in which they were noted.
    events: BTreeMap<(Instant, u64), Event>,
    noted: u64,
    forgotten: u64,
}

impl EventLog {
    /// Notes an event. Fates are known early, so events do not come in the order of time.
    pub(crate) fn add(&mut self, at: Instant, way: Way, terminal: TerminalId, kind: EventKind) {
        if self.events.len() == MOST {
            self.events.pop_first();
            self.forgotten += 1;
        }
        let event = Event {
            at,
            way,
            terminal,
            kind,
        };
        self.noted += 1;
        self.events.insert((at, self.noted), event);
    }

    /// The earliest event, if it has happened by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Number of events that were forgotten because nobody collected them.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
