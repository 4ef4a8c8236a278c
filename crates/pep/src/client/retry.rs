//! When the client tries to reach which server: a state machine over `now`, without sockets.
//!
//! One attempt is under way at a time. Attempts start 0, 3, 8, 20, 45 and 90 s after the first and then ever more seldom, up
//! to 5 min apart, because each costs some 5 kB on the link although nobody answers (`FirstWords` in `connecting.rs`). Two
//! things bring the next one forward: a host that asks for a connection, and a change of the network. Each has a small
//! budget, so that neither a busy LAN nor a flapping link defeats the pauses.
//!
//! ```text
//!   idle ─ wanted ─► waiting ─ due ─► trying ─ nobody answers, failed ─► waiting
//!    ▲                                  └─ ready ─► idle
//! ```
//!
//! A server that did not answer is tried after the others for ten minutes.

mod prompts;

use std::time::{Duration, Instant};

use bentpipe_units::Seed;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use prompts::{PROMPTS, Prompts};

/// Pauses from one unanswered attempt to the next, in seconds, before jitter of up to a quarter.
const PAUSES: [u64; 8] = [3, 5, 12, 25, 45, 90, 180, 300];
/// Pauses after a server refused this client, in seconds: its configuration has to be changed by hand.
const REFUSED: [u64; 8] = [5, 10, 20, 40, 80, 160, 300, 600];
/// Pauses after another process has taken over with the same key (`PROTOCOL.md` §5.1), in seconds: at once, the two would
/// end each other's flows for ever.
const REPLACED: [u64; 5] = [60, 120, 240, 480, 900];
/// Pauses after an attempt that could not even begin, in seconds: no address, no route. They cost name lookups only.
const LOCAL: [u64; 4] = [3, 5, 10, 15];
/// Longest pause of a client with several servers, divided by their number, and the shortest that this may come to.
const SHORTEST_LAST: Duration = Duration::from_secs(75);
/// An answer is expected within this time.
pub(super) const ANSWER: Duration = Duration::from_secs(3);
/// A handshake that makes no progress for this long is given up.
const STALLED: Duration = Duration::from_secs(10);
/// Likely reasons why a server is heard and its handshake does not end: every datagram that bears a part of it is padded to 1200 bytes.
pub(super) const LIKELY_LOST: &str = "datagrams of 1200 bytes are lost on the way, by a firewall or an MTU below 1280, \
                                      or the link loses very much";

/// Time for which a server that did not answer is tried after the others.
const SHUNNED: Duration = Duration::from_secs(600);
/// A tunnel that lasted this long has been worth its attempts; earlier ends count as failures.
const WORTH: Duration = Duration::from_secs(60);
/// Number of unanswered attempts that a change of the network leaves: the next pauses are short again, not shortest.
const AFTER_CHANGE: u32 = 2;

/// Next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before this time; `None`: nothing until something happens.
    Wait(Option<Instant>),
    /// Start an attempt at this server.
    Start(Start),
    /// The attempt was not answered so far: the operator is to hear of it; the attempt goes on.
    Unanswered,
    /// End the attempt; `answered`: the server was heard.
    GiveUp { answered: bool },
}

/// An attempt to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Index of the server.
    pub(super) server: usize,
    /// Number of earlier attempts at it: selects one of several addresses.
    pub(super) round: usize,
    /// The first datagrams leave three times, for a path that loses: at first only, since they cost as much again.
    pub(super) copies: bool,
}

/// Reason why an attempt failed before anybody could answer, or with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was sent: no address, no route.
    Local,
    /// The connection broke during its handshake.
    Broken,
    /// The two ends do not know each other's keys.
    Refused,
    /// Another process uses this client's key.
    Replaced,
    /// The server has answered, and the next attempt shows it another key.
    OtherKey,
    /// The next attempt goes by another wire.
    OtherWire,
}

/// Knowledge of one server.
#[derive(Debug, Clone, Copy, Default)]
struct ServerRecord {
    /// Instant at which it last did not answer.
    failed: Option<Instant>,
    /// Attempts at it.
    rounds: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// No attempt is wanted.
    Idle,
    Waiting,
    Trying {
        server: usize,
        since: Instant,
        told: bool,
    },
}

/// Decides on attempts.
#[derive(Debug)]
pub(super) struct Retry {
    rng: Pcg32,
    servers: Vec<ServerRecord>,
    state: State,
    /// Earliest start of the next attempt, and latest end of one that nobody answers.
    next: Instant,
    /// Start of the latest attempt.
    last: Option<Instant>,
    /// Server that is not to be tried before the others: its tunnel is silent.
    silent: Option<usize>,
    unanswered: u32,
    refused: u32,
    replaced: u32,
    local: u32,
    /// The latest attempt could not begin: nothing was sent.
    unsent: bool,
    asked: Prompts,
    changed: Prompts,
}

