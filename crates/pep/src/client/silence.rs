//! Silence of the tunnel: who is told of it, which other servers are tried meanwhile, and which of two tunnels goes on.
//!
//! Flows stay with a silent tunnel until another one is ready, and for a moment longer: where the link itself was out, both
//! servers are back at the same time, and open connections live on with the first.

use std::time::{Duration, Instant};

use super::connections::{Attempt, Look};
use super::session::Session;
use crate::process;
use crate::status;

/// Silence after which other servers are tried, and the server's name is looked up again.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// Shortest time for which a tunnel that is ready waits for the silent one; two round trips if they take longer.
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
                self.schedule.tell(|retry, _| retry.on_quiet());
                for id in others {
                    self.tunnels.close(id, "the client's other tunnel is back");
                }
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
        let heard = self.tunnels.heard(tunnel.id);
        let heard = heard.map(|at| process::now().saturating_duration_since(at).as_secs());
        let address = tunnel.address;
        let (since, ago) = (clock(lasted), lasted.as_secs());
        let what = self.tunnels.own_fault().unwrap_or_else(|| {
            match status::is_heard_in_silence(heard, ago) {
                true => {
                    format!("{address} is heard, but what is sent to it is not answered")
                }
                false => format!("nothing is heard from {address}"),
            }
        });
        tracing::warn!("link silent since {since}, {ago} s ago: {what}; connections wait");
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
        self.tunnels
            .close(silent.id, "the client takes another server");
        self.install(next);
    }
}

/// Time of day in UTC, `ago` before now, as HH:MM:SS.
fn clock(ago: Duration) -> String {
    let seconds = process::since_1970().saturating_sub(ago).as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
