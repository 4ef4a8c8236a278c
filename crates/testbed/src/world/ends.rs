//! Parts that the engines of a world are made from.

use std::sync::Arc;

use bentpipe_proto::tunnel::{Families, Hello, VERSION, capability};
use bentpipe_tunnel::engine::identity::{self, PrivateKey};
use bentpipe_tunnel::engine::{EngineConfig, Link, ServerSetup, Wishes};
use bentpipe_units::Seed;
use quinn_proto::crypto::ClientConfig;

use super::Setup;

/// Keys, seeds and settings of both ends.
pub(super) struct Ends {
    client: PrivateKey,
    server: PrivateKey,
    pub(super) seed: Seed,
    /// Facts that terminals know of the link.
    pub(super) known: Link,
    wishes: Wishes,
}

impl Ends {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            client: PrivateKey::generate().expect("random numbers"),
            server: PrivateKey::generate().expect("random numbers"),
            seed: Seed::new(setup.seed),
            known: setup.known.unwrap_or_else(|| setup.profile.into()),
            wishes: setup.wishes,
        }
    }

    /// Cryptography with which a terminal connects.
    pub(super) fn crypto(&self) -> Arc<dyn ClientConfig> {
        identity::client_crypto(&self.client, self.server.public(), false, None)
            .expect("keys make a TLS configuration")
    }

    /// Settings of the terminal `index`.
    pub(super) fn terminal(&self, setup: &Setup<'_>, index: u8) -> EngineConfig {
        let seed = self.seed.stream(&format!("client {index}"));
        let mut config = config(&self.client, seed, None, setup.own.unwrap_or(self.wishes));
        config.hello.forward = setup.forward.clone();
        config.hello.capabilities |= extras(setup.publish[0], setup.dns);
        config
    }

    /// Settings of the server as `setup` has it.
    pub(super) fn server(&self, setup: &Setup<'_>) -> EngineConfig {
        let mut config = self.plain_server("server");
        config.hello.capabilities |= extras(setup.publish[1], setup.dns);
        config
    }

    /// Settings of a server that carries streams and packets alone; `name` makes its random numbers its own.
    pub(super) fn plain_server(&self, name: &str) -> EngineConfig {
        let setup = ServerSetup {
            crypto: identity::server_crypto(&self.server, Arc::new(|_| true), false, None)
                .expect("keys make a TLS configuration"),
            token_key: identity::token_key(&self.server),
        };
        config(
            &self.server,
            self.seed.stream(name),
            Some(setup),
            self.wishes,
        )
    }
}

/// Capabilities of an end beyond those of all, as bits.
fn extras(publishes: bool, dns: bool) -> u64 {
    let publishing = if publishes { capability::PUBLISH } else { 0 };
    publishing | if dns { capability::DNS } else { 0 }
}

fn config(
    own: &PrivateKey,
    seed: Seed,
    server: Option<ServerSetup>,
    wishes: Wishes,
) -> EngineConfig {
    EngineConfig {
        pool: Arc::default(),
        reset_key: identity::reset_key(own),
        shard: server.is_some().then_some(0),
        server,
        hello: Hello {
            version: VERSION,
            agent: "simulation".into(),
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            initial_credit: 1 << 20,
            max_flows: 50_000,
            capabilities: capability::PACKETS,
            ..Hello::default()
        },
        memory: 256 << 20,
        wishes,
        seed,
        deterministic: true,
    }
}