impl Retry {
    /// A machine for so many servers; the first attempt is due at once.
    pub(super) fn new(now: Instant, servers: usize, seed: Seed) -> Self {
        Self {
            rng: Pcg32::seed_from_u64(seed.as_u64()),
            servers: vec![ServerRecord::default(); servers.max(1)],
            state: State::Waiting,
            next: now,
            last: None,
            silent: None,
            unanswered: 0,
            refused: 0,
            replaced: 0,
            local: 0,
            unsent: false,
            asked: Prompts::new(now),
            changed: Prompts::new(now),
        }
    }

    /// Step to take now; `heard` is when the server of the attempt under way was last heard.
    pub(super) fn poll(&mut self, now: Instant, heard: Option<Instant>) -> Step {
        match &mut self.state {
            State::Idle => Step::Wait(None),
            State::Waiting if now >= self.next => Step::Start(self.start(now)),
            State::Waiting => Step::Wait(Some(self.next)),
            State::Trying {
                server,
                since,
                told,
            } => {
                let until = heard.map_or(self.next, |heard| heard + STALLED);
                if now >= until {
                    self.servers[*server].failed = Some(now);
                    self.state = State::Waiting;
                    return Step::GiveUp {
                        answered: heard.is_some(),
                    };
                }
                let due = *since + ANSWER;
                if heard.is_none() && !*told && now >= due {
                    *told = true;
                    return Step::Unanswered;
                }
                let wake = match *told || heard.is_some() {
                    true => until,
                    false => until.min(due),
                };
                Step::Wait(Some(wake))
            }
        }
    }

