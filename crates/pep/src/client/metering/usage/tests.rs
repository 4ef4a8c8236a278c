//! Counts of periods by clocks that are right, wrong, and put right.

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
        waited: 0,
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

/// A clock that only NTP through the tunnel would set stays wrong while nothing may cross.
#[test]
fn a_period_ends_with_its_time_if_no_clock_tells() {
    const HOUR: Duration = Duration::from_hours(1);
    let saved = saved_after(Some((20_781, 800)));
    for wrong in [at(0), at(20_000)] {
        let mut usage = Usage::new(Period::Day, MonthDay::FIRST, Some(saved));
        for hour in 0..20 {
            assert!(
                !usage.look(wrong, 50) && !usage.on_elapsed(HOUR, 50),
                "{hour}"
            );
        }
        assert!(usage.waits());
        // Most of a day, and then it was switched off for the night.
        let mut usage = Usage::new(Period::Day, MonthDay::FIRST, Some(usage.to_save(50)));
        for hour in 20..23 {
            assert!(
                !usage.look(wrong, 10) && !usage.on_elapsed(HOUR, 10),
                "{hour}"
            );
        }
        assert!(!usage.look(wrong, 10) && usage.on_elapsed(HOUR, 10));
        assert_eq!(usage.used(15), 5);
        assert!(
            !usage.look(wrong, 20) && !usage.on_elapsed(HOUR, 20),
            "once"
        );
        // The clock is set: nothing is counted twice, and nothing is forgotten that the new period has used.
        assert!(!usage.look(at(20_783), 30) && !usage.on_elapsed(HOUR, 30));
        assert_eq!(usage.used(30), 20);
        assert!(!usage.waits());
        assert!(usage.look(at(20_784), 40));
    }
    let mut usage = Usage::new(Period::Run, MonthDay::FIRST, None);
    assert!(!usage.look(at(0), 0) && !usage.on_elapsed(1000 * HOUR, 0));
    assert!(!usage.waits());
}
