//! Congestion control: controllers, delivery-rate samples, rounds, the pacer and saved paths decide how fast a tunnel may
//! send.
//!
//! ```text
//!   packets sent, acknowledged, lost ─► rate samples ─► controller ─► window, pacing rate ─► pacer ─► when a batch may leave
//!   trains of packets ─► dispersion ──────────────────►    ▲ │
//!                                                          │ └─► saved ─► paths ─► the next tunnel's first rate
//!                                                          └──────────────┘
//! ```
//!
//! On the data path this stands between the engine's loop, which counts packets and acknowledgements, and the gate
//! in front of quinn's `poll_transmit`. Everything is pure: time is an argument and nothing is random.
//! It does not detect losses (quinn does), schedule streams, or touch packets.

pub mod ablation;
mod bbr3;
mod dispersion;
#[cfg(test)]
mod every_controller;
mod loss_based;
mod pacer;
pub mod paths;
mod rate_sample;
mod round;
mod satellite;
mod saved;
mod scaled;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

pub use bbr3::Bbr3;
pub use dispersion::{Dispersion, Estimate};
pub use loss_based::LossBased;
pub use pacer::{LARGEST_BATCH, MAX_BATCH, Pacer};
pub use rate_sample::{AtSend, RateSample, RateSampler};
pub use round::RoundCounter;
pub use satellite::Satellite;
pub use saved::{Observed, Saved};

use scaled::{bytes_in, float, rate_of, scaled, time_of, whole};

/// Pacing is at least this fast, in bit/s, so that a stalled path can be probed.
const MIN_RATE: u64 = 16_000;

/// What one incoming ACK frame says, summed over the packets that it acknowledges for the first time.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Instant at which the ACK arrived.
    pub now: Instant,
    /// Bytes acknowledged for the first time.
    pub newly_acked: u64,
    /// `now` minus the send time of the newest packet acknowledged for the first time; includes the peer's ACK delay.
    pub rtt: Option<Duration>,
    /// Send time of that packet.
    pub newest_sent: Instant,
    /// Bytes in flight after this ACK.
    pub in_flight: u64,
    /// True if the sender has nothing more to send now. What was so when the packets left is in `rate`; the first flight
    /// after idle is app-limited there, and still it is the window that holds it back.
    pub app_limited: bool,
    /// Delivery rate measured by [`RateSampler`], where there is one.
    pub rate: Option<RateSample>,
}

/// What one round of loss detection, or one ECN report, says.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// Instant at which the loss was declared.
    pub now: Instant,
    /// Bytes declared lost; 0 for a report of ECN marks alone.
    pub lost: u64,
    /// Send time of the newest lost (or marked) packet.
    pub newest_sent: Instant,
    /// Bytes in flight afterwards.
    pub in_flight: u64,
    /// Persistent congestion in the sense of RFC 9002 §7.6.
    pub persistent: bool,
    /// The evidence is a CE mark, not a missing packet.
    pub ecn: bool,
    /// What was known when the newest lost (or marked) packet left, if [`RateSampler`] remembers.
    pub at_send: Option<AtSend>,
}

/// What a controller must know before the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Window before the first ACK, in bytes.
    pub initial_window: u64,
    /// UDP payload of a full packet, in bytes.
    pub mtu: u16,
    /// Round-trip time assumed until one is measured.
    pub initial_rtt: Duration,
    /// Ceiling of the pacing rate, in UDP payload.
    pub max_rate: Option<BitRate>,
    /// Rate that the operator has been sold on this path, in UDP payload: it may be used before it was measured.
    pub provisioned: Option<BitRate>,
    /// The wire below delivers in order whatever it takes: no loss says that a queue grows.
    pub in_order: bool,
}

/// The name of a controller, as written in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
    Cubic,
    /// CUBIC that leaves slow start only on loss.
    CubicNoHystart,
    /// NewReno (RFC 9002 §7) with HyStart++.
    NewReno,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr3,
    /// A model of the path: delivery rate, round-trip time and its own loss.
    #[default]
    Satellite,
}

impl Kind {
    /// Every controller, for help texts and tests.
    pub const ALL: [Self; 5] = [
        Self::Cubic,
        Self::CubicNoHystart,
        Self::NewReno,
        Self::Bbr3,
        Self::Satellite,
    ];

    /// The name used in configuration files and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicNoHystart => "cubic-no-hystart",
            Self::NewReno => "new-reno",
            Self::Bbr3 => "bbr3",
            Self::Satellite => "satellite",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not that of a controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no congestion controller is called `{0}`; there are cubic, cubic-no-hystart, new-reno, bbr3 and satellite"
)]
pub struct UnknownController(String);

impl FromStr for Kind {
    type Err = UnknownController;

    fn from_str(name: &str) -> Result<Self, UnknownController> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownController(name.to_owned()))
    }
}

/// A congestion controller: an enum, so that the loop pays no indirect call per packet and the set is closed.
#[derive(Clone, Debug)]
pub enum Controller {
    /// CUBIC and NewReno.
    LossBased(Box<LossBased>),
    /// See [`Kind::Bbr3`].
    Bbr3(Box<Bbr3>),
    /// See [`Kind::Satellite`].
    Satellite(Box<Satellite>),
}

