//! `[metering]`: what the bytes on the link cost, and how many there may be.

use bentpipe_config::Source;
use bentpipe_units::ByteCount;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::ConfigError;

/// Price of bytes on the link, both directions together, IP packets whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metering {
    /// Price of a megabyte (10⁶ bytes), in whatever currency.
    pub price_per_mb: Option<f64>,
    /// Bytes that may be used in a period.
    pub cap: Option<ByteCount>,
    /// Period that is counted as one.
    #[serde(default)]
    pub period: Period,
    /// Day on which a month begins.
    #[serde(default)]
    pub month_begins: MonthDay,
    /// Action at the cap.
    #[serde(default)]
    pub at_cap: AtCap,
}

/// Span of time for which bytes are counted; days and months are those of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// From the client's start to its end.
    Run,
    /// A day, over restarts of the client.
    Day,
    /// A calendar month, over restarts of the client.
    #[default]
    Month,
}

/// Day that every month has, 1 to 28, on which a provider's month begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i8")]
pub struct MonthDay(i8);

impl MonthDay {
    /// The calendar's month.
    pub const FIRST: Self = Self(1);

    /// The day, if every month has it.
    #[must_use]
    pub fn new(day: i8) -> Option<Self> {
        (1..=28).contains(&day).then_some(Self(day))
    }

    /// Number of the day.
    #[must_use]
    pub fn day(self) -> i8 {
        self.0
    }
}

impl Default for MonthDay {
    fn default() -> Self {
        Self::FIRST
    }
}

impl TryFrom<i64> for MonthDay {
    type Error = &'static str;

    fn try_from(day: i64) -> Result<Self, Self::Error> {
        let day = i8::try_from(day).ok().and_then(Self::new);
        day.ok_or("expected a day that every month has, 1 to 28")
    }
}

impl From<MonthDay> for i8 {
    fn from(day: MonthDay) -> Self {
        day.0
    }
}

/// Action of a client whose bytes are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtCap {
    /// Says so and goes on.
    #[default]
    Warn,
    /// Ends the tunnel and opens no other; what is intercepted is refused, nothing leaves in clear.
    Stop,
}

/// The table as written, with sensible figures.
pub(super) fn checked(
    source: &Source,
    written: Option<Spanned<Metering>>,
) -> Result<Metering, ConfigError> {
    let Some(written) = written else {
        return Ok(Metering::default());
    };
    let table = *written.get_ref();
    let fault = |key: &str, text: &str| Err(source.error_at_key(&format!("metering.{key}"), text));
    if table
        .price_per_mb
        .is_some_and(|price| !(price.is_finite() && price >= 0.0))
    {
        return fault(
            "price_per_mb",
            "`price_per_mb` is no price; expected a number from 0 on, such as 0.35",
        );
    }
    if table.cap == Some(ByteCount::new(0)) {
        return fault("cap", "`cap` is 0; choose a size, such as \"10 GB\"");
    }
    if table.month_begins != MonthDay::FIRST && table.period != Period::Month {
        return fault(
            "month_begins",
            "`month_begins` is for `period = \"month\"` alone",
        );
    }
    if table.at_cap == AtCap::Stop && table.cap.is_none() {
        return fault(
            "at_cap",
            "`at_cap = \"stop\"` needs a `cap`, such as \"10 GB\"",
        );
    }
    Ok(table)
}
