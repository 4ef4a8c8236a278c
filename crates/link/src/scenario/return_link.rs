//! `standard = "dvb-rcs2"` of `[return]`: a carrier that terminals share in time.

use std::time::Duration;

use bentpipe_units::{Bandwidth, BitRate, ByteCount, Ratio, SymbolRate, TimeSpan};
use serde::{Deserialize, Serialize};

use super::standard::{Timing, symbol_rate};
use super::{Acm, Background, ScenarioError, Terminal};
use crate::channel::Carriage;
use crate::propagation::Propagation;
use crate::rcs2::{AccessModel, Contract, Rle, Sharing, WaveformSet};

/// Symbols of the bursts that linear-modulation waveforms have.
const BURSTS: [u32; 2] = [536, 1616];
/// A superframe of more slots is a typing error.
const MOST_SLOTS: u64 = 65_536;
/// A superframe of the standard is shorter.
const LONGEST_SUPERFRAME: Duration = Duration::from_secs(1);
const MOST_L2: u64 = 64;

/// `standard = "dvb-rcs2"`: a carrier by its symbol rate, or by bandwidth and roll-off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DvbRcs2 {
    /// Symbols per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol_rate: Option<SymbolRate>,
    /// Occupied bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// The carrier's roll-off, with a bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_off: Option<Ratio>,
    /// The waveforms in use, by number, as in `"3-12"` or `"13, 16-22"`; all of the burst length if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waveforms: Option<String>,
    /// Symbols of a burst: 536 or 1616.
    #[serde(default = "short_bursts")]
    pub burst_symbols: u32,
    /// Time after which capacity is shared anew.
    #[serde(default = "superframe")]
    pub superframe: TimeSpan,
    /// Way in which terminals get their slots.
    #[serde(default)]
    pub access: AccessMode,
    /// Capacity that a terminal has always.
    #[serde(default)]
    pub cra: BitRate,
    /// The most that it gets by requests for a rate.
    #[serde(default)]
    pub rbdc_max: BitRate,
    /// The most that it gets by one request for a volume.
    #[serde(default)]
    pub vbdc_max: ByteCount,
    /// The terminal gets a part of what nobody asked for.
    #[serde(default)]
    pub fca: bool,
    /// Time between two requests of a terminal.
    #[serde(default = "second")]
    pub request_period: TimeSpan,
    /// Superframes from a request to the first slot granted for it (minimum scheduling latency); what the longest
    /// delay needs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msl: Option<u32>,
    /// Superframes after which a granted rate ends without another request; one more than the period if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbdc_timeout: Option<u32>,
    /// Requests that get lost whatever the weather.
    #[serde(default)]
    pub request_loss: Ratio,
    /// State of terminals when the link starts.
    #[serde(default)]
    pub logon: Logon,
    /// Check of the end of a packet in several bursts.
    #[serde(default)]
    pub alpdu_protection: Protection,
    /// Label of a burst: `"3 B"` or `"0 B"`; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<ByteCount>,
    /// Of the layer-2 header that packets carry along: `"14 B"` for Ethernet; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_header: Option<ByteCount>,
    /// Instants at which bursts leave, and how much they hold.
    #[serde(default)]
    pub timing: Timing,
}

/// `access`: how terminals get their slots. A carrier of one's own (SCPC) is `standard = "dvb-s2"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessMode {
    /// Some always, more by request.
    #[default]
    Dama,
    /// Equal parts of the carrier for all terminals, always.
    Dedicated,
}

/// `logon`: what terminals are when the link starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Logon {
    /// Logged on.
    #[default]
    Done,
    /// Switched on in that moment.
    Cold,
}

/// `alpdu_protection`: what stands behind the last fragment of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// A sequence number of 1 byte.
    #[default]
    Sequence,
    /// A checksum of 4 bytes.
    Crc,
}

const fn short_bursts() -> u32 {
    BURSTS[0]
}

const fn superframe() -> TimeSpan {
    TimeSpan::new(Duration::from_micros(26_500))
}

