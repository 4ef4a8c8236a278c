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

/// Looks whether the tunnel is silent, and acts.
pub(super) fn watch(session: &Session) {
    let (now, since) = (process::now(), session.tunnels.silent_since());
    let look = session.tunnels.state_mut().look(now, since);
    match look {
        Look::Heard => {}
        Look::Back { since, others } => {
            let lasted = now.saturating_duration_since(since).as_secs();
            tracing::info!(target: crate::events::STATE, "link is back after {lasted} s of silence");
            session.schedule.tell(|retry, _| retry.on_quiet());
            for id in others {
                session
                    .tunnels
                    .close(id, "the client's other tunnel is back");
            }
            session.tell_reach();
        }
        Look::Silent { begins, due } => bear(session, now, since, begins, due),
    }
}

fn bear(session: &Session, now: Instant, since: Option<Instant>, begins: bool, due: bool) {
    let Some((tunnel, since)) = session.tunnels.state().winner().zip(since) else {
        return;
    };
    let lasted = now.saturating_duration_since(since);
    if begins {
        tell(session, &tunnel, lasted);
    }
    if due {
        switch(session);
    } else if lasted >= ELSEWHERE {
        try_elsewhere(session, tunnel.server);
    }
}

fn tell(session: &Session, tunnel: &Attempt, lasted: Duration) {
    let heard = session.tunnels.heard(tunnel.id);
    let heard = heard.map(|at| process::now().saturating_duration_since(at).as_secs());
    let address = tunnel.address;
    let (since, ago) = (clock(lasted), lasted.as_secs());
    let what = session.tunnels.own_fault().unwrap_or_else(|| {
        match status::is_heard_in_silence(heard, ago) {
            true => {
                format!("{address} is heard, but what is sent to it is not answered")
            }
            false => format!("nothing is heard from {address}"),
        }
    });
    tracing::warn!("link silent since {since}, {ago} s ago: {what}; connections wait");
    session.tell_reach();
}

/// Has other servers tried, and the address of this one looked up again.
fn try_elsewhere(session: &Session, server: usize) {
    if session.servers.len() > 1 || session.servers.is_named(server) {
        session
            .schedule
            .tell(|retry, now| retry.on_silent(now, server));
        session.schedule.wake();
    }
}

/// Another tunnel is ready while the present one is silent: that one is asked once more.
pub(super) fn challenge(session: &Session, attempt: Attempt) {
    session.want();
    let rtt = session.tunnels.look_at(attempt.id, |it| Some(it.rtt().0));
    let grace = GRACE.max(rtt.unwrap_or_default() * 2);
    let due = process::now() + grace;
    session.tunnels.state_mut().challenge(attempt, due);
}

fn switch(session: &Session) {
    let taken = session.tunnels.state_mut().take_over();
    let Some([silent, next]) = taken else {
        return;
    };
    tracing::warn!(
        "{} stays silent: {} takes over; open connections are reset",
        silent.address,
        next.address
    );
    session.learned.paths().tunnel_ended();
    session.published.forget();
    session
        .tunnels
        .close(silent.id, "the client takes another server");
    session.install(next);
}

/// Time of day in UTC, `ago` before now, as HH:MM:SS.
fn clock(ago: Duration) -> String {
    let seconds = process::since_1970().saturating_sub(ago).as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
