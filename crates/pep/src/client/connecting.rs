//! From a configured server to a connection under way: carries out what `retry.rs` decides, and tells it what came of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bentpipe_congestion::paths::PathKey;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until};

use super::connections::Attempt;
use super::link::Choice;
use super::report::Told;
use super::retry::{ANSWER, Failure, Start, Step};
use super::session::Session;
use crate::config::ServerAddress;
use crate::process;
use bentpipe_tunnel::engine::{ConnectionId, FirstWords, Unreachable};

/// Datagrams that an attempt sends before it was answered: ClientHello with an ML-KEM share takes two, which are sent once
/// more when quinn's timer expires.
const DATAGRAMS: u64 = 4;
/// And with two copies of each of the first.
const WITH_COPIES: u64 = 8;

/// Time from one look at the network to the next while no tunnel answers.
const LOOK: Duration = Duration::from_secs(1);

/// Time from one lookup of the servers' names to the next while no tunnel answers.
const NAMES: Duration = Duration::from_secs(20);

/// Age from which what was learned has been taken in already.
const FRESH: Duration = Duration::from_secs(5);

/// Bound on an attempt that nobody answers.
pub(super) const fn first_words(copies: bool) -> FirstWords {
    FirstWords {
        datagrams: if copies { WITH_COPIES } else { DATAGRAMS },
        copies,
    }
}

/// The network as it was at the last look.
#[derive(Debug, Default)]
struct Surroundings {
    /// Address looked for, and ours that led there.
    source: Option<(SocketAddr, Option<IpAddr>)>,
    /// Instant at which names were last looked up.
    names: Option<Instant>,
}

impl Session {
    /// Makes attempts while a tunnel is wanted; never ends.
    pub(crate) async fn keep_up(&self) {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Surroundings::default();
        loop {
            if self.is_stopped() {
                self.kick.notified().await;
                continue;
            }
            let attempt = self.tunnels.state().attempt();
            let heard = attempt.and_then(|attempt| self.tunnels.heard(attempt.id));
            let step = self.retry.borrow_mut().poll(process::now(), heard);
            match step {
                Step::Start(start) => self.start(start).await,
                Step::Unanswered => self.tell_unanswered(),
                Step::GiveUp { answered } => self.give_up(answered),
                Step::Wait(until) => self.wait(until, &mut tick, &mut seen).await,
            }
        }
    }

    async fn wait(&self, until: Option<Instant>, tick: &mut Interval, seen: &mut Surroundings) {
        let due = async {
            match until {
                Some(until) => sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.kick.notified() => {}
            _ = tick.tick() => {
                self.watch_silence();
                if !self.carries() {
                    self.look_around(seen).await;
                }
            }
        }
    }

    /// Looks for changes of the network that make an attempt worth its bytes.
    async fn look_around(&self, seen: &mut Surroundings) {
        let tried = {
            let connections = self.tunnels.state();
            connections.attempt().or(connections.winner())
        };
        let remote = tried.map(|attempt| attempt.address).or_else(|| {
            let address = &self.config.servers[0].address;
            match address {
                ServerAddress::Ip(address) => Some(*address),
                ServerAddress::Name { .. } => None,
            }
        });
        let source = remote.map(|remote| (remote, process::source_address(remote.ip())));
        let before = std::mem::replace(&mut seen.source, source);
        let moved = before.zip(source).is_some_and(|(before, after)| {
            before.0 == after.0 && before.1 != after.1 && after.1.is_some()
        });
        let now = process::now();
        let due = seen.names.is_none_or(|last| now >= last + NAMES);
        let renamed = due && self.tunnels.ready().is_none() && {
            seen.names = Some(now);
            self.has_new_address().await
        };
        if moved || renamed {
            self.retry.borrow_mut().on_changed(process::now());
        }
    }

    /// True if the name of the server that was tried last leads elsewhere by now. Also after that was refused: somebody else may
    /// have the old address.
    async fn has_new_address(&self) -> bool {
        let tried = self.tunnels.state().tried();
        let Some((server, address)) = tried else {
            return false;
        };
        let ServerAddress::Name { host, port } = &self.config.servers[server].address else {
            return false;
        };
        let found = self.lookups.find(host, *port).await;
        found.is_ok_and(|addresses| !addresses.contains(&address))
    }

    async fn start(&self, start: Start) {
        let name = &self.config.servers[start.server].address;
        let found = self.resolve(name).await;
        if self.is_stopped() || !self.retry.borrow().is_trying() {
            return;
        }
        let mut addresses = match found {
            Ok(addresses) => addresses,
            Err(error) => {
                return self.fail(start.server, &format!("cannot resolve {name}: {error}"));
            }
        };
        if let Some(silent) = self.installed() {
            addresses.retain(|address| *address != silent.address);
        }
        if addresses.is_empty() {
            // The server of a silent tunnel, where it was.
            return self
                .retry
                .borrow_mut()
                .on_failed(process::now(), Failure::Local);
        }
        let routed = addresses
            .iter()
            .map(|address| (*address, process::source_address(address.ip())))
            .filter(|(_, source)| source.is_some());
        let routed: Vec<_> = routed.collect();
        let Some((address, source)) = routed.get(start.round % routed.len().max(1)).copied() else {
            let text = format!("no route to {}", addresses[0].ip());
            return self.fail(start.server, &text);
        };
        if let Err(error) = self.connect(start, address, source) {
            self.fail(
                start.server,
                &format!("cannot connect to {address}: {error}"),
            );
        }
    }

    /// The attempt that is the tunnel now, if there is one.
    fn installed(&self) -> Option<Attempt> {
        let connections = self.tunnels.state();
        connections.tunnel().and(connections.winner())
    }

    /// An attempt could not begin.
    fn fail(&self, server: usize, text: &str) {
        let failure = Failure::Local;
        self.retry.borrow_mut().on_failed(process::now(), failure);
        self.tell_of(server, Told::Trying, text);
    }

    fn connect(
        &self,
        start: Start,
        address: SocketAddr,
        source: Option<IpAddr>,
    ) -> Result<(), quinn_proto::ConnectError> {
        let now = process::now();
        let choice = self.choose(start.server, source);
        let enrolment = self.enrolments.take(start.server);
        let enrols = enrolment.is_some();
        let crypto = enrolment.unwrap_or_else(|| self.crypto[start.server].clone());
        let remote = match address {
            SocketAddr::V4(v4) if self.dual_stack => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
            }
            other => other,
        };
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
        let path = self.path(&attempt);
        self.tunnels.shard().change(id, |connection| {
            connection.set_first_words(first_words(start.copies));
            if let Some(path) = path {
                self.paths.resume(&path, now, connection);
            }
        });
        self.tunnels.state_mut().start(attempt);
        // The rules must leave this address alone, too.
        self.tell_reach();
        Ok(())
    }

