//! Messages to the service manager that started the daemon, by the protocol of sd_notify(3).
//!
//! ```text
//!   drivers of shards ──turns──► Watch ──WATCHDOG=1────────────────────► $NOTIFY_SOCKET
//!   client, server ──READY=1, RELOADING=1, STOPPING=1, STATUS=health──►
//! ```
//!
//! Nothing is sent where `$NOTIFY_SOCKET` is not set.

use std::cell::Cell;
use std::env;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::time::interval;

use crate::process;
use crate::shard::PulseView;
use crate::status::StatusReport;

/// Longest time from one look at shards and health to the next.
const LOOK: Duration = Duration::from_secs(5);

/// Looks within the time that the watchdog allows.
const LOOKS_PER_WATCHDOG: u32 = 4;

/// Time that the service manager is to wait beyond the end of open flows, for rules and sockets to be removed.
const REMOVAL: Duration = Duration::from_secs(15);

/// Whoever started this process and wants to hear of it.
pub(crate) struct ServiceManager {
    /// True if there is one.
    present: bool,
    /// Time within which it wants a sign of life.
    watchdog: Option<Duration>,
    /// The log was told that it cannot be reached.
    complained: Cell<bool>,
}

impl ServiceManager {
    /// The one that the environment names, if any.
    pub(crate) fn find() -> Self {
        Self {
            present: env::var_os("NOTIFY_SOCKET").is_some(),
            watchdog: sd_notify::watchdog_enabled(),
            complained: Cell::new(false),
        }
    }

    /// Says that the daemon serves.
    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// Says that the configuration is being read again; [`Self::ready`] ends that.
    pub(crate) fn reloading(&self) {
        if !self.present {
            return;
        }
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(error) => self.complain(&error),
        }
    }

    /// Says that the daemon ends, and that open flows have `drain` to do so.
    pub(crate) fn stopping(&self, drain: Duration) {
        let patience = (drain + REMOVAL).as_micros();
        let patience = u32::try_from(patience).unwrap_or(u32::MAX);
        self.tell(&[
            NotifyState::Stopping,
            NotifyState::Status("stopping: open flows are coming to their end"),
            NotifyState::ExtendTimeoutUsec(patience),
        ]);
    }

    /// Tells how the daemon fares, and feeds the watchdog while all shards run; never ends. A daemon without shards has one
    /// thread, and whoever runs this runs it.
    pub(crate) async fn inform(&self, shards: &[PulseView], status: impl Fn() -> StatusReport) {
        if !self.present {
            return std::future::pending().await;
        }
        let period = self.watchdog.map(|time| time / LOOKS_PER_WATCHDOG);
        let period = period.map_or(LOOK, |period| period.clamp(Duration::from_millis(1), LOOK));
        let mut tick = interval(period);
        let mut watch = Watch::new(process::now(), self.watchdog.unwrap_or(Duration::MAX) / 2);
        let mut said = String::new();
        loop {
            tick.tick().await;
            let turns: Vec<_> = shards.iter().map(PulseView::turns).collect();
            match watch.look(process::now(), &turns) {
                ShardHealth::AllRun if self.watchdog.is_some() => {
                    self.tell(&[NotifyState::Watchdog]);
                }
                ShardHealth::AllRun | ShardHealth::TooEarly => {}
                ShardHealth::Stuck(shard) => tracing::error!(
                    "internal error: shard {shard} has stood still for {:?}; the watchdog will end the process",
                    watch.patience
                ),
            }
            let health = status().health().unwrap_or_else(|fault| fault);
            if health != said {
                self.tell(&[NotifyState::Status(&health)]);
                said = health;
            }
        }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.present
            && let Err(error) = sd_notify::notify(states)
        {
            self.complain(&error);
        }
    }

    /// Says once that the socket does not work: the service manager will say the rest.
    fn complain(&self, error: &std::io::Error) {
        if !self.complained.replace(true) {
            tracing::warn!("cannot reach the service manager at $NOTIFY_SOCKET: {error}");
        }
    }
}

