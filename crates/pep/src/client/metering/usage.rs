//! Count of bytes in one period after another: pure, the time by the wall clock is an argument, and so is that for which the client runs.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

use crate::config::{MonthDay, Period};
use crate::process::PLAUSIBLE;

/// Count of a period, as it is kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    period: Period,
    /// Day on which a month begins.
    #[serde(default)]
    begins: MonthDay,
    /// Days or months since 1970; the highest that has been seen.
    number: Option<u64>,
    /// The lowest that a clock has shown since it was set back below `number`.
    #[serde(default)]
    behind: Option<u64>,
    bytes: u64,
    /// The period before, and its bytes.
    #[serde(default)]
    before: Option<(u64, u64)>,
    /// The clock was put back into the period before: its bytes count as well.
    #[serde(default)]
    carries: bool,
    /// Seconds for which a client has run while no clock told when the period ends.
    #[serde(default)]
    waited: u64,
}

impl Saved {
    /// Bytes of the period.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Counts the bytes of one period after another.
#[derive(Debug)]
pub(super) struct Usage {
    saved: Saved,
    /// Bytes that had crossed in this run when `saved.bytes` was right.
    mark: u64,
    /// Little is left of this period, and that has been said.
    warned: bool,
    /// The period that the clock has shown last in this run.
    shown: Option<u64>,
    news: Option<ClockNews>,
    /// True once the log has said that the clock is not set.
    unset: bool,
    /// The clock does not tell when the period ends: it is not set, or stands before the period.
    wrong: bool,
    /// Time for which it has not, in this run and those before.
    waited: Duration,
}

/// Something about the clock that bears on the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockNews {
    /// The clock shows a time long past: no period begins until it is set.
    Unset,
    /// The clock stands before the period of the count, which goes on.
    Behind,
    /// The clock was put back to an earlier period of which these bytes are known; they count as well.
    PutBack(u64),
    /// The clock shows the period of the count again: bytes of an earlier one count no longer.
    Right,
}

impl Usage {
    /// Goes on from what an earlier run has saved, if that was of such periods.
    pub(super) fn new(period: Period, begins: MonthDay, saved: Option<Saved>) -> Self {
        let known = saved.filter(|saved| saved.period == period && period != Period::Run);
        // Numbers of other months say nothing of these; their bytes stay until one of these begins.
        let bytes = known.map_or(0, |saved| saved.bytes);
        let same = known.filter(|saved| saved.begins == begins);
        Self {
            saved: same.unwrap_or(Saved {
                period,
                begins,
                number: None,
                behind: None,
                bytes,
                before: None,
                carries: false,
                waited: 0,
            }),
            mark: 0,
            warned: false,
            shown: None,
            news: None,
            unset: false,
            wrong: false,
            waited: Duration::from_secs(same.map_or(0, |saved| saved.waited)),
        }
    }

    /// Takes a look at the wall clock when `crossed` bytes have crossed in this run; true if a new period has begun.
    ///
    /// A clock that was set back begins none, nor does its correction: a router without a battery starts days behind at every
    /// boot. The end of a period by the clock as it stands does begin one, for the clock may have been set ahead before. Where that is
    /// seen to be put right, the bytes of the period that the clock is back in count again, beside those since.
    pub(super) fn look(&mut self, clock: Duration, crossed: u64) -> bool {
        let Some(number) = number(self.saved.period, self.saved.begins, clock) else {
            let unset = self.saved.period != Period::Run && !self.unset;
            self.news = unset.then_some(ClockNews::Unset).or(self.news);
            self.unset |= unset;
            self.wrong = true;
            return false;
        };
        let shown = self.shown.replace(number);
        let known = *self.saved.number.get_or_insert(number);
        self.wrong = number < known;
        if number < known {
            if self.saved.behind.is_none() || shown.is_some_and(|shown| shown > number) {
                self.put_back(number, shown.is_some_and(|shown| shown > number));
            }
            let since = self.saved.behind.map_or(number, |since| since.min(number));
            self.saved.behind = Some(since);
            if number == since {
                return false;
            }
        } else if number == known {
            self.saved.behind = None;
            if std::mem::take(&mut self.saved.carries) {
                self.news = Some(ClockNews::Right);
            }
            return false;
        }
        // Of one that the clock was set ahead to, there is no end.
        let ended = number > known;
        self.saved.before = ended.then(|| (known, self.used(crossed)));
        self.saved.number = Some(number);
        self.saved.behind = None;
        self.wrong = false;
        self.begin(crossed);
        true
    }

