//! Bytes on the link in a period: what they cost, and what happens when they are used up.
//!
//! Everything counts, attempts that nobody answered included, in both directions. The count outlives the process
//! (`usage.json`), and the engine itself stops at the byte where `at_cap = "stop"`; what is on its way then still comes.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config::{AtCap, ClientConfig, Metering, Period};
use crate::les::LesTraffic;
use crate::shard::Shard;
use crate::sle_traffic::SleTraffic;
use crate::status::{self, size};
use crate::{process, state};
use bentpipe_tunnel::engine::Engine;

const FILE: &str = "usage.json";
/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 4096;
/// The count is written at least this often while it grows, and not more often than the second while it grows fast.
const SAVE: Duration = Duration::from_secs(60);
const SAVE_SOON: Duration = Duration::from_secs(5);
/// Growth that is written soon: this, or a hundredth of the cap.
const MUCH: u64 = 1_000_000;
/// 2024-01-01: a machine without a clock starts long before, and the time is not known until it was set.
const PLAUSIBLE: Duration = Duration::from_secs(1_704_067_200);

/// Count of a period, as it is kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    period: Period,
    /// Days or months since 1970; the highest that has been seen.
    number: Option<u64>,
    /// The lowest that a clock has shown since it was set back below `number`.
    #[serde(default)]
    behind: Option<u64>,
    bytes: u64,
}

/// Counts the bytes of one period after another.
#[derive(Debug)]
struct Usage {
    saved: Saved,
    /// Bytes that had crossed in this run when `saved.bytes` was right.
    mark: u64,
}

impl Usage {
    fn new(period: Period, saved: Option<Saved>) -> Self {
        let known = saved.filter(|saved| saved.period == period && period != Period::Run);
        Self {
            saved: known.unwrap_or(Saved {
                period,
                number: None,
                behind: None,
                bytes: 0,
            }),
            mark: 0,
        }
    }

    /// Takes a look at the wall clock when `crossed` bytes have crossed in this run; true if a new period has begun.
    ///
    /// A clock that was set back begins none, nor does its correction: a router without a battery starts days behind at every
    /// boot. The end of a period by the clock as it stands does begin one, for the clock may have been set ahead before.
    fn look(&mut self, clock: Duration, crossed: u64) -> bool {
        let Some(number) = number(self.saved.period, clock) else {
            return false;
        };
        let known = *self.saved.number.get_or_insert(number);
        if number < known {
            let since = self.saved.behind.map_or(number, |since| since.min(number));
            self.saved.behind = Some(since);
            if number == since {
                return false;
            }
        } else if number == known {
            self.saved.behind = None;
            return false;
        }
        self.saved.number = Some(number);
        self.saved.behind = None;
        self.saved.bytes = 0;
        self.mark = crossed;
        true
    }

    /// Bytes used in this period.
    fn used(&self, crossed: u64) -> u64 {
        self.saved.bytes + crossed.saturating_sub(self.mark)
    }

    /// Parts of the kernel's state that are to be kept.
    fn to_save(&self, crossed: u64) -> Saved {
        Saved {
            bytes: self.used(crossed),
            ..self.saved
        }
    }
}

/// The period that contains this time since 1970; `None` if it has no number or the time cannot be right.
fn number(period: Period, clock: Duration) -> Option<u64> {
    if clock < PLAUSIBLE {
        return None;
    }
    let days = clock.as_secs() / 86_400;
    match period {
        Period::Run => None,
        Period::Day => Some(days),
        Period::Month => Some(month(days)),
    }
}

/// Months from January 1970 to the one that contains this day since 1970.
fn month(days: u64) -> u64 {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year - 1970) * 12 + month
}

/// Finding of a look at clock and count.
#[derive(Debug, Default)]
pub(super) struct MeterLook {
    /// A new period begins, and the bytes of the last were used up.
    pub(super) resumes: bool,
    /// The bytes are used up: nothing may cross any more, and this is what the operator hears.
    pub(super) stops: Option<String>,
}

