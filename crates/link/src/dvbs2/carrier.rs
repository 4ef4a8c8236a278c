//! A DVB-S2 carrier at work: when the next PLFRAME begins, with which MODCOD, and how much fits.
//!
//! The modulator is continuous. A frame begins when the one before ends, or at once when something comes while
//! nothing was sent (the dummy PLFRAMEs of an idle modulator are not waited for), and carries what waits at that
//! instant. With OpenSAND's ticks frames leave in clumps instead.

use std::time::Instant;

use bentpipe_units::{BitRate, ByteCount, Decibel, Seed, SymbolRate};

use super::ticks::Ticks;
use super::{AcmConfig, Adaptation, Modcod};
use crate::event::{EventKind, EventLog};
use crate::frame::{Code, Frame};
use crate::ids::{TerminalId, Way};
use crate::rate::Serialiser;
use crate::space::Space;

/// Decades of frame error ratio per decibel about the threshold.
const SLOPE: f64 = 35.0;
/// Frame error ratio at the threshold.
const REFERENCE: f64 = 1e-7;

/// Way in which MODCODs are given out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Coding {
    /// To each receiver what its reports allow.
    Adaptive(AcmConfig),
    /// To each receiver its own, always.
    Fixed(Vec<Modcod>),
}

#[derive(Debug, Clone)]
pub(crate) struct PlFramesConfig {
    pub(crate) symbol_rate: SymbolRate,
    pub(crate) pilots: bool,
    pub(crate) coding: Coding,
    /// The most efficient that is in use.
    pub(crate) best: Modcod,
    /// Of the background load.
    pub(crate) background: Modcod,
    pub(crate) ticks: bool,
}

impl PlFramesConfig {
    /// Data-field bits per second with one MODCOD.
    pub(crate) fn rate(&self, modcod: Modcod) -> BitRate {
        let bits = u128::from(modcod.data_field().as_u64()) * 8;
        let rate =
            bits * u128::from(self.symbol_rate.as_u64()) / u128::from(modcod.symbols(self.pilots));
        BitRate::bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
pub(crate) struct PlFrames {
    config: PlFramesConfig,
    way: Way,
    clock: Serialiser,
    adaptations: Vec<Adaptation>,
    logged_on: bool,
    ticks: Option<Ticks>,
}

impl PlFrames {
    pub(crate) fn new(
        config: &PlFramesConfig,
        way: Way,
        terminals: usize,
        seed: Seed,
        start: Instant,
    ) -> Self {
        let symbols = BitRate::bits_per_second(config.symbol_rate.as_u64());
        let adaptation = |terminal| {
            let acm = match &config.coding {
                Coding::Adaptive(acm) => *acm,
                Coding::Fixed(_) => return None,
            };
            let seed = seed.stream("acm").stream(&format!("terminal {terminal}"));
            Some(Adaptation::new(acm, seed, start))
        };
        Self {
            way,
            clock: Serialiser::new(symbols, start),
            adaptations: (0..terminals).filter_map(adaptation).collect(),
            logged_on: false,
            ticks: config
                .ticks
                .then(|| Ticks::new(config.symbol_rate, seed, start)),
            config: config.clone(),
        }
    }

    pub(crate) fn next_start(&self, ready: Instant) -> Instant {
        match &self.ticks {
            Some(ticks) => ticks.next_start(ready),
            None => self.clock.idle_at().max(ready),
        }
    }

    /// Learns of every report that has reached the sender by `now`.
    pub(crate) fn learn(&mut self, now: Instant, space: Space<'_>, log: &mut EventLog) {
        let way = self.way;
        let clear = Decibel::new(f64::MAX);
        let cn = |at, terminal| space.cn_total(at, terminal, way).unwrap_or(clear);
        for (terminal, adaptation) in self.adaptations.iter_mut().enumerate() {
            if !self.logged_on {
                adaptation.log_on(cn(space.start, terminal));
            }
            let delay = |at| space.one_way_delay(at, terminal, way.other());
            while let Some(report) = adaptation.next_report(now, delay) {
                let measured = cn(report.made, terminal);
                if let Some((from, to)) = adaptation.handle_report(measured) {
                    let kind = EventKind::Modcod {
                        from: from.id(),
                        to: to.id(),
                        cn: measured,
                    };
                    log.add(report.arrived, way, TerminalId::new(terminal), kind);
                }
            }
        }
        self.logged_on = true;
    }

    /// The MODCOD of a terminal; of the background load for a number beyond the last terminal.
    pub(crate) fn modcod(&self, terminal: usize) -> Modcod {
        let modcod = match &self.config.coding {
            Coding::Adaptive(_) => self.adaptations.get(terminal).map(Adaptation::current),
            Coding::Fixed(modcods) => modcods.get(terminal).copied(),
        };
        modcod.unwrap_or(self.config.background)
    }

    /// Bytes that fit into a frame with this MODCOD.
    pub(crate) const fn room(modcod: Modcod) -> ByteCount {
        modcod.data_field()
    }

    /// The rate with this terminal's MODCOD.
    pub(crate) fn capacity(&self, terminal: usize) -> BitRate {
        self.config.rate(self.modcod(terminal))
    }

    /// Comes to a tick; without ticks nothing happens.
    pub(crate) fn begin(&mut self, start: Instant) {
        let largest = Modcod::all().map(|modcod| modcod.symbols(self.config.pilots));
        let largest = largest.max().unwrap_or_default();
        if let Some(ticks) = &mut self.ticks {
            ticks.begin(start, largest);
        }
    }

    /// True if several frames leave at one instant.
    pub(crate) const fn in_clumps(&self) -> bool {
        self.ticks.is_some()
    }

    /// Sends a frame that begins at `start`; `None` if the tick has no symbols left for it.
    pub(crate) fn send(&mut self, start: Instant, modcod: Modcod) -> Option<Frame> {
        let symbols = modcod.symbols(self.config.pilots);
        let end = match &mut self.ticks {
            Some(ticks) => ticks.take(symbols).then_some(start)?,
            None => {
                self.clock.send_units(start, u128::from(symbols));
                self.clock.idle_at()
            }
        };
        Some(Frame {
            end,
            code: Code {
                threshold: modcod.threshold(),
                slope: SLOPE,
                reference: REFERENCE,
            },
        })
    }

    /// The delay of what ends at `end`, given that of the path.
    pub(crate) fn delay(
        &self,
        end: Instant,
        path: std::time::Duration,
        space: Space<'_>,
    ) -> std::time::Duration {
        let since_start = end.saturating_duration_since(space.start);
        let polled = |ticks: &Ticks| ticks.polled(since_start, path);
        self.ticks.as_ref().map_or(path, polled)
    }
}
