//! A scenario: the file that says what the emulated link is like, and the presets.
//!
//! Serde types only; whoever reads the file chooses the parser (TOML everywhere here). Quantities are strings with
//! units and unknown keys are errors. `Standard` and `Orbit` are where DVB-S2, DVB-RCS2 and moving satellites go.

use std::time::Duration;

use bentpipe_units::{BitRate, ByteCount, Ratio, Seed, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::loss::{GilbertElliott, LossModel, NoSuchChain};
use crate::pipe::{LinkConfig, PipeConfig};
use crate::queue::QueueLimit;
use crate::schedule::Schedule;

/// The smallest default queue: ten full packets, for links whose BDP is (nearly) nothing.
const MIN_DEFAULT_QUEUE: ByteCount = ByteCount::new(15_000);

/// A whole scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// `[scenario]`
    #[serde(rename = "scenario")]
    pub general: General,
    /// `[orbit]`
    pub orbit: Orbit,
    /// `[forward]`: gateway to terminal.
    #[serde(rename = "forward")]
    pub forward_link: Standard,
    /// `[return]`: terminal to gateway.
    #[serde(rename = "return")]
    pub return_link: Standard,
    /// `[errors]`; none if absent.
    #[serde(default)]
    pub errors: Errors,
    /// `[queue]`, of each direction; one BDP if absent.
    #[serde(default)]
    pub queue: Queue,
}

/// `[scenario]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct General {
    /// What results call it.
    pub name: String,
    /// The root of every random number of a run.
    pub seed: Seed,
}

/// `[orbit]`: where the propagation delay comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Orbit {
    /// The same delay always, in both directions.
    Constant {
        /// Ground to ground, through the satellite.
        one_way_delay: TimeSpan,
    },
}

/// `[forward]`, `[return]`: how a direction carries bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standard", rename_all = "snake_case", deny_unknown_fields)]
pub enum Standard {
    /// A constant bit rate.
    Cbr {
        /// IP-layer bit/s.
        bit_rate: BitRate,
    },
}

/// `[errors]`: packets that do not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Errors {
    /// All arrive. (Braces, because serde lets a unit variant pass with unknown keys.)
    None {},
    /// Independent losses.
    Iid {
        /// Loss probability of a packet.
        rate: Ratio,
        /// Where.
        #[serde(default)]
        direction: Direction,
    },
    /// Losses in bursts.
    GilbertElliott {
        /// Mean loss probability of a packet.
        rate: Ratio,
        /// Mean number of packets lost in a row.
        mean_burst: f64,
        /// Where.
        #[serde(default)]
        direction: Direction,
    },
}

/// The directions that something applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Gateway to terminal.
    Forward,
    /// Terminal to gateway.
    Return,
    /// Each, independently.
    #[default]
    Both,
}

/// `[queue]`: at most one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Bytes that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<ByteCount>,
    /// Packets that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
}

/// A scenario that reads well but describes no link.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// A rate of zero.
    #[error("[{table}] bit_rate is zero; for a link that is down use an outage")]
    ZeroRate {
        /// `forward` or `return`.
        table: &'static str,
    },
    /// Both limits of the queue.
    #[error("[queue] has both limit and packets; keep one")]
    TwoQueueLimits,
    /// An impossible mean burst.
    #[error("[errors] {0}")]
    Errors(#[from] NoSuchChain),
}

impl Scenario {
    /// The scenario as the configuration of a [`crate::Duplex`].
    ///
    /// # Errors
    /// If values contradict each other; the message names table and key.
    pub fn link_config(&self) -> Result<LinkConfig, ScenarioError> {
        Ok(LinkConfig {
            forward_link: self.pipe("forward", self.forward_link, Direction::Forward)?,
            return_link: self.pipe("return", self.return_link, Direction::Return)?,
        })
    }

    fn pipe(
        &self,
        table: &'static str,
        standard: Standard,
        direction: Direction,
    ) -> Result<PipeConfig, ScenarioError> {
        let Orbit::Constant { one_way_delay } = self.orbit;
        let Standard::Cbr { bit_rate } = standard;
        if bit_rate.as_u64() == 0 {
            return Err(ScenarioError::ZeroRate { table });
        }
        Ok(PipeConfig {
            rate: bit_rate,
            one_way_delay: one_way_delay.get(),
            queue: self.queue.for_link(bit_rate, one_way_delay.get())?,
            loss: self.errors.in_direction(direction)?,
            outages: Vec::new(),
            schedule: Schedule::none(),
            policer: None,
        })
    }
}

impl Queue {
    /// The limit as configured, or one BDP: rate × 2 × one-way delay, and at least ten full packets.
    fn for_link(self, rate: BitRate, one_way_delay: Duration) -> Result<QueueLimit, ScenarioError> {
        match (self.limit, self.packets) {
            (Some(_), Some(_)) => Err(ScenarioError::TwoQueueLimits),
            (Some(bytes), None) => Ok(QueueLimit::Bytes(bytes)),
            (None, Some(packets)) => Ok(QueueLimit::Packets(
                usize::try_from(packets).unwrap_or(usize::MAX),
            )),
            (None, None) => {
                let bdp = rate.bytes_in(one_way_delay.saturating_mul(2));
                Ok(QueueLimit::Bytes(bdp.max(MIN_DEFAULT_QUEUE)))
            }
        }
    }
}

impl Default for Errors {
    fn default() -> Self {
        Self::None {}
    }
}

impl Errors {
    fn in_direction(self, direction: Direction) -> Result<LossModel, NoSuchChain> {
        let (model, applies_to) = match self {
            Self::None {} => return Ok(LossModel::None),
            Self::Iid { rate, direction } => (LossModel::Iid(rate), direction),
            Self::GilbertElliott {
                rate,
                mean_burst,
                direction,
            } => {
                let chain = GilbertElliott::with_mean(rate, mean_burst)?;
                (LossModel::GilbertElliott(chain), direction)
            }
        };
        let hit = applies_to == Direction::Both || applies_to == direction;
        Ok(if hit { model } else { LossModel::None })
    }
}

/// The names that [`preset`] knows.
pub const PRESETS: &[&str] = &["geo", "leo", "g1"];

/// A scenario by name: constant rates and delay, no errors, queues of one BDP, seed 1.
///
/// `geo`: 10/10 Mbit/s, 250 ms (the GEO link of the CNES measurements). `leo`: 150/15 Mbit/s, 25 ms.
/// `g1`: 250/3 Mbit/s, 300 ms.
pub fn preset(name: &str) -> Option<Scenario> {
    let (forward, back, millis) = match name {
        "geo" => (10, 10, 250),
        "leo" => (150, 15, 25),
        "g1" => (250, 3, 300),
        _ => return None,
    };
    let cbr = |n| Standard::Cbr {
        bit_rate: BitRate::megabits_per_second(n),
    };
    Some(Scenario {
        general: General {
            name: name.to_owned(),
            seed: Seed::new(1),
        },
        orbit: Orbit::Constant {
            one_way_delay: Duration::from_millis(millis).into(),
        },
        forward_link: cbr(forward),
        return_link: cbr(back),
        errors: Errors::default(),
        queue: Queue::default(),
    })
}
