//! A number of which perhaps only a bound is known: what nobody waited for is longer than the patience was.

use std::cmp::Ordering;

/// Knowledge of a number: itself, or what it exceeds, or what exceeds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    least: f64,
    most: f64,
}

impl Known {
    /// The number itself.
    #[must_use]
    pub fn exactly(value: f64) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    /// A number that is larger than this.
    #[must_use]
    pub fn more_than(value: f64) -> Self {
        Self {
            least: value,
            most: f64::INFINITY,
        }
    }

    /// The number, where it is known.
    #[must_use]
    pub fn value(self) -> Option<f64> {
        (self.least == self.most).then_some(self.least)
    }

    /// Value that the number is no smaller than.
    #[must_use]
    pub fn least(self) -> f64 {
        self.least
    }

    /// Value that the number is no larger than.
    #[must_use]
    pub fn most(self) -> f64 {
        self.most
    }

    /// By size; what exceeds something is larger than all numbers that are known.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let by_bound = self.least.total_cmp(&other.least);
        self.most.total_cmp(&other.most).then(by_bound)
    }

    /// The middle between the two.
    pub(super) fn middle(self, other: Self) -> Self {
        Self {
            least: f64::midpoint(self.least, other.least),
            most: f64::midpoint(self.most, other.most),
        }
    }

    /// The arithmetic mean; none of none. With one that is only known to exceed something, so is the mean.
    pub(super) fn mean(all: impl Iterator<Item = Self>) -> Option<Self> {
        let zero = Self::exactly(0.0);
        let add = |(sum, count): (Self, f64), one: Self| {
            let sum = Self {
                least: sum.least + one.least,
                most: sum.most + one.most,
            };
            (sum, count + 1.0)
        };
        let (sum, count) = all.fold((zero, 0.0), add);
        (count > 0.0).then(|| sum.over(Self::exactly(count)))
    }

    /// Ratio of this to the other.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            least: self.least / other.most,
            most: self.most / other.least,
        }
    }

    /// The number times a known one.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            least: self.least * factor,
            most: self.most * factor,
        }
    }

    /// As tables show a time.
    #[must_use]
    pub fn seconds(self) -> String {
        match self.value() {
            Some(value) => format!("{value:.2} s"),
            None => format!("> {:.0} s", self.least),
        }
    }

    /// As tables show a ratio, with so many digits behind the point.
    #[must_use]
    pub fn ratio(self, digits: usize) -> String {
        match (self.value(), self.least > 0.0, self.most.is_finite()) {
            (Some(value), ..) => format!("{value:.digits$}"),
            (None, true, false) => format!("> {:.digits$}", self.least),
            (None, false, true) => format!("< {:.digits$}", self.most),
            (None, ..) => "-".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_never_becomes_a_number() {
        let (short, long) = (Known::exactly(30.0), Known::more_than(600.0));
        assert_eq!((short.value(), long.value()), (Some(30.0), None));
        assert_eq!([short.seconds(), long.seconds()], ["30.00 s", "> 600 s"]);
        assert_eq!(short.order(&long), Ordering::Less);
        assert_eq!(long.order(&Known::exactly(9000.0)), Ordering::Greater);
        assert_eq!(short.middle(long).value(), None);
        let ratios = [long.over(short), short.over(long), long.over(long)];
        assert_eq!(ratios.map(|one| one.ratio(2)), ["> 20.00", "< 0.05", "-"]);
        assert_eq!(short.over(Known::exactly(20.0)).ratio(1), "1.5");
    }
}