const fn second() -> TimeSpan {
    TimeSpan::new(Duration::from_secs(1))
}

fn error(key: &str, problem: impl Into<String>) -> ScenarioError {
    ScenarioError::new(format!("return.{key}"), problem)
}

impl DvbRcs2 {
    /// The link as it runs; each terminal may have a contract of its own.
    pub(super) fn carriage(
        &self,
        acm: &Acm,
        terminals: &[Terminal],
        background: &Background,
        propagation: &Propagation,
    ) -> Result<Carriage, ScenarioError> {
        let superframe = self.superframe.get();
        let config = acm.config()?;
        let slots = self.slots()?;
        let waveforms = self.waveforms()?;
        let fastest = waveforms.fastest().payload;
        let background = background.back.bytes_in(superframe).as_u64() as f64 / f64::from(fastest);
        let period = self.period()?;
        if self.rbdc_timeout == Some(0) {
            return Err(error(
                "rbdc_timeout",
                "is 0; a grant that lasts has at least 1",
            ));
        }
        let sharing = Sharing {
            superframe,
            slots,
            waveforms,
            margin: config.margin,
            hysteresis: config.hysteresis,
            rbdc_timeout: self.rbdc_timeout.map_or(period + 1, u64::from),
            background: background.min(f64::from(slots)),
            dedicated: self.access == AccessMode::Dedicated,
            opensand: self.timing == Timing::OpensandTicks,
        };
        let access = AccessModel {
            sharing,
            contracts: self.contracts(terminals)?,
            period,
            msl: self.latency(propagation)?,
            request_loss: self.request_loss,
            cold: self.logon == Logon::Cold,
        };
        Ok(Carriage::Bursts(Box::new(access), self.nominal_rate()))
    }

    /// By which queues are sized where nothing else is said: what a terminal can get.
    fn nominal_rate(&self) -> BitRate {
        let rate = self.cra.as_u64().saturating_add(self.rbdc_max.as_u64());
        let bits_per_symbol = 2.9;
        let carrier = symbol_rate("return", self.symbol_rate, self.bandwidth, self.roll_off);
        let carrier = carrier.map_or(0.0, |rate| rate.as_u64() as f64) * bits_per_symbol;
        let whole = self.access == AccessMode::Dedicated || self.fca || rate == 0;
        BitRate::bits_per_second(if whole { carrier as u64 } else { rate })
    }

    fn slots(&self) -> Result<u32, ScenarioError> {
        if !BURSTS.contains(&self.burst_symbols) {
            let problem = format!("is {}; bursts have 536 or 1616", self.burst_symbols);
            return Err(error("burst_symbols", problem));
        }
        let superframe = self.superframe.get();
        if superframe.is_zero() || superframe > LONGEST_SUPERFRAME {
            let problem = format!("is {}; it is above 0 and at most 1 s", self.superframe);
            return Err(error("superframe", problem));
        }
        let rate = symbol_rate("return", self.symbol_rate, self.bandwidth, self.roll_off)?;
        let symbols = u128::from(rate.as_u64()) * superframe.as_nanos() / 1_000_000_000;
        let slots = symbols / u128::from(self.burst_symbols);
        match u32::try_from(slots) {
            Ok(0) => Err(error(
                "superframe",
                "is too short for a single burst at this symbol rate",
            )),
            Ok(slots) if u64::from(slots) <= MOST_SLOTS => Ok(slots),
            _ => Err(error(
                "superframe",
                format!("has more than {MOST_SLOTS} bursts; shorten it"),
            )),
        }
    }

    fn waveforms(&self) -> Result<WaveformSet, ScenarioError> {
        let all = "3-22".to_owned();
        let text = self.waveforms.as_ref().unwrap_or(&all);
        let ids = ids(text).ok_or_else(|| {
            let problem = format!("is `{text}`; write numbers from 3 to 22, as in \"3-12\"");
            error("waveforms", problem)
        })?;
        WaveformSet::new(&ids, self.burst_symbols).ok_or_else(|| {
            let problem = format!(
                "is `{text}`, which has none for bursts of {} symbols; 3-12 have 536, 13-22 have 1616",
                self.burst_symbols
            );
            error("waveforms", problem)
        })
    }

