//! A tunnel whose server is not heard: what the operator hears of it, and when another server takes over.
//!
//! Flows stay with the silent tunnel until another one is ready, and for a moment longer: where the link itself was out, both
//! servers are back at the same time, and open connections live on with the first.

use std::time::{Duration, Instant};

use super::connections::{Attempt, Look};
use super::session::Session;
use crate::config::ServerAddress;
use crate::process;

/// Silence after which other servers are tried, and the server's name is looked up again.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A tunnel that is ready waits this long, or two round trips, for the silent one.
const GRACE: Duration = Duration::from_secs(1);

impl Session {
    /// Looks whether the tunnel is silent, and acts.
    pub(super) fn watch_silence(&self) {
        let (now, since) = (process::now(), self.tunnels.silent_since());
        let look = self.tunnels.state_mut().look(now, since);
        match look {
            Look::Heard => {}
            Look::Back { since, others } => {
                let lasted = now.saturating_duration_since(since).as_secs();
                tracing::info!(target: crate::events::STATE, "link is back after {lasted} s of silence");
                self.retry.borrow_mut().on_quiet();
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
            self.try_elsewhere(now, tunnel.server);
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
    fn try_elsewhere(&self, now: Instant, server: usize) {
        let servers = &self.config.servers;
        let named = matches!(servers[server].address, ServerAddress::Name { .. });
        if servers.len() > 1 || named {
            self.retry.borrow_mut().on_silent(now, server);
            self.kick.notify_one();
        }
    }

    /// Another tunnel is ready while the present one is silent: that one is asked once more.
    pub(super) fn challenge(&self, attempt: Attempt) {
        self.want();
        let rtt = self
            .tunnels
            .shard()
            .peek(|engine| engine.peek(attempt.id).map(|connection| connection.rtt().0));
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
        self.paths.tunnel_ended();
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
