//! A tunnel whose server is not heard: what the operator hears of it, and when another server takes over.
//!
//! Flows stay with the silent tunnel until another one is ready, and for a moment longer: where the link itself was out, both
//! servers are back at the same time, and open connections live on with the first.

use std::time::{Duration, Instant};

use super::connecting::Attempt;
use super::session::Session;
use crate::config::ServerAddress;
use crate::process;
use bentpipe_tunnel::engine::ConnectionId;

/// Silence after which other servers are tried, and the server's name is looked up again.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A tunnel that is ready waits this long, or two round trips, for the silent one.
const GRACE: Duration = Duration::from_secs(1);

/// A tunnel that is ready while the present one is silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Challenger {
    attempt: Attempt,
    due: Instant,
}

impl Session {
    /// When the present tunnel was last heard, if it is silent.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        let (id, now) = (self.ready.get()?, process::now());
        self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            connection.heard().filter(|_| connection.is_silent(now))
        })
    }

    /// Looks whether the tunnel is silent, and acts.
    pub(super) fn watch_silence(&self) {
        let now = process::now();
        let Some(since) = self.silent_since() else {
            return self.end_silence(now);
        };
        let lasted = now.saturating_duration_since(since);
        let Some(winner) = self.winner.get() else {
            return;
        };
        if self.silence.get().is_none() {
            self.silence.set(Some(since));
            tracing::warn!(
                "link silent since {}, {} s ago: nothing is heard from {}; connections wait",
                clock(lasted),
                lasted.as_secs(),
                winner.address
            );
            self.changes.send_replace(());
        }
        if let Some(challenger) = self.challenger.get().filter(|other| now >= other.due) {
            return self.switch(challenger);
        }
        let servers = &self.config.servers;
        let named = matches!(servers[winner.server].address, ServerAddress::Name { .. });
        if lasted >= ELSEWHERE && (servers.len() > 1 || named) {
            self.retry.borrow_mut().on_silent(now, winner.server);
            self.kick.notify_one();
        }
    }

    /// The tunnel is heard, or there is none.
    fn end_silence(&self, now: Instant) {
        let Some(since) = self.silence.take() else {
            return;
        };
        if self.ready.get().is_none() {
            return;
        }
        let lasted = now.saturating_duration_since(since).as_secs();
        tracing::info!(target: crate::events::STATE, "link is back after {lasted} s of silence");
        self.retry.borrow_mut().on_quiet();
        let others = [
            self.attempt.take(),
            self.challenger.take().map(|other| other.attempt),
        ];
        for other in others.into_iter().flatten() {
            self.drop_connection(other.id);
        }
        self.changes.send_replace(());
    }

    /// Another tunnel is ready while the present one is silent: that one is asked once more.
    pub(super) fn challenge(&self, attempt: Attempt) {
        self.attempt.set(None);
        if self.challenger.get().is_some() {
            return self.drop_connection(attempt.id);
        }
        self.want();
        let rtt = self
            .shard
            .peek(|engine| engine.peek(attempt.id).map(|connection| connection.rtt().0));
        let grace = GRACE.max(rtt.unwrap_or_default() * 2);
        let due = process::now() + grace;
        self.challenger.set(Some(Challenger { attempt, due }));
    }

    /// The challenger, if it is this connection, takes no further part.
    pub(super) fn take_challenger(&self, id: ConnectionId) -> bool {
        let known = self.challenger.get();
        let is = known.is_some_and(|other| other.attempt.id == id);
        if is {
            self.challenger.set(None);
        }
        is
    }

    /// The challenger's tunnel, if there is one.
    pub(super) fn challenger(&self) -> Option<Attempt> {
        self.challenger.take().map(|other| other.attempt)
    }

    fn switch(&self, challenger: Challenger) {
        self.challenger.set(None);
        self.silence.set(None);
        let old = self.winner.get();
        if let Some(old) = old {
            tracing::warn!(
                "{} stays silent: {} takes over; open connections are reset",
                old.address,
                challenger.attempt.address
            );
        }
        self.paths.tunnel_ended();
        if let Some(old) = self.ready.take() {
            self.published.forget();
            self.drop_connection(old);
        }
        self.install(challenger.attempt);
    }
}

/// Time of day in UTC, `ago` before now, as HH:MM:SS.
fn clock(ago: Duration) -> String {
    let seconds = process::since_1970().saturating_sub(ago).as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
