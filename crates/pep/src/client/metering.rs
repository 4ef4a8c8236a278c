//! Bytes on the link in a period: what they cost, and what happens when they are used up.
//!
//! Everything counts, attempts that nobody answered included, in both directions. The count outlives the process
//! (`usage.json`), and the engine itself sends no other batch once the cap is reached where `at_cap = "stop"`; what is on its way then still comes.

mod usage;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::complaint::LastingFault;
use crate::config::{AtCap, ClientConfig, Metering, Period};
use crate::les::LesTraffic;
use crate::shard::Shard;
use crate::sle_traffic::SleTraffic;
use crate::status::{self, size};
use crate::{process, state};
use bentpipe_tunnel::engine::Engine;
use usage::{ClockNews, Saved, Usage};

const FILE: &str = "usage.json";
/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 4096;
/// The count is written at least this often while it grows, and not more often than the second while it grows fast.
const SAVE: Duration = Duration::from_secs(60);
const SAVE_SOON: Duration = Duration::from_secs(5);
/// While the clock does not tell when the period ends, the time that has passed is written this often.
const SAVE_TIME: Duration = Duration::from_hours(1);
/// Growth that is written soon: this, or a hundredth of the cap.
const MUCH: u64 = 1_000_000;

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
    /// Instant of the last look.
    looked: Instant,
    /// The cap is reached.
    used_up: bool,
    /// Reason why the count cannot be written.
    fault: LastingFault,
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
            usage: Usage::new(period, config.metering.month_begins, read(&file)),
            config: config.metering,
            sealed,
            layered,
            file,
            written: (process::now(), 0),
            looked: process::now(),
            used_up: false,
            fault: LastingFault::none(),
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
        self.written = (process::now(), count.bytes());
        let bytes = serde_json::to_vec(&count).expect("a count has string keys only");
        let file = self.file.display();
        match state::replace(&self.file, &bytes) {
            Ok(()) if self.fault.is_over() => tracing::info!("{file} is written again"),
            Err(error)
                if self.fault.is_news(&error)
                    && !state::is_lost(bentpipe_config::directory(&self.file)) =>
            {
                tracing::warn!(
                    "cannot write {file}: {error}: `cap` of [metering] counts anew after a restart; make room, or set `state_dir`"
                );
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn save_in_time(&mut self, shard: &Shard) {
        let (at, before) = self.written;
        let grown = self.used(shard).saturating_sub(before);
        let much = MUCH.max(self.config.cap.map_or(0, |cap| cap.as_u64() / 100));
        let pause = if grown >= much { SAVE_SOON } else { SAVE };
        let now = process::now();
        if grown > 0 && now >= at + pause || self.usage.waits() && now >= at + SAVE_TIME {
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
        let now = process::now();
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        let begins = self.usage.look(process::since_1970(), crossed);
        if self.usage.on_elapsed(elapsed, crossed) || begins {
            self.grant(shard);
            self.save(shard);
            look.resumes = std::mem::replace(&mut self.used_up, false);
        }
        let used = self.usage.used(crossed);
        if let Some(news) = self.usage.news() {
            self.grant(shard);
            self.tell_of_clock(news);
            let below = self.config.cap.is_some_and(|cap| used < cap.as_u64());
            look.resumes |= below && std::mem::replace(&mut self.used_up, false);
        }
        self.warn_in_time(crossed);
        let reached = self.config.cap.is_some_and(|cap| used >= cap.as_u64());
        if !reached || std::mem::replace(&mut self.used_up, true) {
            self.save_in_time(shard);
            return look;
        }
        self.save(shard);
        look.stops = self.on_used_up(used);
        look
    }

    /// Says what was decided where the clock cannot be right, or was not.
    fn tell_of_clock(&self, news: ClockNews) {
        if self.config.cap.is_none() {
            return;
        }
        match news {
            ClockNews::Unset => tracing::warn!(
                "the clock is not set, it shows a time before 2024: bytes of [metering] go on in the period that was counted last, until the \
                 client has run for as long as one"
            ),
            ClockNews::Behind => tracing::warn!(
                "the clock stands before the period that [metering] counts: the count goes on, and the next period begins when the clock \
                 reaches one; set the clock if it is wrong"
            ),
            ClockNews::PutBack(bytes) => tracing::warn!(
                "the clock was ahead and was put back: the {} of the period that it is back in count again, beside what has crossed since",
                size(bytes)
            ),
            ClockNews::Right => tracing::info!(
                "the clock shows the period that [metering] counts again: bytes of an earlier one count no longer"
            ),
        }
    }

    /// Says once in a period that little is left of it.
    fn warn_in_time(&mut self, crossed: u64) {
        let Some(cap) = self.config.cap.map(|cap| cap.as_u64()) else {
            return;
        };
        if let Some(left) = self.usage.last_tenth(crossed, cap) {
            let (since, until) = self.period();
            tracing::warn!(
                "{} of {} have crossed the link {since}: {} are left until {until}",
                size(cap - left),
                size(cap),
                size(left)
            );
        }
    }

    /// Words for the period: since when bytes are counted, and until when.
    fn period(&self) -> (&'static str, String) {
        match (self.config.period, self.config.month_begins.day()) {
            (Period::Run, _) => ("since the client started", "the client is restarted".into()),
            (Period::Day, _) => ("today", "the next day begins (UTC)".into()),
            (Period::Month, 1) => ("this month", "the next month begins (UTC)".into()),
            (Period::Month, day) => ("this month", format!("day {day} of the month begins (UTC)")),
        }
    }

    /// Reason why nothing crosses any more, if that is to be.
    fn on_used_up(&self, used: u64) -> Option<String> {
        let (used, (since, until)) = (size(used), self.period());
        match self.config.at_cap {
            AtCap::Warn => {
                tracing::warn!(
                    "{used} have crossed the link {since}: `cap` of [metering] is reached"
                );
                None
            }
            AtCap::Stop => Some(format!(
                "{used} have crossed the link {since}: `cap` of [metering] is reached; nothing crosses any more \
                 until {until}{}",
                unset()
            )),
        }
    }

    /// Words for `status` while the count cannot be written.
    fn unwritten(&self) -> Option<String> {
        let file = self.file.display();
        let fault = self.fault.text()?;
        Some(format!("{file} cannot be written ({fault})"))
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
            fault: self.unwritten(),
        })
    }
}

/// Words for a clock that is not set where NTP may not cross.
fn unset() -> &'static str {
    match process::clock() {
        Ok(_) => "",
        Err(_) => "; the clock is not set: set it by hand, unless NTP goes past the tunnel",
    }
}

/// The count of an earlier run; one that cannot be read is none.
fn read(file: &std::path::Path) -> Option<Saved> {
    let bytes = match state::read(file, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) if state::is_lost(bentpipe_config::directory(file)) => return None,
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