/// The count, its file and what has come of it.
#[derive(Debug)]
pub(super) struct Meter {
    config: Metering,
    /// Flows that are sealed beside the tunnel.
    sealed: Option<Arc<SleTraffic>>,
    /// TCP that goes by LES.
    layered: Option<Rc<RefCell<LesTraffic>>>,
    usage: Usage,
    file: PathBuf,
    /// Time at which the count was last written, and its value.
    written: (Instant, u64),
    /// The cap is reached.
    used_up: bool,
    /// Writing has failed, and the operator has heard of it.
    complained: bool,
}

impl Meter {
    /// Reads the count of an earlier run, and grants the engine what is left.
    pub(super) fn load(
        config: &ClientConfig,
        shard: &Shard,
        (sealed, layered): (Option<Arc<SleTraffic>>, Option<Rc<RefCell<LesTraffic>>>),
    ) -> Self {
        let file = config.state_dir.join(FILE);
        let period = config.metering.period;
        let mut meter = Self {
            usage: Usage::new(period, read(&file)),
            config: config.metering,
            sealed,
            layered,
            file,
            written: (process::now(), 0),
            used_up: false,
            complained: false,
        };
        meter.usage.look(process::since_1970(), 0);
        meter.written.1 = meter.usage.used(0);
        meter.grant(shard);
        meter
    }

    /// True if nothing may cross any more.
    pub(super) fn is_halted(&self) -> bool {
        self.used_up && self.config.at_cap == AtCap::Stop
    }

    fn grant(&self, shard: &Shard) {
        let stops = self.config.at_cap == AtCap::Stop;
        let cap = self.config.cap.filter(|_| stops);
        shard.with(|engine| {
            let used = self.usage.used(engine.crossed() + self.crossed_beside());
            engine.allow(cap.map(|cap| cap.as_u64().saturating_sub(used)));
        });
    }

    fn is_kept(&self) -> bool {
        self.config.cap.is_some() && self.config.period != Period::Run
    }

    /// Writes the count.
    pub(super) fn save(&mut self, shard: &Shard) {
        if !self.is_kept() {
            return;
        }
        let count = self.usage.to_save(self.crossed(shard));
        self.written = (process::now(), count.bytes);
        let bytes = serde_json::to_vec(&count).expect("a count has string keys only");
        if let Err(error) = state::replace(&self.file, &bytes)
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::warn!(
                "cannot write {}: {error}: `cap` of [metering] counts anew after a restart; set `state_dir`",
                self.file.display()
            );
        }
    }

    fn save_in_time(&mut self, shard: &Shard) {
        let (at, before) = self.written;
        let grown = self.used(shard).saturating_sub(before);
        let much = MUCH.max(self.config.cap.map_or(0, |cap| cap.as_u64() / 100));
        let pause = if grown >= much { SAVE_SOON } else { SAVE };
        if grown > 0 && process::now() >= at + pause {
            self.save(shard);
        }
    }

    /// Bytes that have crossed the link in this run.
    fn crossed(&self, shard: &Shard) -> u64 {
        shard.peek(Engine::crossed) + self.crossed_beside()
    }

    /// Bytes among them that have crossed beside the tunnel.
    fn crossed_beside(&self) -> u64 {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.crossed());
        let layered = self.layered.as_ref();
        let layered = layered.map_or(0, |layered| layered.borrow().crossed());
        sealed + layered
    }

    fn used(&self, shard: &Shard) -> u64 {
        self.usage.used(self.crossed(shard))
    }

    /// Looks at clock and count; warns where the cap is reached and that is all that is asked for.
    pub(super) fn look(&mut self, shard: &Shard) -> MeterLook {
        let crossed = self.crossed(shard);
        if self.crossed_beside() > 0 {
            // Of this the engine does not know.
            self.grant(shard);
        }
        let mut look = MeterLook::default();
        if self.usage.look(process::since_1970(), crossed) {
            self.grant(shard);
            self.save(shard);
            look.resumes = std::mem::replace(&mut self.used_up, false);
        }
        let used = self.usage.used(crossed);
        let reached = self.config.cap.is_some_and(|cap| used >= cap.as_u64());
        if !reached || std::mem::replace(&mut self.used_up, true) {
            self.save_in_time(shard);
            return look;
        }
        self.save(shard);
        look.stops = self.on_used_up(used);
        look
    }

    /// Reason why nothing crosses any more, if that is to be.
    fn on_used_up(&self, used: u64) -> Option<String> {
        let (used, since, until) = match self.config.period {
            Period::Run => (
                size(used),
                "since the client started",
                "the client is restarted",
            ),
            Period::Day => (size(used), "today", "the next day begins (UTC)"),
            Period::Month => (size(used), "this month", "the next month begins (UTC)"),
        };
        match self.config.at_cap {
            AtCap::Warn => {
                tracing::warn!(
                    "{used} have crossed the link {since}: `cap` of [metering] is reached"
                );
                None
            }
            AtCap::Stop => Some(format!(
                "{used} have crossed the link {since}: `cap` of [metering] is reached; nothing crosses any more \
                 until {until}"
            )),
        }
    }

    /// The figures of `status`.
    pub(super) fn report(&self, shard: &Shard) -> Option<status::Metering> {
        let config = self.config;
        let used_bytes = self.used(shard);
        (config.cap.is_some() || config.price_per_mb.is_some()).then(|| status::Metering {
            period: config.period,
            used_bytes,
            cap_bytes: config.cap.map(|cap| cap.as_u64()),
            cost: config
                .price_per_mb
                .map(|price| used_bytes as f64 / 1e6 * price),
            used_up: self.used_up,
        })
    }
}

