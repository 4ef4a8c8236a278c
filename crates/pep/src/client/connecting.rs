//! From a configured server to a connection under way: carries out what `retry.rs` decides, and tells it what came of it.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::EnrolCode;

use super::connections::Attempt;
use super::enrol;
use super::learned::Learned;
use super::report::{Reporter, Told};
use super::retry::{ANSWER, Failure, LIKELY_LOST, Retry, Start, Step};
use super::schedule::Schedule;
use super::servers::Servers;
use super::sle::Sealing;
use super::tunnels::Tunnels;
use super::wires::Wires;
use crate::config::ServerAddress;
use crate::process;
use bentpipe_tunnel::engine::{ConnectionId, FirstWords, Unreachable};

/// Datagrams that an attempt sends before it was answered: ClientHello with an ML-KEM share takes two, which are sent once
/// more when quinn's timer expires.
const DATAGRAMS: u64 = 4;
/// And with two copies of each of the first.
const WITH_COPIES: u64 = 8;

/// Time from one lookup of the servers' names to the next while no tunnel answers.
const NAMES: Duration = Duration::from_secs(20);

/// Bound on an attempt that nobody answers.
pub(super) const fn first_words(copies: bool) -> FirstWords {
    FirstWords {
        datagrams: if copies { WITH_COPIES } else { DATAGRAMS },
        copies,
    }
}

/// Reason why an attempt could not begin.
enum Unbegun {
    /// The only address is that of a silent tunnel's server.
    SilentOnly,
    /// What the operator hears.
    Fault(String),
}

/// The network as it was at the last look.
#[derive(Debug, Default)]
struct Surroundings {
    /// Address looked for, and ours that led there.
    source: Option<(SocketAddr, Option<IpAddr>)>,
    /// Instant at which names were last looked up.
    names: Option<Instant>,
}

/// Maker of attempts: each is a connection that is to become the tunnel.
pub(super) struct Connector {
    tunnels: Rc<Tunnels>,
    schedule: Rc<Schedule>,
    servers: Rc<Servers>,
    learned: Rc<Learned>,
    reporter: Rc<Reporter>,
    wires: Rc<Wires>,
    /// Flows are to be sealed beside the tunnel.
    seals: bool,
    seen: RefCell<Surroundings>,
}

impl Connector {
    /// No attempt yet.
    pub(super) fn new(
        tunnels: Rc<Tunnels>,
        (schedule, servers): (Rc<Schedule>, Rc<Servers>),
        (learned, wires): (Rc<Learned>, Rc<Wires>),
        reporter: Rc<Reporter>,
        seals: bool,
    ) -> Self {
        Self {
            tunnels,
            schedule,
            servers,
            learned,
            reporter,
            wires,
            seals,
            seen: RefCell::default(),
        }
    }

    /// Next thing to do.
    pub(super) fn poll(&self) -> Step {
        let attempt = self.tunnels.state().attempt();
        let heard = attempt.and_then(|attempt| self.tunnels.heard(attempt.id));
        self.schedule.tell(|retry, now| retry.poll(now, heard))
    }

    /// Looks for changes of the network that make an attempt worth its bytes.
    pub(super) async fn look_around(&self) {
        let tried = {
            let connections = self.tunnels.state();
            connections.attempt().or(connections.winner())
        };
        let remote =
            tried
                .map(|attempt| attempt.address)
                .or_else(|| match self.servers.address(0) {
                    ServerAddress::Ip(address) => Some(*address),
                    ServerAddress::Name { .. } => None,
                });
        let source = remote.map(|remote| (remote, process::source_towards(remote)));
        let before = std::mem::replace(&mut self.seen.borrow_mut().source, source);
        let moved = before.zip(source).and_then(|(before, after)| {
            let other = before.0 == after.0 && before.1 != after.1;
            Some((before.1, after.1.filter(|_| other)?))
        });
        let now = process::now();
        let last = self.seen.borrow().names;
        let due = last.is_none_or(|last| now >= last + NAMES);
        let renamed = due && self.tunnels.ready().is_none() && {
            self.seen.borrow_mut().names = Some(now);
            // Also after the server was refused: somebody else may have the old address.
            let tried = self.tunnels.state().tried();
            match tried {
                Some(tried) => self.servers.has_moved(tried).await,
                None => false,
            }
        };
        if let Some((before, after)) = moved {
            self.tell_of_move(before, after);
            self.wires.on_moved();
        }
        if moved.is_some() || renamed {
            self.schedule.tell(Retry::on_changed);
        }
    }

