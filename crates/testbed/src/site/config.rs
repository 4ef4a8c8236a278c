//! Differences between sites.

use bentpipe_emulator::topology::GATEWAY_SAT;
use bentpipe_link::Scenario;

use super::{TLS_PORT, geo};

/// Ways to carry connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// In the tunnel.
    Tunnel,
    /// In TCP, split at both ends.
    Distributed,
    /// In TCP, split at the terminal alone.
    IntegratedAtTerminal,
    /// In TCP, split at the gateway alone.
    IntegratedAtGateway,
}

/// Differences between sites.
#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// Path of the client, which also makes the keys.
    pub program: &'static str,
    /// Path of the server.
    pub server_program: &'static str,
    /// Link between terminal and gateway.
    pub scenario: Scenario,
    /// Way to carry connections.
    pub carried: Carried,
    /// Keys of the client's configuration, before its first table.
    pub client_keys: String,
    /// Keys of the client's `[server]` table, beside address and public key.
    pub server_keys: String,
    /// Tables of the server's configuration, before its client's.
    pub server_tables: String,
    /// More keys of the client's entry in the server's configuration.
    pub grants: String,
    /// Tables of the client's configuration: front ends and rules.
    pub client_tables: String,
    /// The client runs as nobody, without capabilities.
    pub unprivileged: bool,
    /// The server has no capabilities.
    pub server_unprivileged: bool,
    /// The server's /etc/hosts; it then knows no other name server than a silent one.
    pub server_hosts: Option<String>,
}

impl SiteConfig {
    /// Configuration of a site with a tunnel over [`geo`] that takes in the LAN; `program` is the path of bentpipe.
    pub fn new(program: &'static str) -> Self {
        Self {
            program,
            server_program: program,
            scenario: geo(),
            carried: Carried::Tunnel,
            client_keys: String::new(),
            server_keys: String::new(),
            server_tables: String::new(),
            grants: String::new(),
            client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n".into(),
            unprivileged: false,
            server_unprivileged: false,
            server_hosts: None,
        }
    }

    /// Configuration of which both ends know of TLS; the client chooses by `wire`, as its file has it.
    #[must_use]
    pub fn with_tls(mut self, wire: &str) -> Self {
        let address = format!("{GATEWAY_SAT}:{TLS_PORT}");
        self.server_tables = format!("listen_tls = \"{address}\"\n{}", self.server_tables);
        self.server_keys = format!("tls = \"{address}\"\nwire = \"{wire}\"\n");
        self
    }
}
