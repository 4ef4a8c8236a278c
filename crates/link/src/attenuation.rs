//! Attenuation of one hop over time: rain, and the test signals of a lab.
//!
//! Functions of time alone. They say how many decibels of carrier are missing, not what becomes of the link: that is the
//! budget's business (`budget.rs`), and then the modems'.

use std::time::Duration;

use crate::series::Series;

/// Attenuation of one hop in decibels, over time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Attenuation {
    #[default]
    None,
    Constant(f64),
    /// `peak` for `on`, nothing for `off`, and again; from `start`.
    OnOff {
        peak: f64,
        start: Duration,
        on: Duration,
        off: Duration,
    },
    /// Up to `peak` and down again in a straight line each, once a `period`; from `start`.
    Triangular {
        peak: f64,
        start: Duration,
        period: Duration,
    },
    /// Up to `peak` in steps that last `dwell` each, and there to the end.
    Staircase {
        peak: f64,
        step: f64,
        start: Duration,
        dwell: Duration,
    },
    /// A shower: up with a slope, a while at the peak, down with a slope; once, or `every` so often.
    Rain {
        peak: f64,
        start: Duration,
        /// dB/s
        rise: f64,
        hold: Duration,
        /// dB/s
        fall: f64,
        every: Option<Duration>,
    },
    File(Series),
}

impl Attenuation {
    /// The attenuation in dB, counted from the link's start.
    pub(crate) fn at(&self, at: Duration) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Constant(value) => *value,
            Self::OnOff {
                peak,
                start,
                on,
                off,
            } => phase(at, *start, *on + *off).map_or(0.0, |into| {
                if into < on.as_secs_f64() { *peak } else { 0.0 }
            }),
            Self::Triangular {
                peak,
                start,
                period,
            } => phase(at, *start, *period).map_or(0.0, |into| {
                let half = period.as_secs_f64() / 2.0;
                peak * (1.0 - (into / half - 1.0).abs())
            }),
            Self::Staircase {
                peak,
                step,
                start,
                dwell,
            } => at.checked_sub(*start).map_or(0.0, |into| {
                let steps = into.as_nanos() / dwell.as_nanos().max(1);
                (step * steps as f64).min(*peak)
            }),
            Self::Rain {
                peak,
                start,
                rise,
                hold,
                fall,
                every,
            } => {
                let into = match every {
                    Some(every) => phase(at, *start, *every),
                    None => at.checked_sub(*start).map(|into| into.as_secs_f64()),
                };
                into.map_or(0.0, |into| {
                    shower(into, *peak, *rise, hold.as_secs_f64(), *fall)
                })
            }
            Self::File(series) => series.at(at),
        }
    }
}

/// Seconds since the present period began; nothing before `start`.
fn phase(at: Duration, start: Duration, period: Duration) -> Option<f64> {
    let since = at.checked_sub(start)?;
    let into = since.as_nanos() % period.as_nanos().max(1);
    Some(into as f64 / 1e9)
}

fn shower(into: f64, peak: f64, rise: f64, hold: f64, fall: f64) -> f64 {
    let full = peak / rise;
    if into < full {
        into * rise
    } else {
        (peak - (into - full - hold).max(0.0) * fall).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    fn values(attenuation: &Attenuation, at: &[f64]) -> Vec<f64> {
        at.iter().map(|at| attenuation.at(seconds(*at))).collect()
    }

    #[test]
    fn signals_have_their_shapes() {
        let on_off = Attenuation::OnOff {
            peak: 6.0,
            start: seconds(10.0),
            on: seconds(2.0),
            off: seconds(3.0),
        };
        let at = [9.999, 10.0, 11.999, 12.0, 14.999, 15.0];
        assert_eq!(values(&on_off, &at), [0.0, 6.0, 6.0, 0.0, 0.0, 6.0]);
        let triangle = Attenuation::Triangular {
            peak: 8.0,
            start: seconds(1.0),
            period: seconds(4.0),
        };
        let at = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(values(&triangle, &at), [0.0, 0.0, 4.0, 8.0, 4.0, 0.0]);
        let stairs = Attenuation::Staircase {
            peak: 0.6,
            step: 0.25,
            start: seconds(5.0),
            dwell: seconds(10.0),
        };
        let at = [4.0, 5.0, 14.999, 15.0, 25.0, 35.0, 1e6];
        assert_eq!(values(&stairs, &at), [0.0, 0.0, 0.0, 0.25, 0.5, 0.6, 0.6]);
    }

    #[test]
    fn rain_comes_and_goes_with_its_slopes() {
        let mut rain = Attenuation::Rain {
            peak: 10.0,
            start: seconds(60.0),
            rise: 1.0,
            hold: seconds(30.0),
            fall: 0.5,
            every: None,
        };
        let at = [59.0, 65.0, 70.0, 100.0, 110.0, 120.0, 1000.0];
        assert_eq!(values(&rain, &at), [0.0, 5.0, 10.0, 10.0, 5.0, 0.0, 0.0]);
        if let Attenuation::Rain { every, .. } = &mut rain {
            *every = Some(seconds(600.0));
        }
        assert_eq!(values(&rain, &[665.0, 1310.0]), [5.0, 5.0]);
    }
}