    fn period(&self) -> Result<u64, ScenarioError> {
        let superframes =
            self.request_period.get().as_secs_f64() / self.superframe.get().as_secs_f64();
        if !(0.5..=1e6).contains(&superframes) {
            let problem = format!("is {}; it is at least a superframe", self.request_period);
            return Err(error("request_period", problem));
        }
        Ok(superframes.round() as u64)
    }

    /// The scheduling latency in superframes, which the way through space must allow.
    fn latency(&self, propagation: &Propagation) -> Result<u64, ScenarioError> {
        let round_trip = propagation.longest_one_way_delay() * 2;
        let superframe = self.superframe.get().as_nanos().max(1);
        let needed = round_trip.as_nanos().div_ceil(superframe);
        let needed = u64::try_from(needed).unwrap_or(u64::MAX) + 1;
        match self.msl.map(u64::from) {
            None => Ok(needed),
            // OpenSAND's terminals use a grant from the first superframe after they heard it; their MSL is a figure in the
            // computation of requests, and delays nothing.
            Some(msl) if msl >= needed && self.timing == Timing::OpensandTicks => Ok(needed),
            Some(msl) if msl >= needed => Ok(msl),
            Some(msl) => {
                let problem = format!(
                    "is {msl}; a request and its grant take {needed} superframes on the longest way"
                );
                Err(error("msl", problem))
            }
        }
    }

    fn contracts(&self, terminals: &[Terminal]) -> Result<Vec<Contract>, ScenarioError> {
        let contract = |terminal: Option<&Terminal>| Contract {
            cra: terminal.and_then(|own| own.cra).unwrap_or(self.cra),
            rbdc_max: terminal
                .and_then(|own| own.rbdc_max)
                .unwrap_or(self.rbdc_max),
            vbdc_max: terminal
                .and_then(|own| own.vbdc_max)
                .unwrap_or(self.vbdc_max),
            fca: self.fca,
        };
        let contracts: Vec<_> = if terminals.is_empty() {
            vec![contract(None)]
        } else {
            terminals
                .iter()
                .map(|terminal| contract(Some(terminal)))
                .collect()
        };
        let nothing = |contract: &Contract| {
            contract.cra.as_u64() + contract.rbdc_max.as_u64() + contract.vbdc_max.as_u64() == 0
        };
        if self.access == AccessMode::Dama && !self.fca && contracts.iter().any(nothing) {
            let problem = "gives a terminal nothing; write cra, rbdc_max, vbdc_max or fca";
            return Err(error("access", problem));
        }
        Ok(contracts)
    }

    pub(super) fn rle(&self) -> Result<Rle, ScenarioError> {
        let label = self.label.map_or(3, ByteCount::as_u64);
        if ![0, 3].contains(&label) {
            return Err(error(
                "label",
                format!("is {label} B; labels have 0 or 3 bytes"),
            ));
        }
        let l2_header = self.l2_header.map_or(0, ByteCount::as_u64);
        if l2_header > MOST_L2 {
            let problem = format!("is {l2_header} B; at most {MOST_L2} B are possible");
            return Err(error("l2_header", problem));
        }
        // Both are small.
        Ok(Rle {
            label: label as u32,
            l2_header: l2_header as u32,
            protection: match self.alpdu_protection {
                Protection::Sequence => 1,
                Protection::Crc => 4,
            },
        })
    }
}

/// The numbers that a text like `3-5, 8` names.
fn ids(text: &str) -> Option<Vec<u8>> {
    let mut ids = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last]: [u8; 2] = [first.trim().parse().ok()?, last.trim().parse().ok()?];
        if first < 3 || last > 22 || first > last {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}
