//! Which connections a client has, and what each is for: an attempt, the tunnel, another tunnel beside one that is silent.
//!
//! A state machine without socket, engine or log: [`Session`](super::session::Session) tells it what happened and carries out
//! what follows. When attempts are made is decided in `retry.rs`.
//!
//! ```text
//!            start            on_ready                    on_lost, on_goaway
//!   Down ──────────► attempt ──────────► Up ────────────────────────────────────► Down
//!                       │                 │ silent: start, on_ready ► challenger     │
//!                       └── on_lost ──►   └─ look, on_lost: the challenger is the tunnel
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::link::Choice;
use bentpipe_tunnel::engine::{ConnectionId, Unreachable};

/// A connection under way, or what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) id: ConnectionId,
    /// Index of the server in the configuration.
    pub(super) server: usize,
    pub(super) address: SocketAddr,
    /// Own address that leads there.
    pub(super) source: Option<IpAddr>,
    /// Choice of what is held of the link.
    pub(super) choice: Choice,
    /// The attempt shows a one-time key, to name our own.
    pub(super) enrols: bool,
}

/// The tunnel, and what is beside it while it is silent.
#[derive(Debug, Clone, Copy)]
struct Up {
    tunnel: Attempt,
    /// The engine has found that nobody answers.
    outage: bool,
    /// Instant at which the tunnel was last heard, once the operator was told that it is silent.
    silent: Option<Instant>,
    /// Another tunnel that is ready, and when it takes over.
    challenger: Option<(Attempt, Instant)>,
}

#[derive(Debug, Clone, Copy)]
enum TunnelPhase {
    /// No tunnel is up; the last one was this.
    Down(Option<Attempt>),
    Up(Up),
}

/// Connections of a session.
#[derive(Debug)]
pub(super) struct Connections {
    state: TunnelPhase,
    /// The connection that is to become a tunnel, and a report that its datagrams do not arrive.
    attempt: Option<(Attempt, Option<Unreachable>)>,
    /// The server of the last attempt, under way or ended, and its address.
    tried: Option<(usize, SocketAddr)>,
    /// The tunnel of a server that has said that it stops.
    leaving: Option<ConnectionId>,
    /// The connection beside the tunnel, if the engine has found that nobody answers there either.
    unanswered: Option<ConnectionId>,
}

/// Use of a connection that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Not wanted any more: it is to be closed.
    Unwanted,
    /// One that shows a one-time key: our own is to be named.
    Enrols,
    /// The tunnel, if it is installed.
    Tunnel(Attempt),
    /// Ready while the tunnel is silent.
    Beside(Attempt),
}

/// Use that a lost connection had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The attempt.
    Attempt(Attempt),
    /// The tunnel; another one may be ready to be installed.
    Tunnel { next: Option<Attempt> },
    /// The one that was ready beside the tunnel.
    Challenger,
    /// The tunnel of a server that stops: usually the reset of one that was started again.
    Leaving,
    /// One that was given up.
    Unknown,
}

/// Finding of a look at the tunnel's silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// The tunnel is heard, or there is none.
    Heard,
    /// The tunnel is heard again after the silence `since` then; `others` are to be closed.
    Back {
        since: Instant,
        others: Vec<ConnectionId>,
    },
    /// The tunnel is silent. That `begins` now, or the one beside it is `due`.
    Silent { begins: bool, due: bool },
}

impl Connections {
    /// No connection yet.
    pub(super) fn new() -> Self {
        Self {
            state: TunnelPhase::Down(None),
            attempt: None,
            tried: None,
            leaving: None,
            unanswered: None,
        }
    }

    fn up(&mut self) -> Option<&mut Up> {
        match &mut self.state {
            TunnelPhase::Up(up) => Some(up),
            TunnelPhase::Down(_) => None,
        }
    }

