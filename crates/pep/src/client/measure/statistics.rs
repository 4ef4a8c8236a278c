//! Statistics of paired transfers: how many times as fast the tunnel is, how sure that is, and what it comes to.
//!
//! Pure. A pair is one transfer past the tunnel and one through it, one right after the other, so that what the link does to
//! both cancels out. The figure is the median of the pairs' ratios. Its interval is that of the sign test, which takes nothing
//! for granted of how transfers vary; it needs six pairs.

use bentpipe_units::{median, median_rank};
use serde::Serialize;

/// Seconds of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    /// Past the tunnel.
    pub direct_s: f64,
    /// Through the tunnel.
    pub tunnel_s: f64,
}

/// Result of the pairs of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// Pairs that it rests on.
    pub n: usize,
    /// Median past the tunnel, seconds.
    pub direct_s: f64,
    /// Median through the tunnel, seconds.
    pub tunnel_s: f64,
    /// Median of the ratios of direct to tunnel: above 1 the tunnel is faster.
    pub ratio: f64,
    /// Bounds of the true median of the ratios, with 95 % confidence; none of fewer than six pairs.
    pub interval: Option<[f64; 2]>,
    /// Conclusion from all pairs.
    pub verdict: Conclusion,
}

/// Conclusion about one kind of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The tunnel is faster.
    Gain,
    /// The tunnel is slower.
    Slower,
    /// Either may be faster.
    NoDifference,
    /// Fewer than six pairs were measured.
    TooFew,
}

impl Pair {
    /// Ratio of direct to tunnel: above 1 the tunnel is faster.
    pub(super) fn ratio(&self) -> f64 {
        self.direct_s / self.tunnel_s
    }
}

impl Comparison {
    /// Of `pairs`; none of none.
    #[must_use]
    pub fn of(pairs: &[Pair]) -> Option<Self> {
        let sorted = |figure: fn(&Pair) -> f64| {
            let mut figures: Vec<f64> = pairs.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let ratios = sorted(Pair::ratio);
        let n = ratios.len();
        let interval = median_rank(n).map(|rank| [ratios[rank], ratios[n - 1 - rank]]);
        Some(Self {
            n,
            direct_s: median(&sorted(|pair| pair.direct_s))?,
            tunnel_s: median(&sorted(|pair| pair.tunnel_s))?,
            ratio: median(&ratios)?,
            interval,
            verdict: Conclusion::of(interval),
        })
    }
}

impl Conclusion {
    fn of(interval: Option<[f64; 2]>) -> Self {
        match interval {
            None => Self::TooFew,
            Some([low, _]) if low > 1.0 => Self::Gain,
            Some([_, high]) if high < 1.0 => Self::Slower,
            Some(_) => Self::NoDifference,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(ratios: &[f64]) -> Option<Comparison> {
        let pair = |ratio: &f64| Pair {
            direct_s: *ratio,
            tunnel_s: 1.0,
        };
        Comparison::of(&ratios.iter().map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn few_pairs_say_nothing_and_six_are_enough() {
        assert_eq!(compare(&[]), None);
        let five = compare(&[9.0; 5]).unwrap();
        assert_eq!((five.ratio, five.interval), (9.0, None));
        assert_eq!(five.verdict, Conclusion::TooFew);
        let six = compare(&[2.0, 4.0, 3.0, 1.5, 2.5, 3.5]).unwrap();
        assert_eq!(
            (six.n, six.ratio, six.interval),
            (6, 2.75, Some([1.5, 4.0]))
        );
        assert_eq!(six.verdict, Conclusion::Gain);
    }

    #[test]
    fn one_pair_of_nine_that_is_out_of_line_changes_nothing() {
        let nine = [2.0, 2.0, 2.0, 2.0, 0.1, 2.0, 2.0, 2.0, 2.0];
        assert_eq!(compare(&nine).unwrap().verdict, Conclusion::Gain);
        let six = compare(&nine[..6]).unwrap();
        assert_eq!(six.verdict, Conclusion::NoDifference);
    }

    #[test]
    fn slower_and_not_different_are_no_gain() {
        assert_eq!(compare(&[0.9; 8]).unwrap().verdict, Conclusion::Slower);
        assert_eq!(
            compare(&[1.0; 8]).unwrap().verdict,
            Conclusion::NoDifference
        );
        let mixed = [0.9, 1.1, 0.9, 1.1, 0.9, 1.1, 0.9, 1.1];
        assert_eq!(compare(&mixed).unwrap().verdict, Conclusion::NoDifference);
    }

    /// What the link does to both of a pair, however much that is, is no difference between them.
    #[test]
    fn what_changes_from_pair_to_pair_cancels_out() {
        let pair = |n: i32| Pair {
            direct_s: 3.0 * 2.0f64.powi(n),
            tunnel_s: 2.0f64.powi(n),
        };
        let pairs: Vec<Pair> = (-4..=4).map(pair).collect();
        let paired = Comparison::of(&pairs).unwrap();
        assert_eq!((paired.ratio, paired.interval), (3.0, Some([3.0, 3.0])));
    }
}
