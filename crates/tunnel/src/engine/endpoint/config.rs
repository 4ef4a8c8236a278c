//! Settings of an engine.

use std::sync::Arc;

use bentpipe_proto::tunnel::Hello;
use bentpipe_units::Seed;
use quinn_proto::crypto::ServerConfig as ServerCrypto;

use super::super::settings::Wishes;
use crate::transport::MemoryPool;

/// Everything that is the same for all connections of an engine.
pub struct EngineConfig {
    /// Derived from the private key, so that a restarted server's resets are believed.
    pub reset_key: Arc<dyn quinn_proto::crypto::HmacKey>,
    /// The shard, for a server; `None` for a client.
    pub shard: Option<u8>,
    /// Server only: how to answer handshakes.
    pub server: Option<ServerSetup>,
    /// HELLO that every tunnel of this engine starts with.
    pub hello: Hello,
    /// Memory that one tunnel may hold for its LAN sides, in bytes.
    pub memory: u64,
    /// Memory for the tunnels of all engines of this process.
    pub pool: Arc<MemoryPool>,
    /// Wishes for what this side sends.
    pub wishes: Wishes,
    /// Seeds jitter; in simulations also connection IDs.
    pub seed: Seed,
    /// Simulations: every random number of quinn's repeats.
    pub deterministic: bool,
}

/// The server's half of [`EngineConfig`].
#[derive(Clone)]
pub struct ServerSetup {
    /// TLS.
    pub crypto: Arc<dyn ServerCrypto>,
    /// Keys of address-validation tokens.
    pub token_key: Arc<dyn quinn_proto::crypto::HandshakeTokenKey>,
}
