//! What the session does all the time: attempts while a tunnel is wanted, looks whether the tunnel's server is heard, whether
//! bytes are left, and at the figures of `status`.
//!
//! Flows stay with a silent tunnel until another one is ready, and for a moment longer: where the link itself was out, both
//! servers are back at the same time, and open connections live on with the first.

use std::future::pending;
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until};

use super::Session;
use crate::client::connections::{Attempt, Look};
use crate::client::retry::{Retry, Step};
use crate::process;

/// Time from one look at the tunnel and the network to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Time from one sample of the figures of `status` to the next.
const SAMPLE: Duration = Duration::from_secs(1);

/// Silence after which other servers are tried, and the server's name is looked up again.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A tunnel that is ready waits this long, or two round trips, for the silent one.
const GRACE: Duration = Duration::from_secs(1);

impl Session {
    /// Makes attempts while a tunnel is wanted; never ends.
    pub(crate) async fn keep_up(&self) {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.is_stopped() {
                self.schedule.woken().await;
                continue;
            }
            match self.connector.poll() {
                Step::Start(start) => {
                    if self.connector.start(start, || self.is_stopped()).await {
                        // The rules must leave this address alone, too.
                        self.tell_reach();
                    }
                }
                Step::Unanswered => self.connector.tell_unanswered(),
                Step::GiveUp { answered } => self.connector.give_up(answered),
                Step::Wait(until) => self.wait(until, &mut tick).await,
            }
        }
    }

    async fn wait(&self, until: Option<Instant>, tick: &mut Interval) {
        let due = async {
            match until {
                Some(until) => sleep_until(until.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.schedule.woken() => {}
            _ = tick.tick() => {
                self.watch_silence();
                if !self.carries() {
                    self.connector.look_around().await;
                }
            }
        }
    }

    /// Waits for the engine to use up its allowance, and acts; never ends.
    pub(crate) async fn watch_allowance(&self) {
        loop {
            self.shard().until_spent().await;
            self.look_at_meter();
        }
    }

    /// Stops where the bytes are used up, goes on when a new period begins.
    fn look_at_meter(&self) {
        let look = self.meter.borrow_mut().look(self.shard());
        if look.resumes {
            tracing::info!(target: crate::events::STATE, "a new period of [metering] begins");
            self.schedule.tell(Retry::on_wanted);
            self.schedule.wake();
            self.tell_reach();
        }
        if let Some(why) = look.stops {
            tracing::error!("{why}");
            self.schedule.tell(|retry, _| retry.on_quiet());
            self.close();
            self.reporter.on_stopped(why);
            self.tell_reach();
        }
    }

    /// Keeps the figures of `status` fresh; never ends.
    pub(crate) async fn sample(&self) {
        let mut tick = interval(SAMPLE);
        loop {
            tick.tick().await;
            self.learned.learn_path();
            if self.tunnels.ready().is_some() {
                self.learned.measure_link();
            }
            if let Some(sle) = self.sle() {
                sle.tick();
            }
            if let Some(les) = self.packet_road().les()
                && les.tick()
            {
                self.tell_reach();
            }
            if let Some(pages) = self.pages() {
                pages.tick();
            }
            self.look_at_meter();
            self.shard().share_memory();
            self.reporter.sample();
        }
    }

    /// Looks whether the tunnel is silent, and acts.
    pub(super) fn watch_silence(&self) {
        let (now, since) = (process::now(), self.tunnels.silent_since());
        let look = self.tunnels.state_mut().look(now, since);
        match look {
            Look::Heard => {}
            Look::Back { since, others } => {
                let lasted = now.saturating_duration_since(since).as_secs();
                tracing::info!(target: crate::events::STATE, "link is back after {lasted} s of silence");
                self.schedule.tell(|retry, _| retry.on_quiet());
                others.into_iter().for_each(|id| self.tunnels.close(id));
                self.tell_reach();
            }
            Look::Silent { begins, due } => self.bear_silence(now, since, begins, due),
        }
    }

    fn bear_silence(&self, now: Instant, since: Option<Instant>, begins: bool, due: bool) {
        let Some((tunnel, since)) = self.tunnels.state().winner().zip(since) else {
            return;
        };
        let lasted = now.saturating_duration_since(since);
        if begins {
            self.tell_silence(&tunnel, lasted);
        }
        if due {
            self.switch();
        } else if lasted >= ELSEWHERE {
            self.try_elsewhere(tunnel.server);
        }
    }

    fn tell_silence(&self, tunnel: &Attempt, lasted: Duration) {
        tracing::warn!(
            "link silent since {}, {} s ago: nothing is heard from {}; connections wait",
            clock(lasted),
            lasted.as_secs(),
            tunnel.address
        );
        self.tell_reach();
    }

    /// Has other servers tried, and the address of this one looked up again.
    fn try_elsewhere(&self, server: usize) {
        if self.servers.len() > 1 || self.servers.is_named(server) {
            self.schedule
                .tell(|retry, now| retry.on_silent(now, server));
            self.schedule.wake();
        }
    }

    /// Another tunnel is ready while the present one is silent: that one is asked once more.
    pub(super) fn challenge(&self, attempt: Attempt) {
        self.want();
        let rtt = self.tunnels.look_at(attempt.id, |it| Some(it.rtt().0));
        let grace = GRACE.max(rtt.unwrap_or_default() * 2);
        let due = process::now() + grace;
        self.tunnels.state_mut().challenge(attempt, due);
    }

    fn switch(&self) {
        let taken = self.tunnels.state_mut().take_over();
        let Some([silent, next]) = taken else {
            return;
        };
        tracing::warn!(
            "{} stays silent: {} takes over; open connections are reset",
            silent.address,
            next.address
        );
        self.learned.paths().tunnel_ended();
        self.published.forget();
        self.tunnels.close(silent.id);
        self.install(next);
    }
}

/// Time of day in UTC, `ago` before now, as HH:MM:SS.
fn clock(ago: Duration) -> String {
    let seconds = process::since_1970().saturating_sub(ago).as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