    /// Tells the operator, whom one link may cost more than another, which one the tunnel takes.
    fn tell_of_move(&self, before: Option<IpAddr>, after: IpAddr) {
        if self.tunnels.state().tunnel().is_some() {
            let before = before.map_or("none".to_owned(), |before| before.to_string());
            tracing::info!(
                target: crate::events::STATE,
                "the tunnel leaves this machine from {after} now; before: {before}"
            );
        }
    }

    /// Starts an attempt, unless the client has `stopped` when the server's address is known; true if there is a connection.
    pub(super) async fn start(&self, start: Start, stopped: impl Fn() -> bool) -> bool {
        let found = self.find(start.server).await;
        if stopped() || !self.schedule.state().is_trying() {
            return false;
        }
        let begun = found.and_then(|found| self.begin(start, found));
        begun.map_err(|why| self.fail(start.server, why)).is_ok()
    }

    /// Addresses at which an attempt at a server may be made: the one that a TLS connection stands for, if there is one.
    async fn find(&self, server: usize) -> Result<Vec<SocketAddr>, Unbegun> {
        if let Some(address) = self.wires.address(server) {
            return Ok(vec![address]);
        }
        let name = self.servers.address(server);
        let found = self.servers.resolve(server).await;
        let found =
            found.map_err(|error| Unbegun::Fault(format!("cannot resolve {name}: {error}")))?;
        if let Some(first) = found.first() {
            let prepared = self.wires.prepare(server, *first).await;
            prepared.map_err(|error| {
                Unbegun::Fault(format!(
                    "no TLS connection for {name}: {error} (wrong `tls`, server not running, or a firewall)"
                ))
            })?;
        }
        Ok(self.wires.address(server).map_or(found, |one| vec![one]))
    }

    /// Connects to one of the addresses that were found.
    fn begin(&self, start: Start, mut addresses: Vec<SocketAddr>) -> Result<(), Unbegun> {
        if let Some(silent) = self.installed() {
            addresses.retain(|address| *address != silent.address);
        }
        let Some(first) = addresses.first() else {
            return Err(Unbegun::SilentOnly);
        };
        let routed = addresses
            .iter()
            .map(|address| (*address, process::source_towards(*address)))
            .filter(|(_, source)| source.is_some());
        let routed: Vec<_> = routed.collect();
        let Some((address, source)) = routed.get(start.round % routed.len().max(1)).copied() else {
            return Err(Unbegun::Fault(format!("no route to {}", first.ip())));
        };
        let connected = self.connect(start, address, source);
        connected.map_err(|error| Unbegun::Fault(format!("cannot connect to {address}: {error}")))
    }

    /// The attempt that is the tunnel now, if there is one.
    fn installed(&self) -> Option<Attempt> {
        let connections = self.tunnels.state();
        connections.tunnel().and(connections.winner())
    }

    fn fail(&self, server: usize, why: Unbegun) {
        self.schedule
            .tell(|retry, now| retry.on_failed(now, Failure::Local));
        if let Unbegun::Fault(text) = why {
            self.reporter.tell_of(server, Told::Trying, &text);
        }
    }

    fn connect(
        &self,
        start: Start,
        address: SocketAddr,
        source: Option<IpAddr>,
    ) -> Result<(), quinn_proto::ConnectError> {
        let now = process::now();
        let choice = self.learned.choose(start.server, source);
        let (crypto, enrols) = self.servers.crypto(start.server);
        let remote = self.servers.remote(address);
        let id = self
            .tunnels
            .shard()
            .with(|engine| engine.connect(now, crypto, remote, choice.link))?;
        let attempt = Attempt {
            id,
            server: start.server,
            address,
            source,
            choice,
            enrols,
        };
        self.tunnels.change(id, |connection| {
            connection.set_first_words(first_words(start.copies));
            self.learned.resume(&attempt, connection);
            if self.seals {
                Sealing::ask(connection);
            }
        });
        self.tunnels.state_mut().start(attempt);
        self.wires.on_attempt();
        Ok(())
    }

