//! A return link of the paper's size without packets: what waits is a number.

use std::time::Duration;

use bentpipe_units::{BitRate, Decibel, Ratio, Seed};

use crate::attenuation::Attenuation;
use crate::budget::{Budget, Hop};
use crate::event::EventKind;
use crate::orbit::Path;
use crate::propagation::{Budgets, Propagation};
use crate::rcs2::access::Access;
use crate::rcs2::controller::{Contract, Sharing};
use crate::rcs2::model::AccessModel;
use crate::rcs2::waveform::WaveformSet;

pub(super) const SUPERFRAME: Duration = Duration::from_micros(26_500);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const GEO: Duration = Duration::from_millis(250);
/// A second, in superframes.
pub(super) const PERIOD: u64 = 38;
pub(super) const MSL: u64 = 23;

pub(super) fn kbit(rate: u64) -> BitRate {
    BitRate::kilobits_per_second(rate)
}

pub(super) fn contract(cra: u64, rbdc: u64) -> Contract {
    Contract {
        cra: kbit(cra),
        rbdc_max: kbit(rbdc),
        ..Contract::default()
    }
}

/// 7.4 Mbaud: 365 slots of 194 bytes, 21.4 Mbit/s.
pub(super) fn model(contracts: &[Contract]) -> AccessModel {
    AccessModel {
        sharing: Sharing {
            superframe: SUPERFRAME,
            slots: 365,
            waveforms: WaveformSet::new(&(3..=12).collect::<Vec<_>>(), 536).unwrap(),
            margin: Decibel::ZERO,
            hysteresis: Decibel::new(0.3),
            rbdc_timeout: PERIOD + 1,
            background: 0.0,
            dedicated: false,
            opensand: false,
        },
        contracts: contracts.to_vec(),
        period: PERIOD,
        msl: MSL,
        request_loss: Ratio::ZERO,
        cold: false,
    }
}

/// A return link without packets: what waits is a number.
pub(super) struct Rig {
    access: Access,
    propagation: Propagation,
    pub(super) backlog: Vec<u64>,
    /// Bytes sent since the last look.
    pub(super) sent: Vec<u64>,
    pub(super) notes: Vec<(Duration, usize, EventKind)>,
    ready: Vec<Duration>,
}

impl Rig {
    pub(super) fn new(model: &AccessModel) -> Self {
        Self::fading(model, Attenuation::None)
    }

    /// With rain on the terminals' uplink.
    pub(super) fn fading(model: &AccessModel, rain: Attenuation) -> Self {
        let count = model.contracts.len();
        let hop = |attenuation| Hop {
            clear_sky: Decibel::new(20.0),
            attenuation,
        };
        let budget = |attenuation| Budget {
            uplink: hop(attenuation),
            downlink: hop(Attenuation::None),
            implementation_loss: Decibel::ZERO,
        };
        let propagation = Propagation {
            paths: vec![Path::constant(GEO); count],
            allow_reordering: false,
            budgets: Some(Budgets {
                forward_link: budget(Attenuation::None),
                return_link: budget(rain),
                extra_attenuation: vec![Decibel::ZERO; count],
            }),
        };
        Self {
            access: Access::new(model, &propagation, Seed::new(1)),
            propagation,
            backlog: vec![0; count],
            sent: vec![0; count],
            notes: Vec::new(),
            ready: vec![Duration::ZERO; count],
        }
    }

    pub(super) fn offer(&mut self, at: Duration, terminal: usize, bytes: u64) {
        self.run(at);
        if self.backlog[terminal] == 0 {
            self.ready[terminal] = at;
        }
        self.backlog[terminal] += bytes;
        self.access.arrived(terminal, bytes);
    }

    /// Goes on to `until` or to the next slot that is used; when that begins.
    pub(super) fn step(&mut self, until: Duration) -> Option<Duration> {
        loop {
            let control = self.access.next_control(&self.propagation);
            let waiting = (0..self.backlog.len()).filter(|index| self.backlog[*index] > 0);
            let slots = waiting.filter_map(|index| {
                let slot = self
                    .access
                    .next_slot(index, self.ready[index], &self.propagation)?;
                Some((slot.start, index, slot))
            });
            let first = slots.min_by_key(|(start, index, _)| (*start, *index));
            match first.filter(|(start, ..)| *start < control) {
                Some((start, index, slot)) if start <= until => {
                    let bytes =
                        self.backlog[index].min(self.access.payload_of(slot.waveform).into());
                    self.backlog[index] -= bytes;
                    self.sent[index] += bytes;
                    self.ready[index] = start;
                    self.access.use_slot(index);
                    return Some(start);
                }
                None if control <= until => {
                    let backlog = &self.backlog;
                    self.access
                        .control(&self.propagation, |index| backlog[index], &mut self.notes);
                }
                _ => return None,
            }
        }
    }

    pub(super) fn run(&mut self, until: Duration) {
        while self.step(until).is_some() {}
    }

    /// Bit/s of each terminal while all have enough to send, from `warm_up` on.
    pub(super) fn saturated(&mut self, warm_up: Duration, length: Duration) -> Vec<f64> {
        for terminal in 0..self.backlog.len() {
            self.offer(Duration::ZERO, terminal, 1 << 40);
        }
        self.run(warm_up);
        self.sent.fill(0);
        self.run(warm_up + length);
        let rates = self.sent.iter();
        rates
            .map(|sent| *sent as f64 * 8.0 / length.as_secs_f64())
            .collect()
    }
}
