//! From a configured server to a connection under way: whose turn it is, where it is, when to try again.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_proto::paths::PathKey;
use tokio::net::lookup_host;
use tokio::time::{sleep_until, timeout};

use super::link::Choice;
use super::report::Told;
use super::session::Session;
use crate::config::ServerAddress;
use crate::engine::ConnectionId;
use crate::process;

/// From one attempt to the next, before jitter of up to a quarter.
pub(super) const RETRY: Duration = Duration::from_secs(3);

/// Attempts under way at once.
const MAX_ATTEMPTS: usize = 4;

/// What was learned longer ago has been taken in already.
const FRESH: Duration = Duration::from_secs(5);

/// How long a name lookup may hold up an attempt before the remembered address is used.
const LOOKUP: Duration = Duration::from_secs(2);

/// A connection under way, or what became of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) id: ConnectionId,
    /// Index of the server in the configuration.
    pub(super) server: usize,
    pub(super) address: SocketAddr,
    /// Which of our addresses leads there.
    source: Option<IpAddr>,
    /// What is held of the link.
    pub(super) choice: Choice,
}

impl Session {
    /// Starts attempts while there is no tunnel; never ends.
    pub(crate) async fn keep_up(&self) {
        let mut changes = self.changes();
        loop {
            if self.ready.get().is_some() || self.draining.get() {
                let _ = changes.changed().await;
            } else if process::now() >= self.retry_at.get() {
                self.attempt().await;
                self.schedule_retry();
            } else {
                tokio::select! {
                    () = sleep_until(self.retry_at.get().into()) => {}
                    _ = changes.changed() => {}
                }
            }
        }
    }

    fn schedule_retry(&self) {
        let jitter =
            RETRY.mul_f64((process::random_u64() >> 11) as f64 / (1_u64 << 53) as f64 / 4.0);
        self.retry_at.set(process::now() + RETRY + jitter);
    }

    async fn attempt(&self) {
        let index = self.next_server.get();
        self.next_server
            .set((index + 1) % self.config.servers.len());
        let server = &self.config.servers[index];
        let address = match self.resolve(&server.address).await {
            Ok(address) => address,
            Err(error) => {
                return self.tell(
                    Told::Trying,
                    &format!("cannot resolve {}: {error}", server.address),
                );
            }
        };
        let now = process::now();
        let source = process::source_address(address.ip());
        let choice = self.choose(index, source);
        let crypto = self.crypto[index].clone();
        let remote = match address {
            SocketAddr::V4(v4) if self.dual_stack => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
            }
            other => other,
        };
        let started = self
            .shard
            .with(|engine| engine.connect(now, crypto, remote, choice.link));
        match started {
            Ok(id) => {
                let attempt = Attempt {
                    id,
                    server: index,
                    address,
                    source,
                    choice,
                };
                if let Some(path) = self.path(&attempt) {
                    self.shard.change(id, |connection| {
                        self.paths.resume(&path, now, connection);
                    });
                }
                let mut attempts = self.attempts.borrow_mut();
                attempts.push(attempt);
                let surplus = attempts.len().saturating_sub(MAX_ATTEMPTS);
                let old: Vec<_> = attempts.drain(..surplus).collect();
                drop(attempts);
                old.into_iter().for_each(|old| self.drop_connection(old.id));
                // The rules must leave this address alone, too.
                self.changes.send_replace(());
            }
            Err(error) => self.tell(
                Told::Trying,
                &format!("cannot connect to {address}: {error}"),
            ),
        }
    }

    async fn resolve(&self, address: &ServerAddress) -> io::Result<SocketAddr> {
        let (host, port) = match address {
            ServerAddress::Ip(address) => return Ok(*address),
            ServerAddress::Name { host, port } => (host, *port),
        };
        let found = timeout(LOOKUP, lookup_host((host.as_str(), port))).await;
        let fresh = match found {
            Ok(Ok(mut addresses)) => addresses.next().ok_or(io::ErrorKind::NotFound.into()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        fresh.or_else(|error| {
            self.remembered
                .borrow()
                .get(&address.to_string())
                .ok_or(error)
        })
    }

    fn path(&self, attempt: &Attempt) -> Option<PathKey> {
        self.path_to(attempt.server, attempt.source)
    }

    fn path_to(&self, server: usize, source: Option<IpAddr>) -> Option<PathKey> {
        let server = self.config.servers[server].public_key;
        Some(PathKey::new(&server.to_string(), source?))
    }

    /// What to take the link to a server for.
    fn choose(&self, server: usize, source: Option<IpAddr>) -> Choice {
        let path = self.path_to(server, source);
        let seen = path.and_then(|path| self.links.borrow().get(&path.to_string()));
        Choice::new(&self.config.links[0], seen)
    }

    /// Looks at the tunnel's RTT and remembers the link if that shows something new.
    pub(super) fn measure_link(&self) {
        let Some(attempt) = self.winner.get() else {
            return;
        };
        let rtt = self
            .shard
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
        let Some(attempt) = self.winner.get() else {
            return;
        };
        let now = process::now();
        let saved = self
            .shard
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
        }) = self.winner.get()
        else {
            return;
        };
        let name = &self.config.servers[server].address;
        if matches!(name, ServerAddress::Name { .. }) {
            self.remembered.borrow_mut().put(&name.to_string(), address);
        }
    }
}