    /// The attempt has had its time.
    pub(super) fn give_up(&self, answered: bool) {
        if !answered {
            self.tell_unanswered();
            let attempt = self.tunnels.state().attempt();
            if let Some(attempt) = attempt {
                self.wires.on_unanswered(attempt.server);
            }
        }
        let attempt = self.tunnels.state_mut().end_attempt();
        let Some(attempt) = attempt else {
            return;
        };
        if answered {
            let text = format!(
                "{} answers, and its handshake does not end ({LIKELY_LOST}); trying on",
                attempt.address
            );
            self.reporter.tell_of(attempt.server, Told::Trying, &text);
            return self.tunnels.close(attempt.id, "the handshake does not end");
        }
        let now = process::now();
        self.tunnels
            .change(attempt.id, |connection| connection.abandon(now));
    }

    /// The network, or this machine's kernel, says that the server cannot be reached.
    pub(super) fn on_unreachable(&self, id: ConnectionId, said: Unreachable) {
        let is_ours = self.tunnels.state_mut().on_unreachable(id, said);
        if is_ours {
            self.tell_unanswered();
        }
    }

    /// Tells the operator that nobody has answered the attempt so far.
    pub(super) fn tell_unanswered(&self) {
        let (attempt, unreachable) = {
            let connections = self.tunnels.state();
            (connections.attempt(), connections.unreachable())
        };
        let Some(attempt) = attempt else {
            return;
        };
        let address = attempt.address;
        let text = match unreachable {
            Some(said) => match said.own_fault() {
                Some(fault) => format!("{fault}; trying on"),
                None => format!(
                    "no answer from {address}: {said} (wrong port, server not running, or a firewall); trying on"
                ),
            },
            None => format!(
                "no answer from {address} in {} s (a firewall at either end or on the way drops UDP, wrong port, or server not running); trying on",
                ANSWER.as_secs()
            ),
        };
        self.reporter
            .tell_of(attempt.server, Told::Unanswered, &text);
    }

    /// The server does not know the key that was shown: true if that was our own, and the next attempt is to show the one-time key.
    pub(super) fn turns_to_enrolment(&self, id: ConnectionId) -> bool {
        let Some(attempt) = self.tunnels.state().attempt_of(id) else {
            return false;
        };
        if attempt.enrols {
            self.servers.on_enrolment_answered(attempt.server);
            return false;
        }
        if !self.servers.enrol_at(attempt.server) {
            return false;
        }
        tracing::info!("the server does not know this client yet: joining with the code's key");
        self.tunnels.state_mut().end_attempt();
        self.schedule
            .tell(|retry, now| retry.on_failed(now, Failure::OtherKey));
        self.schedule.wake();
        true
    }

    /// The connection with the one-time key is there.
    pub(super) fn name_own_key(&self, id: ConnectionId) {
        let key = self.servers.own_key().to_bytes();
        self.tunnels
            .change(id, |connection| connection.tunnel.enrol(key));
    }

    /// The server has answered; `at` is when the one-time key became void, in seconds since 1970.
    pub(super) fn on_enrolled(&self, id: ConnectionId, code: EnrolCode, at: u64) {
        let attempt = self.tunnels.state().attempt_of(id);
        let Some(attempt) = attempt.filter(|attempt| attempt.enrols) else {
            return;
        };
        self.tunnels.state_mut().end_attempt();
        self.tunnels.close(id, "the client has named its key");
        // What the server could not write it may write later.
        if code != EnrolCode::Internal {
            self.servers.on_enrolment_answered(attempt.server);
        }
        let failure = match code {
            EnrolCode::Ok => {
                tracing::info!("joined: the server knows this client's own key from now on");
                Failure::OtherKey
            }
            refused => {
                let text = enrol::explain(refused, at);
                self.reporter.tell_of(attempt.server, Told::Refused, &text);
                Failure::Refused
            }
        };
        self.schedule
            .tell(|retry, now| retry.on_failed(now, failure));
        self.schedule.wake();
    }
}