    /// The attempt has had its time.
    fn give_up(&self, answered: bool) {
        if !answered {
            self.tell_unanswered();
        }
        let attempt = self.tunnels.state_mut().end_attempt();
        let Some(attempt) = attempt else {
            return;
        };
        if answered {
            let text = format!(
                "{} answers, and its handshake does not end",
                attempt.address
            );
            self.tell_of(attempt.server, Told::Trying, &text);
            return self.tunnels.close(attempt.id);
        }
        let now = process::now();
        let abandon =
            |connection: &mut bentpipe_tunnel::engine::Connection| connection.abandon(now);
        self.tunnels.shard().change(attempt.id, abandon);
    }

    /// The network says that the server cannot be reached.
    pub(super) fn on_unreachable(&self, id: ConnectionId, said: Unreachable) {
        let is_ours = self.tunnels.state_mut().on_unreachable(id, said);
        if is_ours {
            self.tell_unanswered();
        }
    }

    fn tell_unanswered(&self) {
        let (attempt, unreachable) = {
            let connections = self.tunnels.state();
            (connections.attempt(), connections.unreachable())
        };
        let Some(attempt) = attempt else {
            return;
        };
        let address = attempt.address;
        let text = match unreachable {
            Some(said) => format!(
                "no answer from {address}: {said} (wrong port, server not running, or a firewall); trying on"
            ),
            None => format!(
                "no answer from {address} in {} s (UDP blocked, wrong port, or server not running); trying on",
                ANSWER.as_secs()
            ),
        };
        self.tell_of(attempt.server, Told::Unanswered, &text);
    }

    async fn resolve(&self, address: &ServerAddress) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = match address {
            ServerAddress::Ip(address) => return Ok(vec![*address]),
            ServerAddress::Name { host, port } => (host, *port),
        };
        let found = self.lookups.find(host, port).await;
        found.or_else(|error| {
            let remembered = self.remembered.borrow().get(&address.to_string());
            remembered.map(|known| vec![known]).ok_or(error)
        })
    }

    fn path(&self, attempt: &Attempt) -> Option<PathKey> {
        self.path_to(attempt.server, attempt.source)
    }

    fn path_to(&self, server: usize, source: Option<IpAddr>) -> Option<PathKey> {
        let server = self.config.servers[server].public_key;
        Some(PathKey::new(&server.to_string(), source?))
    }

    /// Chooses what to take the link to a server for.
    fn choose(&self, server: usize, source: Option<IpAddr>) -> Choice {
        let path = self.path_to(server, source);
        let seen = path.and_then(|path| self.links.borrow().get(&path.to_string()));
        Choice::new(&self.config.links[0], seen)
    }

    /// Looks at the tunnel's RTT and remembers the link if that shows something new.
    pub(super) fn measure_link(&self) {
        let winner = self.tunnels.state().winner();
        let Some(attempt) = winner else {
            return;
        };
        let rtt = self
            .tunnels
            .shard()
            .peek(|engine| Some(engine.peek(attempt.id)?.rtt()));
        let Some((smoothed, least)) = rtt else {
            return;
        };
        let mut meter = self.meter.borrow_mut();
        meter.look(process::now(), least, smoothed);
        let Some((path, seen)) = self.path(&attempt).zip(meter.seen()) else {
            return;
        };
        let known = self.links.borrow().get(&path.to_string());
        if let Some(news) = attempt.choice.news(seen, known)
            && process::source_address(attempt.address.ip()) == attempt.source
        {
            self.links.borrow_mut().put(&path.to_string(), news);
        }
    }

    /// Takes in what the tunnel shows of its path, unless we have moved to another network meanwhile.
    pub(super) fn learn_path(&self) {
        let winner = self.tunnels.state().winner();
        let Some(attempt) = winner else {
            return;
        };
        let now = process::now();
        let saved = self
            .tunnels
            .shard()
            .peek(|engine| engine.peek(attempt.id)?.saved(now));
        if let Some(saved) = saved.filter(|saved| saved.age < FRESH)
            && process::source_address(attempt.address.ip()) == attempt.source
            && let Some(path) = self.path(&attempt)
        {
            self.paths.learn(path, &saved);
        }
    }

    /// Keeps the address of a server that was given by name and has proved to be it.
    pub(super) fn remember(&self) {
        let Some(Attempt {
            server, address, ..
        }) = self.tunnels.state().winner()
        else {
            return;
        };
        let name = &self.config.servers[server].address;
        if matches!(name, ServerAddress::Name { .. }) {
            self.remembered.borrow_mut().put(&name.to_string(), address);
        }
    }
}
