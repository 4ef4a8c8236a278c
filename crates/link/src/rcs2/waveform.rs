//! The waveforms of DVB-RCS2: linear modulation, turbo code, bursts of 536 or 1616 symbols.
//!
//! Payloads: EN 301 545-2 table A-1. Es/N0 at a burst error ratio of 1e-5 on an AWGN channel: TR 101 545-4. Above the
//! threshold the error ratio falls by some decades per decibel: the slope is measured for six waveforms (3, 5, 8, 11, 13,
//! 22) and interpolated between. π/2-BPSK and spread-spectrum waveforms are left out.

use bentpipe_units::Decibel;

use crate::frame::Code;

/// Burst error ratio at a waveform's threshold.
const REFERENCE: f64 = 1e-5;

/// Number of bits that a symbol carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modulation {
    Qpsk,
    Psk8,
    Qam16,
}

impl Modulation {
    const fn bits(self) -> u32 {
        match self {
            Self::Qpsk => 2,
            Self::Psk8 => 3,
            Self::Qam16 => 4,
        }
    }
}

/// One waveform.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Waveform {
    pub(crate) id: u8,
    pub(crate) modulation: Modulation,
    /// Code rate, numerator and denominator.
    pub(crate) rate: (u32, u32),
    /// The whole burst, preamble, pilots and guard included.
    pub(crate) symbols: u32,
    /// Bytes of payload in a burst.
    pub(crate) payload: u32,
    /// Es/N0 at which one burst in 100,000 is lost.
    pub(crate) threshold: Decibel,
    /// Decades of burst error ratio per dB.
    slope: f64,
}

use Modulation::{Psk8, Qam16, Qpsk};

/// By number, and so by payload and threshold within a burst length.
pub(crate) const WAVEFORMS: [Waveform; 20] = [
    waveform(3, Qpsk, (1, 3), 536, 38, 0.22, 3.2),
    waveform(4, Qpsk, (1, 2), 536, 59, 2.34, 3.5),
    waveform(5, Qpsk, (2, 3), 536, 85, 4.29, 3.8),
    waveform(6, Qpsk, (3, 4), 536, 96, 5.36, 4.0),
    waveform(7, Qpsk, (5, 6), 536, 108, 6.68, 4.2),
    waveform(8, Psk8, (2, 3), 536, 115, 8.08, 4.4),
    waveform(9, Psk8, (3, 4), 536, 130, 9.31, 4.7),
    waveform(10, Psk8, (5, 6), 536, 144, 10.82, 4.9),
    waveform(11, Qam16, (3, 4), 536, 175, 11.17, 5.2),
    waveform(12, Qam16, (5, 6), 536, 194, 12.56, 5.5),
    waveform(13, Qpsk, (1, 3), 1616, 123, -0.51, 6.1),
    waveform(14, Qpsk, (1, 2), 1616, 188, 1.71, 6.5),
    waveform(15, Qpsk, (2, 3), 1616, 264, 3.69, 6.9),
    waveform(16, Qpsk, (3, 4), 1616, 298, 4.73, 7.2),
    waveform(17, Qpsk, (5, 6), 1616, 333, 5.94, 7.6),
    waveform(18, Psk8, (2, 3), 1616, 355, 7.49, 8.0),
    waveform(19, Psk8, (3, 4), 1616, 400, 8.77, 8.4),
    waveform(20, Psk8, (5, 6), 1616, 444, 10.23, 8.7),
    waveform(21, Qam16, (3, 4), 1616, 539, 10.72, 9.1),
    waveform(22, Qam16, (5, 6), 1616, 599, 12.04, 9.5),
];

const fn waveform(
    id: u8,
    modulation: Modulation,
    rate: (u32, u32),
    symbols: u32,
    payload: u32,
    threshold: f64,
    slope: f64,
) -> Waveform {
    Waveform {
        id,
        modulation,
        rate,
        symbols,
        payload,
        threshold: Decibel::new(threshold),
        slope,
    }
}

impl Waveform {
    /// Modulation, code rate and length of the burst.
    pub(crate) fn name(&self) -> String {
        let modulation = match self.modulation {
            Qpsk => "QPSK",
            Psk8 => "8PSK",
            Qam16 => "16QAM",
        };
        let (numerator, denominator) = self.rate;
        format!(
            "{modulation} {numerator}/{denominator}, {} symbols",
            self.symbols
        )
    }

    /// Strength of its code.
    pub(crate) const fn code(&self) -> Code {
        Code {
            threshold: self.threshold,
            slope: self.slope,
            reference: REFERENCE,
        }
    }

    /// Payload that OpenSAND puts into a burst: every symbol carries coded bits, as if there were no preamble, pilots and guard.
    pub(crate) const fn opensand_payload(&self) -> u32 {
        let (numerator, denominator) = self.rate;
        self.symbols * self.modulation.bits() * numerator / (denominator * 8)
    }
}

/// The waveforms that a carrier may use: of one burst length, most robust first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaveformSet(Vec<&'static Waveform>);

impl WaveformSet {
    /// The waveforms of these numbers whose bursts have so many symbols; `None` if there is none.
    pub(crate) fn new(ids: &[u8], symbols: u32) -> Option<Self> {
        let allowed =
            |waveform: &&Waveform| waveform.symbols == symbols && ids.contains(&waveform.id);
        let set: Vec<_> = WAVEFORMS.iter().filter(allowed).collect();
        (!set.is_empty()).then_some(Self(set))
    }

