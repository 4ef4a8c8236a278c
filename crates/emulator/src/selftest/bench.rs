//! A link in virtual time: what is sent when, and what arrives when, to the nanosecond.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_link::{Event, Files, Link, PacketHeader, Port, Probe, Scenario, TerminalId, Way};
use bentpipe_units::ByteCount;

/// A scenario of the self-test, with the text that says what it is.
pub(super) fn scenario(text: &str) -> Result<Scenario> {
    toml::from_str(text).with_context(|| format!("a scenario of the self-test:\n{text}"))
}

/// A link that is driven by hand.
#[derive(Debug)]
pub(super) struct Bench {
    link: Link<u64>,
    start: Instant,
    sent: u64,
}

/// A packet that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) way: Way,
    /// In the order of sending, from 0.
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl Bench {
    pub(super) fn new(text: &str) -> Result<Self> {
        Self::with_files(text, &Files::default())
    }

    pub(super) fn with_files(text: &str, files: &Files) -> Result<Self> {
        let model = scenario(text)?
            .build(files)
            .with_context(|| text.to_owned())?;
        let start = Instant::now();
        Ok(Self {
            link: Link::new(&model, start),
            start,
            sent: 0,
        })
    }

    /// Sends a packet of the first terminal, or to it.
    pub(super) fn send(&mut self, at: Duration, way: Way, bytes: u64) {
        let terminal = TerminalId::new(0);
        let from = match way {
            Way::Forward => Port::Gateway { terminal },
            Way::Return => Port::Terminal(terminal),
        };
        let header = PacketHeader {
            size: ByteCount::new(bytes),
            dscp: 0,
            train: None,
        };
        self.link
            .handle_packet(self.start + at, from, header, self.sent);
        self.sent += 1;
    }

    /// The next packet that has arrived by `until`.
    pub(super) fn arrival(&mut self, until: Duration) -> Option<Arrival> {
        let delivery = self.link.poll_output(self.start + until)?;
        let way = match delivery.to {
            Port::Gateway { .. } => Way::Return,
            Port::Terminal(_) => Way::Forward,
        };
        Some(Arrival {
            at: delivery.at.saturating_duration_since(self.start),
            way,
            number: delivery.packet,
            bytes: delivery.size.as_u64(),
        })
    }

    /// All that have arrived by `until`.
    pub(super) fn arrivals(&mut self, until: Duration) -> Vec<Arrival> {
        std::iter::from_fn(|| self.arrival(until)).collect()
    }

    /// The next packet that arrives, if it does by `until`, and not what arrives after it.
    pub(super) fn next(&mut self, until: Duration) -> Option<Arrival> {
        loop {
            let at = self
                .link
                .poll_timeout()?
                .saturating_duration_since(self.start);
            if at > until {
                return None;
            }
            if let Some(arrival) = self.arrival(at) {
                return Some(arrival);
            }
        }
    }

    /// Next event that has happened, and its time.
    pub(super) fn event(&mut self) -> Option<(Duration, Event)> {
        let event = self.link.poll_event()?;
        Some((event.at.saturating_duration_since(self.start), event))
    }

    pub(super) fn probe(&mut self, at: Duration) -> Probe {
        self.link.probe(self.start + at)
    }

    /// Everything that happens until `until`, as text: arrivals and events, one line each.
    pub(super) fn log(&mut self, until: Duration) -> String {
        let mut log = String::new();
        for arrival in self.arrivals(until) {
            let (at, way) = (arrival.at.as_nanos(), arrival.way.name());
            // Writing into a String cannot fail.
            let _ = writeln!(log, "{at} {way} {} {}", arrival.number, arrival.bytes);
        }
        while let Some((at, event)) = self.event() {
            let at = at.as_nanos();
            let _ = writeln!(log, "{at} {} {:?}", event.way.name(), event.kind);
        }
        log
    }
}
