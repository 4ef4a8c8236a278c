//! `[queue]` or `[[queue]]`: what waits for the link, and in which order.

use std::time::Duration;

use bentpipe_aqm::CoDel;
use bentpipe_units::{BitRate, ByteCount, TimeSpan};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{Direction, ScenarioError};
use crate::channel::ClassConfig;
use crate::ids::Way;
use crate::queue::QueueLimit;

/// The smallest default queue: ten full packets, for links whose BDP is (nearly) nothing.
const MIN_DEFAULT_QUEUE: ByteCount = ByteCount::new(15_000);
/// The values of a DSCP, which has six bits.
const DSCPS: u8 = 64;

/// `[queue]`, one for everything, or `[[queue]]`, a class each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Queues {
    /// One first-in-first-out queue.
    One(Queue),
    /// Classes; the packet's DSCP chooses one.
    Classes(Vec<QueueClass>),
}

/// `[queue]`: at most one of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Bytes that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<ByteCount>,
    /// Packets that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Discipline by which it keeps itself short.
    #[serde(default)]
    pub discipline: Discipline,
    /// CoDel: the waiting time that is acceptable; 5 ms if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TimeSpan>,
    /// CoDel: for how long it may be exceeded, about a round trip; 100 ms if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,
}

/// `[[queue]]`: one class of packets, of every terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueClass {
    /// Name that results call it by.
    pub name: String,
    /// Lower numbers are served first, strictly.
    pub priority: u8,
    /// The code points that belong here; the class served last takes what no class names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<u8>,
    /// Bytes that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<ByteCount>,
    /// Packets that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Discipline by which it keeps itself short.
    #[serde(default)]
    pub discipline: Discipline,
    /// CoDel: the waiting time that is acceptable; 5 ms if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TimeSpan>,
    /// CoDel: for how long it may be exceeded, about a round trip; 100 ms if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,
    /// Directions that have it.
    #[serde(default)]
    pub direction: Direction,
}

/// `discipline`: how a queue keeps itself short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// Drops what finds the queue full.
    #[default]
    Droptail,
    /// Besides, drops at the head when packets have waited too long for too long (RFC 8289).
    Codel,
}

impl Default for Queues {
    fn default() -> Self {
        Self::One(Queue::default())
    }
}

impl<'de> Deserialize<'de> for Queues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TableOrList)
    }
}

struct TableOrList;

impl<'de> de::Visitor<'de> for TableOrList {
    type Value = Queues;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a table [queue] or tables [[queue]]")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Queues, A::Error> {
        Queue::deserialize(MapAccessDeserializer::new(map)).map(Queues::One)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Queues, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Queues::Classes)
    }
}

impl Queue {
    fn codel(self, key: &str) -> Result<Option<CoDel>, ScenarioError> {
        if self.discipline == Discipline::Codel {
            let usual = CoDel::default();
            return Ok(Some(CoDel {
                target: self.target.map_or(usual.target, TimeSpan::get),
                interval: self.interval.map_or(usual.interval, TimeSpan::get),
            }));
        }
        if self.target.is_some() || self.interval.is_some() {
            let problem = "has target or interval without discipline = \"codel\"";
            return Err(ScenarioError::new(key, problem));
        }
        Ok(None)
    }

    /// The limit as configured, or one BDP: rate × 2 × one-way delay, and at least ten full packets.
    pub(super) fn for_link(
        self,
        key: &str,
        rate: BitRate,
        one_way_delay: Duration,
    ) -> Result<QueueLimit, ScenarioError> {
        match (self.limit, self.packets) {
            (Some(_), Some(_)) => Err(ScenarioError::new(
                key,
                "has both limit and packets; keep one",
            )),
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

impl Queues {
    /// The one queue, where there are no classes.
    pub(super) fn only(&self) -> Result<Queue, ScenarioError> {
        match self {
            Self::One(queue) if queue.discipline == Discipline::Droptail => Ok(*queue),
            _ => Err(ScenarioError::new(
                "queue",
                "has classes or an active discipline, which only the general link has",
            )),
        }
    }

    /// The classes of one direction, served in this order.
    pub(super) fn classes(
        &self,
        way: Way,
        rate: BitRate,
        one_way_delay: Duration,
    ) -> Result<Vec<ClassConfig>, ScenarioError> {
        let classes = match self {
            Self::One(queue) => {
                return Ok(vec![ClassConfig {
                    name: "all".to_owned(),
                    dscp: Vec::new(),
                    limit: queue.for_link("queue", rate, one_way_delay)?,
                    codel: queue.codel("queue")?,
                }]);
            }
            Self::Classes(classes) => classes,
        };
        let here = classes.iter().enumerate();
        let here = here.filter(|(_, class)| class.direction.covers(way));
        let mut seen = [false; DSCPS as usize];
        let mut found = Vec::new();
        for (index, class) in here {
            class.claim(index, &mut seen)?;
            let config = class.config(&format!("queue.{index}"), rate, one_way_delay)?;
            found.push((class.priority, config));
        }
        if found.is_empty() {
            let problem = format!("has no class for the {} link", way.name());
            return Err(ScenarioError::new("queue", problem));
        }
        found.sort_by_key(|(priority, _)| *priority);
        Ok(found.into_iter().map(|(_, class)| class).collect())
    }
}

impl QueueClass {
    fn config(
        &self,
        key: &str,
        rate: BitRate,
        one_way_delay: Duration,
    ) -> Result<ClassConfig, ScenarioError> {
        let queue = Queue {
            limit: self.limit,
            packets: self.packets,
            discipline: self.discipline,
            target: self.target,
            interval: self.interval,
        };
        Ok(ClassConfig {
            name: self.name.clone(),
            dscp: self.dscp.clone(),
            limit: queue.for_link(key, rate, one_way_delay)?,
            codel: queue.codel(key)?,
        })
    }

    /// Notes the class's code points, each of which may belong to one class only.
    fn claim(&self, index: usize, seen: &mut [bool; DSCPS as usize]) -> Result<(), ScenarioError> {
        for dscp in &self.dscp {
            let key = || format!("queue.{index}.dscp");
            let Some(seen) = seen.get_mut(usize::from(*dscp)) else {
                let problem = format!("has {dscp}; a DSCP is a number from 0 to {}", DSCPS - 1);
                return Err(ScenarioError::new(key(), problem));
            };
            if std::mem::replace(seen, true) {
                let problem = format!("has {dscp}, as another class has; keep one");
                return Err(ScenarioError::new(key(), problem));
            }
        }
        Ok(())
    }
}