    /// The waveform that carries most of those that close at `es_n0` with `margin` to spare; the next better one only
    /// `hysteresis` above that. `None` if not even the most robust one closes.
    pub(crate) fn select(
        &self,
        es_n0: Decibel,
        margin: Decibel,
        hysteresis: Decibel,
        current: Option<&'static Waveform>,
    ) -> Option<&'static Waveform> {
        let payload = current.map_or(u32::MAX, |current| current.payload);
        let closes = |waveform: &&&'static Waveform| {
            let upgrade = waveform.payload > payload;
            let needed =
                waveform.threshold + margin + if upgrade { hysteresis } else { Decibel::ZERO };
            es_n0 >= needed
        };
        let best = self
            .0
            .iter()
            .filter(closes)
            .max_by_key(|waveform| waveform.payload);
        best.copied()
    }

    /// The one that gets through most easily: control bursts use it.
    pub(crate) fn most_robust(&self) -> &'static Waveform {
        self.0[0]
    }

    /// The one that carries most.
    pub(crate) fn fastest(&self) -> &'static Waveform {
        self.0[self.0.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_id(id: u8) -> Option<&'static Waveform> {
        WAVEFORMS.iter().find(|waveform| waveform.id == id)
    }

    fn all(symbols: u32) -> WaveformSet {
        WaveformSet::new(&(3..=22).collect::<Vec<_>>(), symbols).unwrap()
    }

    fn select(set: &WaveformSet, cn: f64, current: Option<u8>) -> Option<u8> {
        let current = current.and_then(by_id);
        let [margin, hysteresis] = [0.0, 0.3].map(Decibel::new);
        set.select(Decibel::new(cn), margin, hysteresis, current)
            .map(|waveform| waveform.id)
    }

    #[test]
    fn payloads_and_efficiencies_are_those_of_the_standard() {
        // 8 × payload / symbols, as published with the payloads.
        let efficiencies = [
            0.567, 0.881, 1.269, 1.433, 1.612, 1.716, 1.940, 2.149, 2.612, 2.896, 0.609, 0.931,
            1.307, 1.475, 1.649, 1.757, 1.980, 2.198, 2.668, 2.965,
        ];
        // What OpenSAND carries too much, in percent.
        let excess = [
            17.5, 13.6, 5.1, 4.7, 3.4, 16.5, 16.0, 16.3, 14.9, 15.1, 9.5, 7.4, 2.0, 1.7, 1.1, 13.8,
            13.6, 13.7, 12.4, 12.4,
        ];
        for ((waveform, efficiency), excess) in WAVEFORMS.iter().zip(efficiencies).zip(excess) {
            let payload = f64::from(waveform.payload);
            let bits = 8.0 * payload / f64::from(waveform.symbols);
            assert!((bits - efficiency).abs() < 0.0006, "{waveform:?}: {bits}");
            let over = f64::from(waveform.opensand_payload()) / payload * 100.0 - 100.0;
            // Whole bytes: up to 1 of 38.
            assert!((over - excess).abs() < 2.0, "{waveform:?}: {over}");
        }
    }

    #[test]
    fn every_threshold_is_exact() {
        for symbols in [536, 1616] {
            let set = all(symbols);
            let mut ids = WAVEFORMS
                .iter()
                .filter(|waveform| waveform.symbols == symbols);
            let mut below = None;
            // Down to the hundredth of a decibel that the table has.
            for hundredths in -300..=1800 {
                let cn = f64::from(hundredths) / 100.0;
                let selected = select(&set, cn, None);
                if selected != below {
                    let next = ids.next().unwrap();
                    assert_eq!(
                        (selected, Decibel::new(cn)),
                        (Some(next.id), next.threshold)
                    );
                    below = selected;
                }
            }
            assert!(ids.next().is_none());
        }
    }

    #[test]
    fn margin_and_hysteresis_hold_the_better_waveform_back() {
        let set = all(536);
        assert_eq!(select(&set, 12.56, Some(11)), Some(11));
        assert_eq!(select(&set, 12.87, Some(11)), Some(12));
        assert_eq!(select(&set, 12.56, Some(12)), Some(12));
        assert_eq!(select(&set, 12.55, Some(12)), Some(11));
        assert_eq!(select(&set, 0.21, Some(12)), None);
        let margin = set.select(Decibel::new(13.0), Decibel::new(1.0), Decibel::ZERO, None);
        assert_eq!(margin.map(|waveform| waveform.id), Some(11));
        assert_eq!([set.most_robust().id, set.fastest().id], [3, 12]);
        assert_eq!(WaveformSet::new(&[3, 4], 1616), None);
    }

    #[test]
    fn error_ratios_follow_their_slopes() {
        let waveform = by_id(13).unwrap();
        let at = |above: f64| {
            waveform
                .code()
                .loss(waveform.threshold + Decibel::new(above))
        };
        assert!((at(0.0) / 1e-5 - 1.0).abs() < 1e-9);
        assert!((at(-0.5) / 1e-5 - 10f64.powf(3.05)).abs() < 1.0);
        assert_eq!(at(-3.0), 1.0);
        assert!(at(1.0) < 1e-11);
    }
}
