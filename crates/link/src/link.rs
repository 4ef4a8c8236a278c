//! The general link: both directions, with all terminals.
//!
//! [`crate::Duplex`] is the small brother for tests of one tunnel. A link whose directions are constant bit rates and
//! which has one terminal behaves as a `Duplex` does, to the nanosecond and the random number.

use std::time::Instant;

use bentpipe_units::ByteCount;

use crate::channel::Channel;
use crate::event::{Event, EventLog};
use crate::ids::{PacketHeader, TerminalId, Way};
use crate::model::Model;
use crate::probe::{Probe, TerminalProbe};
use crate::propagation::Propagation;
use crate::sim::next_wakeup;
use crate::space::Space;

/// End of the link at which packets enter and leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// The gateway, with a packet for this terminal or from it.
    Gateway {
        /// The other end.
        terminal: TerminalId,
    },
    /// A terminal.
    Terminal(TerminalId),
}

/// A packet that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Instant of the delivery.
    pub at: Instant,
    /// End at which the packet leaves.
    pub to: Port,
    /// IP-layer size of the packet.
    pub size: ByteCount,
    /// The packet.
    pub packet: P,
}

/// Both directions of the link, all terminals.
#[derive(Debug)]
pub struct Link<P> {
    start: Instant,
    now: Instant,
    names: Vec<String>,
    propagation: Propagation,
    forward_link: Channel<P>,
    return_link: Channel<P>,
    log: EventLog,
}

impl<P> Link<P> {
    /// An empty link at the instant `start`, from which all that changes with time counts.
    pub fn new(model: &Model, start: Instant) -> Self {
        let channel = |model_of_way, way| {
            let space = Space {
                start,
                propagation: &model.propagation,
            };
            Channel::new(model_of_way, way, model.terminals.len(), model.seed, space)
        };
        Self {
            start,
            now: start,
            names: model.terminals.clone(),
            propagation: model.propagation.clone(),
            forward_link: channel(&model.forward_link, Way::Forward),
            return_link: channel(&model.return_link, Way::Return),
            log: EventLog::default(),
        }
    }

    /// Number of terminals; their numbers are below it.
    pub const fn terminals(&self) -> usize {
        self.names.len()
    }

    /// Offers a packet to the link. One from or for a terminal that does not exist vanishes.
    pub fn handle_packet(&mut self, now: Instant, from: Port, header: PacketHeader, packet: P) {
        self.now = self.now.max(now);
        let space = Space {
            start: self.start,
            propagation: &self.propagation,
        };
        let (terminal, channel) = match from {
            Port::Gateway { terminal } => (terminal, &mut self.forward_link),
            Port::Terminal(terminal) => (terminal, &mut self.return_link),
        };
        channel.handle_packet(now, terminal, header, packet, space, &mut self.log);
    }

    /// The next packet that has arrived by `now`. Call until `None`.
    pub fn poll_output(&mut self, now: Instant) -> Option<Delivery<P>> {
        self.advance(now);
        let [forward, back] = [&self.forward_link, &self.return_link].map(Channel::next_arrival);
        let forward_first = match (forward, back) {
            (Some(forward), Some(back)) => forward <= back,
            (forward, _) => forward.is_some(),
        };
        let (way, channel) = if forward_first {
            (Way::Forward, &mut self.forward_link)
        } else {
            (Way::Return, &mut self.return_link)
        };
        let (at, terminal, size, packet) = channel.poll_output(now)?;
        let to = match way {
            Way::Forward => Port::Terminal(terminal),
            Way::Return => Port::Gateway { terminal },
        };
        Some(Delivery {
            at,
            to,
            size,
            packet,
        })
    }

    /// The earliest instant at which `poll_output` may return a packet; `None` when the link is empty. Where a packet
    /// has to wait or is lost, nothing comes then, and this answers a later instant.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let channels = [&self.forward_link, &self.return_link];
        next_wakeup(channels.map(|channel| channel.poll_timeout(self.space())))
    }

    /// The next thing that has happened, in the order of time. Call until `None`; what nobody collects is forgotten
    /// when too much waits.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.log.pop(self.now)
    }

    /// A snapshot.
    pub fn probe(&mut self, now: Instant) -> Probe {
        self.advance(now);
        let space = self.space();
        let terminals = self.names.iter().enumerate();
        let terminals = terminals.map(|(index, name)| TerminalProbe {
            name: name.clone(),
            forward_link: self.forward_link.probe(now, index, space),
            return_link: self.return_link.probe(now, index, space),
        });
        Probe {
            terminals: terminals.collect(),
            events_forgotten: self.log.forgotten(),
        }
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let space = Space {
            start: self.start,
            propagation: &self.propagation,
        };
        for channel in [&mut self.forward_link, &mut self.return_link] {
            channel.advance(now, space, &mut self.log);
        }
    }

    const fn space(&self) -> Space<'_> {
        Space {
            start: self.start,
            propagation: &self.propagation,
        }
    }
}