    /// The attempt under way.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        self.attempt.map(|(attempt, _)| attempt)
    }

    /// The server of the last attempt, under way or ended, and the address at which it was tried.
    pub(super) fn tried(&self) -> Option<(usize, SocketAddr)> {
        self.tried
    }

    /// The attempt under way, if it is this connection.
    pub(super) fn attempt_of(&self, id: ConnectionId) -> Option<Attempt> {
        self.attempt().filter(|attempt| attempt.id == id)
    }

    /// Report of the network, or of this machine's kernel, on the attempt.
    pub(super) fn unreachable(&self) -> Option<Unreachable> {
        self.attempt?.1
    }

    /// The tunnel, whether it answers or not.
    pub(super) fn tunnel(&self) -> Option<ConnectionId> {
        match &self.state {
            TunnelPhase::Up(up) => Some(up.tunnel.id),
            TunnelPhase::Down(_) => None,
        }
    }

    /// The tunnel, if it answers.
    pub(super) fn usable(&self) -> Option<ConnectionId> {
        match &self.state {
            TunnelPhase::Up(up) if !up.outage => Some(up.tunnel.id),
            TunnelPhase::Up(_) | TunnelPhase::Down(_) => None,
        }
    }

    /// The attempt that became the tunnel, now or last.
    pub(super) fn winner(&self) -> Option<Attempt> {
        match self.state {
            TunnelPhase::Up(up) => Some(up.tunnel),
            TunnelPhase::Down(last) => last,
        }
    }

    /// An attempt begins.
    pub(super) fn start(&mut self, attempt: Attempt) {
        self.tried = Some((attempt.server, attempt.address));
        self.attempt = Some((attempt, None));
    }

    /// The attempt is given up, or has ended.
    pub(super) fn end_attempt(&mut self) -> Option<Attempt> {
        self.attempt.take().map(|(attempt, _)| attempt)
    }

    /// The network, or this machine's kernel, says that nobody can be reached; true if that is about the attempt. What a firewall of this
    /// machine drops it may refuse with an ICMP error of its own as well, which says less.
    pub(super) fn on_unreachable(&mut self, id: ConnectionId, news: Unreachable) -> bool {
        match &mut self.attempt {
            Some((attempt, said)) if attempt.id == id => {
                let own = said.filter(|said| said.own_fault().is_some());
                *said = Some(own.unwrap_or(news));
                true
            }
            _ => false,
        }
    }

    /// HELLO came on a connection.
    pub(super) fn on_ready(&mut self, id: ConnectionId) -> Ready {
        let Some(attempt) = self.attempt_of(id) else {
            return Ready::Unwanted;
        };
        if attempt.enrols {
            return Ready::Enrols;
        }
        self.attempt = None;
        match &self.state {
            TunnelPhase::Down(_) => Ready::Tunnel(attempt),
            TunnelPhase::Up(up) if up.challenger.is_some() => Ready::Unwanted,
            TunnelPhase::Up(_) => Ready::Beside(attempt),
        }
    }

    /// `attempt` is the tunnel from now on.
    pub(super) fn install(&mut self, attempt: Attempt) {
        self.attempt = None;
        let outage = self.unanswered.take() == Some(attempt.id);
        self.state = TunnelPhase::Up(Up {
            tunnel: attempt,
            outage,
            silent: None,
            challenger: None,
        });
    }

    /// `attempt` takes over at `due`, if the tunnel is silent until then.
    pub(super) fn challenge(&mut self, attempt: Attempt, due: Instant) {
        if let Some(up) = self.up() {
            up.challenger = Some((attempt, due));
        }
    }

    /// Notes that a connection is not answered, or is again; true if that is the tunnel.
    pub(super) fn on_outage(&mut self, id: ConnectionId, outage: bool) -> bool {
        if self.challenger() == Some(id) {
            self.unanswered = outage.then_some(id);
        }
        let tunnel = self.up().filter(|up| up.tunnel.id == id);
        tunnel.map(|up| up.outage = outage).is_some()
    }

    /// The server of a connection stops: open flows may finish, new ones need another tunnel, and one that was to take over does
    /// not.
    pub(super) fn on_goaway(&mut self, id: ConnectionId) -> Lost {
        if self.challenger() == Some(id) {
            return self.on_lost(id);
        }
        if self.tunnel() != Some(id) {
            return Lost::Unknown;
        }
        self.leaving = Some(id);
        self.on_lost(id)
    }

    /// The connection that is ready beside the tunnel.
    fn challenger(&self) -> Option<ConnectionId> {
        match &self.state {
            TunnelPhase::Up(up) => up.challenger.map(|(other, _)| other.id),
            TunnelPhase::Down(_) => None,
        }
    }

    /// A connection is over.
    pub(super) fn on_lost(&mut self, id: ConnectionId) -> Lost {
        if let TunnelPhase::Up(up) = &mut self.state {
            if up.challenger.is_some_and(|(other, _)| other.id == id) {
                up.challenger = None;
                return Lost::Challenger;
            }
            if up.tunnel.id == id {
                let next = up.challenger.map(|(other, _)| other);
                self.state = TunnelPhase::Down(Some(up.tunnel));
                return Lost::Tunnel { next };
            }
        }
        if let Some(attempt) = self.attempt_of(id) {
            self.attempt = None;
            return Lost::Attempt(attempt);
        }
        if self.leaving == Some(id) {
            self.leaving = None;
            return Lost::Leaving;
        }
        Lost::Unknown
    }

    /// Looks at the tunnel, which has been silent `since` then, or is heard.
    pub(super) fn look(&mut self, now: Instant, since: Option<Instant>) -> Look {
        let TunnelPhase::Up(up) = &mut self.state else {
            return Look::Heard;
        };
        let Some(since) = since else {
            let Some(since) = up.silent.take() else {
                return Look::Heard;
            };
            let challenger = up.challenger.take().map(|(other, _)| other);
            let others = self.end_attempt().into_iter().chain(challenger);
            let others = others.map(|other| other.id).collect();
            return Look::Back { since, others };
        };
        let begins = up.silent.is_none();
        up.silent.get_or_insert(since);
        let due = up.challenger.is_some_and(|(_, due)| now >= due);
        Look::Silent { begins, due }
    }

    /// Gives up the tunnel for the one beside it: which is to be closed, and which to be installed.
    pub(super) fn take_over(&mut self) -> Option<[Attempt; 2]> {
        let up = self.up()?;
        let (next, _) = up.challenger?;
        let silent = up.tunnel;
        self.state = TunnelPhase::Down(Some(silent));
        Some([silent, next])
    }

    /// All connections, which are to be closed: there is none any more.
    pub(super) fn close(&mut self) -> Vec<ConnectionId> {
        let mut all: Vec<_> = self.end_attempt().map(|it| it.id).into_iter().collect();
        if let TunnelPhase::Up(up) = self.state {
            all.extend(up.challenger.map(|(other, _)| other.id));
            all.push(up.tunnel.id);
            self.state = TunnelPhase::Down(Some(up.tunnel));
        }
        all
    }
}

#[cfg(test)]
mod tests;
