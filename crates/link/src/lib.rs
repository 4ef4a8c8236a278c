//! Model of a satellite link, in virtual time.
//!
//! One model with three users: tests that run whole systems in virtual time, the TUN emulator, and benches. It never
//! reads a clock: `now` is an argument, and equal seeds and arrivals give equal drops and delivery instants, to the
//! nanosecond. Packets are opaque (`P`) and have a size; the model does not look into them.
//!
//! ```text
//!  TOML ─► Scenario ─► Model ─► Link: both directions, all terminals; a Channel each
//!
//!              station, one per terminal            carrier                       station
//!  handle ─► classes by DSCP ─► FIFOs, CoDel ─► bit rate, PLFRAMEs ─► errors ─► delay line ─► poll_output
//!  _packet                      │                                     │          ▲
//!                               ▼ queue full, codel          channel  ▼          │ Propagation: orbit, link budget
//!
//!  Duplex: two Pipes of constant bit rate, for tests of one tunnel
//!
//!  handle ─► policer? ─► queue ─► serialiser ─► outage? loss? ─► delay line ─► poll_output
//!  _packet      │          │       (rate)            │          (one-way delay)
//!               ▼ rate     ▼ full                    ▼ outage, loss
//! ```
//!
//! Rates are IP-layer bit/s. Loss comes after the serialiser: a lost packet has used the link. A `Link` is what the emulator
//! runs; with constant bit rates and one terminal it does what a `Duplex` does, to the nanosecond.

mod attenuation;
mod budget;
mod channel;
mod delay;
mod dvbs2;
mod event;
mod frame;
mod ids;
mod link;
mod loss;
mod mahimahi;
mod model;
mod orbit;
mod pipe;
mod policer;
mod probe;
mod propagation;
mod queue;
mod random;
mod rate;
mod rcs2;
mod scenario;
mod schedule;
mod series;
pub mod sim;
mod space;
#[cfg(test)]
mod tests;

pub use bentpipe_aqm::CoDel;
pub use dvbs2::{ModcodSet, Reported, Select};
pub use event::{Event, EventKind};
pub use ids::{DropCause, PacketHeader, TerminalId, Way};
pub use link::{Delivery, Link, Port};
pub use loss::{GilbertElliott, LossModel, NoSuchChain, Outage};
pub use model::Model;
pub use orbit::Station;
pub use pipe::{Duplex, Law, LinkConfig, Marking, Pipe, PipeConfig, PipeStats};
pub use policer::Policer;
pub use probe::{ChannelProbe, Counters, Probe, QueueProbe, TerminalProbe};
pub use queue::QueueLimit;
pub use scenario::{
    AccessMode, Acm, Attenuations, Background, CodingMode, Constellations, Direction, Discipline,
    DvbRcs2, DvbS2, ErrorUnit, Errors, Fade, Files, General, Geo, LinkBudget, Logon, Network,
    Networks, Orbit, PRESETS, Pattern, PlannedChange, Probes, Protection, Queue, QueueClass,
    Queues, Scenario, ScenarioError, Standard, StarlinkEpochs, Terminal, Timing, Trace, preset,
};
pub use schedule::{Change, Schedule};
pub use series::Interpolation;