/// Decision whether all shards have run since they were last seen to.
struct Watch {
    /// Time without a turn after which a shard is called stuck.
    patience: Duration,
    /// Turns when all had run, and when that was.
    seen: (Instant, Vec<Option<u64>>),
    /// True if a stuck shard was named since.
    named: bool,
}

/// Result of one look at the shards.
#[derive(Debug, PartialEq, Eq)]
enum ShardHealth {
    /// Each shard has taken a turn since the last time that all had.
    AllRun,
    /// Some shard has not yet.
    TooEarly,
    /// The shard of this number has not for longer than is normal. Said once.
    Stuck(usize),
}

impl Watch {
    fn new(now: Instant, patience: Duration) -> Self {
        Self {
            patience,
            seen: (now, Vec::new()),
            named: false,
        }
    }

    /// Compares the shards' `turns` with those of the last time that all had run; `None` is a shard that has ended.
    fn look(&mut self, now: Instant, turns: &[Option<u64>]) -> ShardHealth {
        let (since, before) = &self.seen;
        let stands = |(index, now): (usize, &Option<u64>)| {
            let before = before.get(index).copied().flatten();
            (now.is_some() && *now == before).then_some(index)
        };
        match turns.iter().enumerate().find_map(stands) {
            None => {
                self.seen = (now, turns.to_vec());
                self.named = false;
                ShardHealth::AllRun
            }
            Some(shard) if now.saturating_duration_since(*since) > self.patience && !self.named => {
                self.named = true;
                ShardHealth::Stuck(shard)
            }
            Some(_) => ShardHealth::TooEarly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time within which the service manager of these tests wants a sign of life, halved.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn one_shard_that_stands_still_is_enough_to_starve_the_watchdog() {
        let start = process::now();
        let mut watch = Watch::new(start, PATIENCE);
        let mut look = |at, turns: [Option<u64>; 2]| watch.look(start + second(at), &turns);
        assert_eq!(look(0, [Some(1), Some(7)]), ShardHealth::AllRun);
        assert_eq!(look(5, [Some(2), Some(8)]), ShardHealth::AllRun);
        assert_eq!(look(10, [Some(3), Some(8)]), ShardHealth::TooEarly);
        // Turns that were taken meanwhile count.
        assert_eq!(look(15, [Some(3), Some(9)]), ShardHealth::AllRun);
        assert_eq!(look(20, [Some(4), Some(9)]), ShardHealth::TooEarly);
        assert_eq!(look(26, [Some(5), Some(9)]), ShardHealth::Stuck(1));
        assert_eq!(
            look(27, [Some(6), Some(9)]),
            ShardHealth::TooEarly,
            "said once"
        );
        assert_eq!(look(28, [Some(7), Some(10)]), ShardHealth::AllRun);
    }

    #[test]
    fn a_shard_that_has_ended_is_not_waited_for() {
        let start = process::now();
        let mut watch = Watch::new(start, PATIENCE);
        let mut look = |at, turns: [Option<u64>; 2]| watch.look(start + second(at), &turns);
        assert_eq!(look(0, [Some(1), Some(7)]), ShardHealth::AllRun);
        assert_eq!(look(5, [None, Some(8)]), ShardHealth::AllRun);
        assert_eq!(look(10, [None, Some(9)]), ShardHealth::AllRun);
        assert_eq!(look(15, [None, Some(9)]), ShardHealth::TooEarly);
        assert_eq!(look(20, [None, None]), ShardHealth::AllRun);
    }

    #[test]
    fn a_daemon_of_one_thread_proves_it_by_looking() {
        let start = process::now();
        let mut watch = Watch::new(start, PATIENCE);
        assert_eq!(watch.look(start, &[]), ShardHealth::AllRun);
        assert_eq!(watch.look(start + second(60), &[]), ShardHealth::AllRun);
    }
}