    /// Instant at which the next attempt starts, while none is under way that somebody has answered.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.state {
            State::Idle => None,
            State::Waiting | State::Trying { .. } => Some(self.next),
        }
    }

    /// Start of the attempt under way.
    pub(super) fn trying(&self) -> Option<Instant> {
        match self.state {
            State::Trying { since, .. } => Some(since),
            State::Idle | State::Waiting => None,
        }
    }

    /// True if an attempt is under way.
    pub(super) fn is_trying(&self) -> bool {
        matches!(self.state, State::Trying { .. })
    }

    fn start(&mut self, now: Instant) -> Start {
        let server = self.choose(now);
        let round = self.servers[server].rounds;
        self.servers[server].rounds += 1;
        self.state = State::Trying {
            server,
            since: now,
            told: false,
        };
        self.last = Some(now);
        self.unsent = false;
        let copies = self.unanswered < 2 && self.refused == 0 && round == 0;
        let pause = self.pause();
        self.unanswered += 1;
        self.next = now + self.jittered(pause);
        Start {
            server,
            round,
            copies,
        }
    }

    /// The first server that has not failed lately, else the one whose failure is longest ago.
    fn choose(&self, now: Instant) -> usize {
        let rank = |index: &usize| {
            let failed = self.servers[*index].failed;
            let failed = failed.filter(|failed| now.saturating_duration_since(*failed) < SHUNNED);
            // `None` is less than any time.
            (failed, *index)
        };
        (0..self.servers.len()).min_by_key(rank).unwrap_or(0)
    }

    /// From the attempt that is about to start to the next one.
    fn pause(&self) -> Duration {
        let servers = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        // Each server is tried once before the pauses grow.
        let index = (self.unanswered + 1).saturating_sub(servers);
        let longest = Duration::from_secs(PAUSES[PAUSES.len() - 1]) / servers;
        at(&PAUSES, index).min(longest.max(SHORTEST_LAST))
    }

    fn jittered(&mut self, pause: Duration) -> Duration {
        let share = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        pause + pause.mul_f64(share / 4.0)
    }

    /// The attempt failed with an answer, or could not begin.
    pub(super) fn on_failed(&mut self, now: Instant, failure: Failure) {
        let State::Trying { server, .. } = self.state else {
            return;
        };
        self.state = State::Waiting;
        self.servers[server].failed = Some(now);
        match failure {
            Failure::Broken => {}
            Failure::Local => {
                self.unsent = true;
                self.unanswered = self.unanswered.saturating_sub(1);
                self.wait(now, &LOCAL, |retry| &mut retry.local);
            }
            Failure::Refused => self.wait(now, &REFUSED, |retry| &mut retry.refused),
            Failure::Replaced => self.wait(now, &REPLACED, |retry| &mut retry.replaced),
            Failure::OtherKey | Failure::OtherWire => {
                self.servers[server].failed = None;
                self.next = now;
            }
        }
    }

    fn wait(&mut self, now: Instant, pauses: &[u64], count: fn(&mut Self) -> &mut u32) {
        let index = *count(self);
        *count(self) += 1;
        let pause = self.jittered(at(pauses, index));
        self.next = now + pause;
        // With a server that has not refused yet, there is no reason to wait.
        let fresh = |server: &ServerRecord| {
            let failed = server.failed;
            failed.is_none_or(|failed| now.saturating_duration_since(failed) >= SHUNNED)
        };
        if self.servers.len() > 1 && self.servers.iter().any(fresh) {
            self.next = self.next.min(now + ANSWER);
        }
    }

    /// The tunnel is up: at this server.
    pub(super) fn on_ready(&mut self, now: Instant, server: usize) {
        if let Some(silent) = self.silent.take().filter(|silent| *silent != server) {
            self.servers[silent].failed = Some(now);
        }
        self.state = State::Idle;
        self.servers[server] = ServerRecord::default();
        (self.unanswered, self.refused, self.local) = (0, 0, 0);
    }

    /// The tunnel, up for `lasted`, has ended; another one is wanted. At once: the usual cause is a server that was
    /// restarted and has just answered. One that greets and leaves again and again is not to be hammered.
    pub(super) fn on_lost(&mut self, now: Instant, lasted: Duration, replaced: bool) {
        self.silent = None;
        if lasted >= WORTH {
            (self.unanswered, self.replaced) = (0, 0);
        }
        if matches!(self.state, State::Trying { .. }) {
            // An attempt at another server is under way already.
            return;
        }
        self.state = State::Waiting;
        let earliest = now.checked_sub(lasted).unwrap_or(now) + at(&PAUSES, self.unanswered);
        self.next = now.max(earliest);
        self.unanswered += u32::from(lasted < WORTH);
        if replaced {
            self.wait(now, &REPLACED, |retry| &mut retry.replaced);
        }
    }

    /// The tunnel to `server` is silent: the others are tried beside it, and itself only after them, for it may have
    /// another address by now.
    pub(super) fn on_silent(&mut self, now: Instant, server: usize) {
        if self.silent.is_none() && matches!(self.state, State::Idle) {
            self.silent = Some(server);
            self.servers[server].failed = Some(now);
            self.state = State::Waiting;
            self.next = now;
        }
    }

    /// The tunnel is heard again, or the client stops: no attempt is wanted.
    pub(super) fn on_quiet(&mut self) {
        if let Some(silent) = self.silent.take() {
            self.servers[silent].failed = None;
        }
        self.state = State::Idle;
        (self.unanswered, self.local) = (0, 0);
    }

    /// Attempts are wanted again after [`Self::on_quiet`].
    pub(super) fn on_wanted(&mut self, now: Instant) {
        if matches!(self.state, State::Idle) {
            self.state = State::Waiting;
            self.next = now;
        }
    }

    /// A host asks for a connection: the next attempt need not wait longer than the last one has time to be answered.
    pub(super) fn on_asked(&mut self, now: Instant) {
        if let Some(due) = self.may_hurry(now)
            && (self.unsent || self.asked.take(now, self.prompt_cost()))
        {
            self.next = due;
        }
    }

    /// The network has changed: another address or route of ours, another address of a server's name.
    pub(super) fn on_changed(&mut self, now: Instant) {
        if let Some(due) = self.may_hurry(now)
            && self.changed.take(now, self.prompt_cost())
        {
            self.next = due;
            self.unanswered = self.unanswered.min(AFTER_CHANGE);
        }
    }

    /// A whole handshake that ends in a refusal costs three times as much as an attempt that nobody answers.
    const fn prompt_cost(&self) -> u32 {
        if self.refused > 0 { PROMPTS } else { 1 }
    }

    /// The earliest time for the next attempt, if it is wanted and planned for later.
    fn may_hurry(&self, now: Instant) -> Option<Instant> {
        let wanted = !matches!(self.state, State::Idle) && self.replaced == 0;
        let due = self.last.map_or(now, |last| now.max(last + ANSWER));
        (wanted && self.next > due).then_some(due)
    }
}

fn at(pauses: &[u64], index: u32) -> Duration {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    Duration::from_secs(pauses[index.min(pauses.len() - 1)])
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests;
