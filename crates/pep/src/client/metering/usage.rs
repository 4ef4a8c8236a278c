//! Count of bytes in one period after another: pure, the time by the wall clock is an argument.

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
            }),
            mark: 0,
            warned: false,
            shown: None,
            news: None,
            unset: false,
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
            return false;
        };
        let shown = self.shown.replace(number);
        let known = *self.saved.number.get_or_insert(number);
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
        self.saved.carries = false;
        self.saved.bytes = 0;
        self.mark = crossed;
        self.warned = false;
        true
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
            ..self.saved
        }
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
mod tests {
    use super::*;

    fn at(days: u64) -> Duration {
        Duration::from_secs(days * 86_400 + 3600)
    }

    /// 900 bytes of day 20,782, after a day of so many.
    fn saved_after(before: Option<(u64, u64)>) -> Saved {
        Saved {
            period: Period::Day,
            begins: MonthDay::FIRST,
            number: Some(20_782),
            behind: None,
            bytes: 900,
            before,
            carries: false,
        }
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        // 1970-01-31, 1970-02-01, 1972-02-29, 1972-03-01, 2000-02-29, 2026-11-25, 2026-12-01.
        for (days, expected) in [
            (30, 0),
            (31, 1),
            (789, 25),
            (790, 26),
            (11_016, 361),
            (20_782, 682),
            (20_788, 683),
        ] {
            assert_eq!(month(at(days), MonthDay::FIRST), Some(expected), "{days}");
        }
    }

    #[test]
    fn a_month_of_a_provider_begins_on_its_day() {
        let fifteenth = MonthDay::new(15).unwrap();
        // 2026-11-14, 2026-11-15, 2026-12-14, 2026-12-15, 2027-01-01, 2027-01-15.
        for (days, expected) in [
            (20_771, 681),
            (20_772, 682),
            (20_801, 682),
            (20_802, 683),
            (20_819, 683),
            (20_833, 684),
        ] {
            assert_eq!(month(at(days), fifteenth), Some(expected), "{days}");
        }
    }

    #[test]
    fn another_day_of_the_month_keeps_the_bytes_until_it_comes() {
        let mut usage = Usage::new(Period::Month, MonthDay::FIRST, None);
        usage.look(at(20_767), 0);
        let saved = usage.to_save(1000);
        let mut usage = Usage::new(Period::Month, MonthDay::new(15).unwrap(), Some(saved));
        assert!(!usage.look(at(20_768), 0), "2026-11-11");
        assert_eq!(usage.used(10), 1010);
        assert!(usage.look(at(20_772), 20), "2026-11-15");
        assert_eq!(usage.used(30), 10);
    }

    #[test]
    fn the_last_tenth_is_told_once_in_a_period() {
        let mut usage = Usage::new(Period::Day, MonthDay::FIRST, None);
        assert!(!usage.look(at(20_782), 0));
        assert_eq!(usage.last_tenth(899, 1000), None);
        assert_eq!(usage.last_tenth(950, 1000), Some(50));
        assert_eq!(usage.last_tenth(960, 1000), None, "said already");
        assert!(usage.look(at(20_783), 1000));
        assert_eq!(usage.last_tenth(1000 + 900, 1000), Some(100));
        let mut usage = Usage::new(Period::Run, MonthDay::FIRST, None);
        assert_eq!(usage.last_tenth(1000, 1000), None, "nothing is left");
    }

    #[test]
    fn a_count_outlives_restarts_and_ends_with_its_period() {
        let mut usage = Usage::new(Period::Month, MonthDay::FIRST, None);
        assert!(!usage.look(at(20_782), 0));
        assert_eq!(usage.used(1000), 1000);
        let saved = usage.to_save(1000);
        let mut usage = Usage::new(Period::Month, MonthDay::FIRST, Some(saved));
        assert!(!usage.look(at(20_787), 0), "still November");
        assert_eq!(usage.used(500), 1500);
        assert!(usage.look(at(20_788), 600), "December");
        assert_eq!(usage.used(700), 100);
        assert_eq!(
            Usage::new(Period::Day, MonthDay::FIRST, Some(saved)).used(0),
            0,
            "another period"
        );
        assert_eq!(
            Usage::new(Period::Run, MonthDay::FIRST, Some(saved)).used(7),
            7
        );
    }

