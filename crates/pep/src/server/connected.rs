//! A client that is connected to a shard: what is held of it, and what is told of it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_congestion::paths::PathKey;

use super::clients::Client;
use super::crossing::Crossing;
use super::publish::Ports;
use super::queries::Asking;
use crate::paths::PathMemory;
use crate::process;
use crate::sampler::Sampler;
use crate::status::{self, TunnelState};
use bentpipe_tunnel::engine::Connection;
use bentpipe_tunnel::engine::identity::PublicKey;
use bentpipe_tunnel::text::printable;

/// A connected client.
pub(super) struct Connected {
    pub(super) key: PublicKey,
    pub(super) client: Arc<Client>,
    sampler: Sampler,
    pub(super) crossing: Crossing,
    /// Ports that it has published.
    pub(super) ports: Ports,
    pub(super) asking: Asking,
    /// True once the client was asked for another tunnel: this one ends when its flows have.
    pub(super) renewed: bool,
    /// The client has said HELLO.
    greeted: Cell<bool>,
}

/// The path by which the client with this key is connected.
pub(super) fn path(connection: &Connection, client: &PublicKey) -> PathKey {
    PathKey::new(&client.to_string(), connection.peer().ip())
}

impl Connected {
    /// A client that has just connected, and has asked for nothing.
    pub(super) fn new(key: PublicKey, client: Arc<Client>, crossing: Crossing) -> Self {
        Self {
            key,
            client,
            sampler: Sampler::new(process::now()),
            crossing,
            ports: Ports::default(),
            asking: Asking::default(),
            renewed: false,
            greeted: Cell::new(false),
        }
    }

    /// Logs that the tunnel is ready; the number of the client's process, once its HELLO is here.
    pub(super) fn greet(&self, connection: &Connection) -> Option<u64> {
        let hello = connection.tunnel.agreement().remote()?;
        self.greeted.set(true);
        let (client, agent) = (&self.client.name, printable(&hello.agent));
        let address = connection.peer();
        let wire = match connection.is_on_reliable_wire() {
            true => "TLS",
            false => "UDP",
        };
        match connection.resumed() {
            Some(saved) => {
                let rate = status::rate(saved.rate.as_u64());
                tracing::info!(target: crate::events::STATE, client, agent, %address, wire, "connected, resumed at {rate}");
            }
            None => {
                tracing::info!(target: crate::events::STATE, client, agent, %address, wire, "connected");
            }
        }
        Some(hello.instance)
    }

    /// True once the client has said HELLO.
    pub(super) fn is_greeted(&self) -> bool {
        self.greeted.get()
    }

    /// Judges by the rights of `client` from now on, which the configuration has changed.
    pub(super) fn set_client(&mut self, client: Arc<Client>) {
        self.crossing.set_client(process::now(), client.clone());
        self.client = client;
    }

    /// Takes in what the tunnel shows of its path. A client that moves to another network starts a controller anew.
    pub(super) fn learn(&self, now: Instant, connection: &Connection, paths: &PathMemory) {
        if let Some(saved) = connection.saved(now) {
            paths.learn(path(connection, &self.key), &saved);
        }
    }

    /// The client's part of `status`; to be asked for once a second.
    pub(super) fn sample(&mut self, now: Instant, connection: &Connection) -> status::Session {
        self.crossing.handle_timeout(now);
        let of = format!(" of {}", self.client.name);
        self.sampler.tell_of_shed(now, connection, &of);
        let mut sampled = self.sampler.sample(now, connection, TunnelState::Ready);
        self.crossing.count(&mut sampled);
        sampled.publish = self.ports.report();
        sampled
    }
}