impl Controller {
    /// A controller of a path on which nothing was sent yet.
    pub fn new(kind: Kind, config: &Config, now: Instant) -> Self {
        match kind {
            Kind::Cubic | Kind::CubicNoHystart | Kind::NewReno => {
                Self::LossBased(Box::new(LossBased::new(kind, config, now)))
            }
            Kind::Bbr3 => Self::Bbr3(Box::new(Bbr3::new(config, now))),
            Kind::Satellite => Self::Satellite(Box::new(Satellite::new(config, now))),
        }
    }

    /// Which controller this is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::LossBased(window) => window.kind(),
            Self::Bbr3(_) => Kind::Bbr3,
            Self::Satellite(_) => Kind::Satellite,
        }
    }

    /// The path is known from an earlier connection (RFC 9959); false from a controller that starts afresh all the same.
    /// It comes before the first packet, or after a few: a server knows its client, and so the path, from the handshake.
    pub fn resume(&mut self, now: Instant, saved: Saved) -> bool {
        match self {
            Self::LossBased(_) | Self::Bbr3(_) => false,
            Self::Satellite(satellite) => satellite.resume(now, saved),
        }
    }

    /// True if [`Self::hint`] would make a difference.
    pub fn wants_hint(&self) -> bool {
        match self {
            Self::LossBased(_) | Self::Bbr3(_) => false,
            Self::Satellite(satellite) => satellite.wants_hint(),
        }
    }

    /// True if the round-trip time of a small packet is of use while nothing else is sent.
    pub fn listens(&self) -> bool {
        match self {
            Self::LossBased(_) | Self::Bbr3(_) => false,
            Self::Satellite(satellite) => satellite.listens(),
        }
    }

    /// Another train of packets is wanted now, in the midst of what is sent.
    pub fn wants_train(&self, now: Instant) -> bool {
        match self {
            Self::LossBased(_) | Self::Bbr3(_) => false,
            Self::Satellite(satellite) => satellite.wants_train(now),
        }
    }

    /// Records that a packet train is about to be sent.
    pub fn on_train(&mut self, now: Instant) {
        match self {
            Self::LossBased(_) | Self::Bbr3(_) => {}
            Self::Satellite(satellite) => satellite.on_train(now),
        }
    }

    /// The peer saw a train of packets arrive at `rate`, in UDP payload: the path can carry that much. False from a
    /// controller that makes no use of it.
    pub fn hint(&mut self, now: Instant, rate: BitRate) -> bool {
        match self {
            Self::LossBased(_) | Self::Bbr3(_) => false,
            Self::Satellite(satellite) => satellite.hint(now, rate),
        }
    }

    /// What is known of the path, for the next connection; `None` while too little was seen, or only an idle sender's.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        match self {
            Self::LossBased(window) => window.saved(now),
            Self::Bbr3(bbr) => bbr.saved(now),
            Self::Satellite(satellite) => satellite.saved(now),
        }
    }

    /// `bytes` left at `now`; `in_flight` includes them.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        match self {
            Self::LossBased(window) => window.on_sent(now, bytes, in_flight),
            Self::Bbr3(bbr) => bbr.on_sent(now, bytes, in_flight),
            Self::Satellite(satellite) => satellite.on_sent(now, bytes, in_flight),
        }
    }

    /// An ACK frame acknowledged new packets.
    pub fn on_ack(&mut self, ack: &AckSample) {
        match self {
            Self::LossBased(window) => window.on_ack(ack),
            Self::Bbr3(bbr) => bbr.on_ack(ack),
            Self::Satellite(satellite) => satellite.on_ack(ack),
        }
    }

    /// Packets were declared lost or marked.
    pub fn on_loss(&mut self, loss: &LossSample) {
        match self {
            Self::LossBased(window) => window.on_loss(loss),
            Self::Bbr3(bbr) => bbr.on_loss(loss),
            Self::Satellite(satellite) => satellite.on_loss(loss),
        }
    }

    /// The path carries packets of `mtu` bytes of UDP payload from now on.
    pub fn on_mtu(&mut self, mtu: u16) {
        match self {
            Self::LossBased(window) => window.on_mtu(mtu),
            Self::Bbr3(bbr) => bbr.on_mtu(mtu),
            Self::Satellite(satellite) => satellite.on_mtu(mtu),
        }
    }

    /// Bytes that may be in flight; at least two full packets.
    pub fn window(&self) -> u64 {
        match self {
            Self::LossBased(window) => window.window(),
            Self::Bbr3(bbr) => bbr.window(),
            Self::Satellite(satellite) => satellite.window(),
        }
    }

    /// The rate at which packets may leave, counted in UDP payload; never zero.
    pub fn pacing_rate(&self) -> BitRate {
        match self {
            Self::LossBased(window) => window.pacing_rate(),
            Self::Bbr3(bbr) => bbr.pacing_rate(),
            Self::Satellite(satellite) => satellite.pacing_rate(),
        }
    }
}
