//! `[forward]` and `[return]`: how a direction carries bits.

use std::path::{Path, PathBuf};

use bentpipe_units::{Bandwidth, BitRate, ByteCount, Ratio, SymbolRate};
use serde::{Deserialize, Serialize};

use super::acm::Acm;
use super::{Background, DvbRcs2, Files, ScenarioError, Terminal};
use crate::channel::{Carriage, Encapsulation, Gse};
use crate::dvbs2::{AcmConfig, Coding, Modcod, ModcodSet, PlFramesConfig};
use crate::mahimahi::Opportunities;
use crate::propagation::Propagation;

/// `[forward]`, `[return]`: how a direction carries bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "standard", deny_unknown_fields)]
pub enum Standard {
    /// A constant bit rate.
    #[serde(rename = "cbr")]
    Cbr {
        /// IP-layer bit/s.
        bit_rate: BitRate,
    },
    /// DVB-S2: the forward link of a hub, or an SCPC return link.
    #[serde(rename = "dvb-s2")]
    DvbS2(DvbS2),
    /// DVB-RCS2: the return link of a hub, which terminals share in time.
    #[serde(rename = "dvb-rcs2")]
    DvbRcs2(Box<DvbRcs2>),
    /// A recorded rate: lines of milliseconds at which 1500 bytes may leave.
    #[serde(rename = "mahimahi")]
    Mahimahi {
        /// The record, relative to the scenario.
        file: PathBuf,
    },
}

/// `standard = "dvb-s2"`: a carrier by its symbol rate, or by bandwidth and roll-off.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DvbS2 {
    /// Symbols per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol_rate: Option<SymbolRate>,
    /// Occupied bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// The carrier's roll-off, with a bandwidth: 0.35, 0.25 or 0.2 in the standard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_off: Option<Ratio>,
    /// True if frames have pilots.
    #[serde(default)]
    pub pilots: bool,
    /// The MODCODs in use.
    #[serde(default)]
    pub modcods: ModcodSet,
    /// Way in which MODCODs are given out.
    #[serde(default)]
    pub mode: CodingMode,
    /// Label of a GSE packet: `"6 B"`, `"3 B"` or `"0 B"`; 6 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<ByteCount>,
    /// Of the layer-2 header that packets carry along: `"14 B"` for Ethernet; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_header: Option<ByteCount>,
    /// Instants at which frames leave.
    #[serde(default)]
    pub timing: Timing,
}

/// `mode`: how MODCODs are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodingMode {
    /// Adaptive: what each terminal's reports allow, see `[acm]`.
    #[default]
    Acm,
    /// Constant: the one in `modcods`, for all.
    Ccm,
    /// Variable: each terminal's own (`modcod` of `[[terminal]]`).
    Vcm,
}

/// `timing`: when frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// One after the other, as a modulator sends them.
    #[default]
    Continuous,
    /// In clumps every 10 ms, as OpenSAND sends them.
    OpensandTicks,
}

/// Carriers outside these are typing errors.
const SYMBOL_RATES: std::ops::RangeInclusive<u64> = 1_000..=10_000_000_000;
/// The largest layer-2 header.
const MOST_L2: u64 = 64;

impl Standard {
    /// The file that it names.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Mahimahi { file } => Some(file),
            _ => None,
        }
    }

    /// The rate of a direction that has one; `table` is `forward` or `return`.
    pub(super) fn constant_rate(&self, table: &str) -> Result<BitRate, ScenarioError> {
        let Self::Cbr { bit_rate } = self else {
            let problem = "is not `cbr`; only the general link has other standards";
            return Err(ScenarioError::new(format!("{table}.standard"), problem));
        };
        if bit_rate.as_u64() == 0 {
            return Err(ScenarioError::new(
                format!("{table}.bit_rate"),
                "is zero; for a link that is down use an outage",
            ));
        }
        Ok(*bit_rate)
    }

    pub(super) fn carriage(
        &self,
        table: &str,
        acm: &Acm,
        terminals: &[Terminal],
        background: &Background,
        propagation: &Propagation,
        files: &Files,
    ) -> Result<Carriage, ScenarioError> {
        match self {
            Self::Cbr { .. } => Ok(Carriage::Constant(self.constant_rate(table)?)),
            Self::DvbS2(carrier) => {
                let frames = carrier.frames(table, acm, terminals, background)?;
                Ok(Carriage::PlFrames(frames))
            }
            Self::DvbRcs2(_) if table != "return" => {
                let problem = "is `dvb-rcs2`, which only [return] can be; write \"dvb-s2\"";
                Err(ScenarioError::new(format!("{table}.standard"), problem))
            }
            Self::DvbRcs2(carrier) => carrier.carriage(acm, terminals, background, propagation),
            Self::Mahimahi { file } => {
                let key = format!("{table}.file");
                let trace = super::parsed(&key, file, files, Opportunities::parse)?;
                Ok(Carriage::Opportunities(trace))
            }
        }
    }

    /// Bytes that are added to packets; constant rates count IP packets as they are.
    pub(super) fn encapsulation(&self, table: &str) -> Result<Encapsulation, ScenarioError> {
        match self {
            Self::Cbr { .. } | Self::Mahimahi { .. } => Ok(Encapsulation::Gse(Gse {
                label: 0,
                l2_header: 0,
            })),
            Self::DvbS2(carrier) => carrier.gse(table).map(Encapsulation::Gse),
            Self::DvbRcs2(carrier) => carrier.rle().map(Encapsulation::Rle),
        }
    }
}