/// The count of an earlier run; one that cannot be read is none.
fn read(file: &std::path::Path) -> Option<Saved> {
    let bytes = match state::read(file, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(
                "{} is ignored: {error}: bytes are counted anew",
                file.display()
            );
            return None;
        }
    };
    serde_json::from_slice(&bytes)
        .inspect_err(|error| {
            tracing::warn!(
                "{} is ignored: {error}: bytes are counted anew",
                file.display()
            );
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: u64) -> Duration {
        Duration::from_secs(days * 86_400 + 3600)
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
            assert_eq!(month(days), expected, "{days}");
        }
    }

    #[test]
    fn a_count_outlives_restarts_and_ends_with_its_period() {
        let mut usage = Usage::new(Period::Month, None);
        assert!(!usage.look(at(20_782), 0));
        assert_eq!(usage.used(1000), 1000);
        let saved = usage.to_save(1000);
        let mut usage = Usage::new(Period::Month, Some(saved));
        assert!(!usage.look(at(20_787), 0), "still November");
        assert_eq!(usage.used(500), 1500);
        assert!(usage.look(at(20_788), 600), "December");
        assert_eq!(usage.used(700), 100);
        assert_eq!(
            Usage::new(Period::Day, Some(saved)).used(0),
            0,
            "another period"
        );
        assert_eq!(Usage::new(Period::Run, Some(saved)).used(7), 7);
    }

    #[test]
    fn a_wrong_clock_frees_no_bytes() {
        let saved = Saved {
            period: Period::Day,
            number: Some(20_782),
            behind: None,
            bytes: 900,
        };
        let mut usage = Usage::new(Period::Day, Some(saved));
        assert!(!usage.look(at(0), 50), "1970: not set yet");
        assert!(!usage.look(at(20_780), 50), "set back");
        assert_eq!(usage.used(50), 950);
        assert!(!usage.look(at(20_782), 50), "and put right");
        assert_eq!(usage.used(50), 950);
        let mut restarted = Usage::new(Period::Day, Some(usage.to_save(50)));
        assert!(!restarted.look(at(20_780), 0), "behind after a restart");
        let mut restarted = Usage::new(Period::Day, Some(restarted.to_save(0)));
        assert!(!restarted.look(at(20_780), 0), "and after another");
        assert!(restarted.look(at(20_781), 60), "the next day after that");
        assert_eq!(restarted.used(70), 10);
        assert!(restarted.look(at(20_783), 80), "another day");
    }
}
