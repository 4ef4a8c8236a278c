//! Time spans as they are written: `"250 ms"`, `"5 min"`.
//!
//! A thin coat over `Duration` that only gives it a string form; code computes with `Duration` itself. Resolution is
//! a nanosecond. Points in time are `Instant` and have no string form.

use std::time::Duration;

use crate::quantity::{Unit, string_form};

const UNITS: &[Unit] = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A span of time. Written `"250 ms"`, with the units h, min, s, ms, us and ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeSpan(Duration);

string_form!(TimeSpan, UNITS, "a time span", "\"250 ms\"");

impl TimeSpan {
    /// The span `duration`.
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    /// The span to compute with.
    pub const fn get(self) -> Duration {
        self.0
    }

    const fn from_base(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    const fn base(self) -> u128 {
        self.0.as_nanos()
    }
}

impl From<Duration> for TimeSpan {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for (text, micros) in [
            ("250 ms", 250_000),
            ("3 s", 3_000_000),
            ("5 min", 300_000_000),
            ("1 h", 3_600_000_000),
            ("100 us", 100),
            ("90 s", 90_000_000),
        ] {
            let span = TimeSpan::new(Duration::from_micros(micros));
            assert_eq!(text.parse(), Ok(span));
            assert_eq!(span.to_string(), text);
        }
        assert_eq!(
            "0.25 s".parse::<TimeSpan>().unwrap().get(),
            Duration::from_millis(250)
        );
    }

    #[test]
    fn what_is_too_long_is_not_said_to_have_another_form() {
        let error = "99999999 h".parse::<TimeSpan>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`99999999 h` is more than a time span can be; choose less"
        );
        let error = "1.2.3 h".parse::<TimeSpan>().unwrap_err().to_string();
        assert!(error.contains("is not a time span"), "{error}");
    }

    #[test]
    fn a_bare_number_is_refused() {
        let error = "250".parse::<TimeSpan>().unwrap_err().to_string();
        assert!(
            error.starts_with("`250` is not a time span; write it as in \"250 ms\""),
            "{error}"
        );
    }
}