    #[test]
    fn a_wrong_clock_frees_no_bytes() {
        let saved = saved_after(None);
        let mut usage = Usage::new(Period::Day, MonthDay::FIRST, Some(saved));
        assert!(!usage.look(at(0), 50), "1970: not set yet");
        assert!(!usage.look(at(20_780), 50), "set back");
        assert_eq!(usage.used(50), 950);
        assert!(!usage.look(at(20_782), 50), "and put right");
        assert_eq!(usage.used(50), 950);
        let mut restarted = Usage::new(Period::Day, MonthDay::FIRST, Some(usage.to_save(50)));
        assert!(!restarted.look(at(20_780), 0), "behind after a restart");
        let mut restarted = Usage::new(Period::Day, MonthDay::FIRST, Some(restarted.to_save(0)));
        assert!(!restarted.look(at(20_780), 0), "and after another");
        assert!(restarted.look(at(20_781), 60), "the next day after that");
        assert_eq!(restarted.used(70), 10);
        assert!(restarted.look(at(20_783), 80), "another day");
    }

    #[test]
    fn a_clock_that_was_ahead_loses_no_bytes_and_blocks_no_period() {
        let mut usage = Usage::new(Period::Month, MonthDay::FIRST, None);
        assert!(!usage.look(at(20_782), 0), "November");
        assert!(usage.look(at(21_200), 900), "a clock a year ahead");
        assert_eq!((usage.used(950), usage.news()), (50, None));
        assert!(!usage.look(at(20_782), 950), "put right");
        assert_eq!(usage.news(), Some(ClockNews::PutBack(900)));
        assert_eq!(usage.used(950), 950, "November's bytes are not lost");
        assert!(!usage.look(at(20_783), 950));
        assert_eq!(usage.news(), None, "it is said once");
        let mut usage = Usage::new(Period::Month, MonthDay::FIRST, Some(usage.to_save(950)));
        assert!(!usage.look(at(20_784), 0), "nor by a restart");
        assert_eq!(usage.used(50), 1000);
        assert!(
            usage.look(at(20_788), 50),
            "December, long before the year that the clock showed"
        );
        assert_eq!(usage.used(60), 10);
    }

    #[test]
    fn a_clock_that_goes_back_and_forth_counts_each_byte_once() {
        let mut usage = Usage::new(Period::Day, MonthDay::FIRST, None);
        usage.look(at(20_782), 0);
        assert!(usage.look(at(20_783), 900));
        assert!(!usage.look(at(20_781), 950), "a leap back for a moment");
        assert_eq!(usage.used(950), 950);
        assert!(!usage.look(at(20_783), 960));
        assert_eq!(usage.used(960), 60, "today's alone again");
        assert_eq!(
            usage.news(),
            Some(ClockNews::Right),
            "what may cross is more"
        );
    }

    #[test]
    fn a_clock_that_is_not_set_is_told_once() {
        let saved = saved_after(Some((20_781, 800)));
        let mut usage = Usage::new(Period::Day, MonthDay::FIRST, Some(saved));
        assert!(!usage.look(at(0), 10) && !usage.look(at(0), 20));
        assert_eq!(usage.news(), Some(ClockNews::Unset));
        assert!(
            !usage.look(at(20_781), 30),
            "a day behind, as at every start"
        );
        assert_eq!(usage.news(), Some(ClockNews::Behind));
        assert_eq!(usage.used(30), 930, "nothing of the day before counts");
        assert!(!usage.look(at(20_782), 40));
        assert_eq!((usage.used(40), usage.news()), (940, None));
    }
}