impl DvbS2 {
    fn frames(
        &self,
        table: &str,
        acm: &Acm,
        terminals: &[Terminal],
        background: &Background,
    ) -> Result<PlFramesConfig, ScenarioError> {
        let config = AcmConfig {
            modcods: self.modcods,
            pilots: self.pilots,
            ..acm.config()?
        };
        let best = config.most_efficient();
        Ok(PlFramesConfig {
            symbol_rate: symbol_rate(table, self.symbol_rate, self.bandwidth, self.roll_off)?,
            pilots: self.pilots,
            coding: self.coding(table, config, terminals)?,
            best,
            background: match background.modcod {
                Some(id) => self.modcod("background.modcod", id)?,
                None => best,
            },
            ticks: self.timing == Timing::OpensandTicks,
        })
    }

    fn coding(
        &self,
        table: &str,
        config: AcmConfig,
        terminals: &[Terminal],
    ) -> Result<Coding, ScenarioError> {
        match self.mode {
            CodingMode::Acm => Ok(Coding::Adaptive(config)),
            CodingMode::Ccm => {
                if self.modcods.ids().count() > 1 {
                    let problem = format!("is {}; with mode = \"ccm\" name one", self.modcods);
                    return Err(ScenarioError::new(format!("{table}.modcods"), problem));
                }
                let only = config.most_efficient();
                Ok(Coding::Fixed(vec![only; terminals.len().max(1)]))
            }
            CodingMode::Vcm => {
                let own = |(index, terminal): (usize, &Terminal)| {
                    let key = format!("terminal.{index}.modcod");
                    let id = terminal.modcod.ok_or_else(|| {
                        ScenarioError::new(&key, "is missing; mode = \"vcm\" needs it")
                    })?;
                    self.modcod(&key, id)
                };
                if terminals.is_empty() {
                    let problem = "is \"vcm\", which needs [[terminal]]s with a modcod each";
                    return Err(ScenarioError::new(format!("{table}.mode"), problem));
                }
                let modcods = terminals.iter().enumerate().map(own);
                Ok(Coding::Fixed(modcods.collect::<Result<_, _>>()?))
            }
        }
    }

    /// The MODCOD `id`, which must be one of those in use.
    fn modcod(&self, key: &str, id: u8) -> Result<Modcod, ScenarioError> {
        let known = Modcod::new(id).filter(|modcod| self.modcods.contains(*modcod));
        known.ok_or_else(|| {
            let problem = format!("is {id}; modcods has {}", self.modcods);
            ScenarioError::new(key, problem)
        })
    }

    fn gse(&self, table: &str) -> Result<Gse, ScenarioError> {
        let label = self.label.map_or(6, ByteCount::as_u64);
        if ![0, 3, 6].contains(&label) {
            let problem = format!("is {label} B; labels have 0, 3 or 6 bytes");
            return Err(ScenarioError::new(format!("{table}.label"), problem));
        }
        let l2_header = self.l2_header.map_or(0, ByteCount::as_u64);
        if l2_header > MOST_L2 {
            let problem = format!("is {l2_header} B; at most {MOST_L2} B are possible");
            return Err(ScenarioError::new(format!("{table}.l2_header"), problem));
        }
        // Both are small.
        Ok(Gse {
            label: label as u32,
            l2_header: l2_header as u32,
        })
    }
}

/// The symbol rate of a carrier, which is given by itself or by bandwidth and roll-off.
pub(super) fn symbol_rate(
    table: &str,
    symbol_rate: Option<SymbolRate>,
    bandwidth: Option<Bandwidth>,
    roll_off: Option<Ratio>,
) -> Result<SymbolRate, ScenarioError> {
    let (key, rate) = match (symbol_rate, bandwidth, roll_off) {
        (Some(rate), None, None) => ("symbol_rate", rate),
        (None, Some(bandwidth), Some(roll_off)) => {
            ("bandwidth", bandwidth.symbol_rate(roll_off.as_f64()))
        }
        _ => {
            let problem = "needs either symbol_rate, or bandwidth and roll_off";
            return Err(ScenarioError::new(table, problem));
        }
    };
    if !SYMBOL_RATES.contains(&rate.as_u64()) {
        let problem = format!("gives {rate}; a carrier has 1 kbaud to 10 Gbaud");
        return Err(ScenarioError::new(format!("{table}.{key}"), problem));
    }
    Ok(rate)
}