    /// Notes that the client has run for `elapsed` since the last look; true if a new period has begun.
    ///
    /// While the clock does not tell when a period ends, the client's own time does: a clock that only NTP through the tunnel would set
    /// stays wrong for as long as nothing may cross. By then a later period has begun, whichever it is.
    pub(super) fn on_elapsed(&mut self, elapsed: Duration, crossed: u64) -> bool {
        if !self.wrong {
            self.waited = Duration::ZERO;
            return false;
        }
        self.waited += elapsed;
        if longest(self.saved.period).is_none_or(|longest| self.waited < longest) {
            return false;
        }
        self.saved.number = self.saved.number.map(|number| number + 1);
        self.saved.before = None;
        self.begin(crossed);
        true
    }

    /// True while the end of the period is not told by the clock.
    pub(super) fn waits(&self) -> bool {
        self.wrong && self.saved.period != Period::Run
    }

    fn begin(&mut self, crossed: u64) {
        self.saved.carries = false;
        self.saved.bytes = 0;
        self.mark = crossed;
        self.warned = false;
        self.waited = Duration::ZERO;
    }

    /// The clock stands at `number`, before the period of the count; `seen` if it was put back in this run. At a start a clock without
    /// a battery is likelier.
    fn put_back(&mut self, number: u64, seen: bool) {
        let earlier = self.saved.before.filter(|(before, _)| *before >= number);
        self.news = Some(match earlier {
            Some((_, bytes)) if seen => {
                self.saved.carries = true;
                ClockNews::PutBack(bytes)
            }
            _ => ClockNews::Behind,
        });
    }

    /// News of the clock that nobody has taken yet.
    pub(super) fn news(&mut self) -> Option<ClockNews> {
        self.news.take()
    }

    /// Bytes that are left of `cap`, once in a period: when the last tenth is begun.
    pub(super) fn last_tenth(&mut self, crossed: u64, cap: u64) -> Option<u64> {
        let left = cap.checked_sub(self.used(crossed))?;
        let little = left > 0 && left <= cap / 10;
        (little && !std::mem::replace(&mut self.warned, true)).then_some(left)
    }

    /// Bytes used in this period.
    pub(super) fn used(&self, crossed: u64) -> u64 {
        let carried = self.saved.before.filter(|_| self.saved.carries);
        let carried = carried.map_or(0, |(_, bytes)| bytes);
        self.counted(crossed).saturating_add(carried)
    }

    /// Bytes since the period of the count began.
    fn counted(&self, crossed: u64) -> u64 {
        self.saved.bytes + crossed.saturating_sub(self.mark)
    }

    /// Count that the next run goes on from.
    pub(super) fn to_save(&self, crossed: u64) -> Saved {
        Saved {
            bytes: self.counted(crossed),
            waited: self.waited.as_secs(),
            ..self.saved
        }
    }
}

/// Length of the longest of such periods.
fn longest(period: Period) -> Option<Duration> {
    match period {
        Period::Run => None,
        Period::Day => Some(Duration::from_hours(24)),
        Period::Month => Some(Duration::from_hours(31 * 24)),
    }
}

/// The period that contains this time since 1970; `None` if it has no number or the time cannot be right.
fn number(period: Period, begins: MonthDay, clock: Duration) -> Option<u64> {
    if clock < PLAUSIBLE {
        return None;
    }
    match period {
        Period::Run => None,
        Period::Day => Some(clock.as_secs() / 86_400),
        Period::Month => month(clock, begins),
    }
}

/// Months of a provider since that of January 1970, at this time since 1970: each begins on the day `begins`, in UTC.
fn month(clock: Duration, begins: MonthDay) -> Option<u64> {
    let seconds = i64::try_from(clock.as_secs()).ok()?;
    let date = Offset::UTC.to_datetime(Timestamp::from_second(seconds).ok()?);
    let months = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1;
    let begun = date.day() >= begins.day();
    u64::try_from(if begun { months } else { months - 1 }).ok()
}

#[cfg(test)]
mod tests;
