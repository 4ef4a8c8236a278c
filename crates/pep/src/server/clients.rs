//! Clients that may connect. The list is shared by all shards and replaced whole on reload; the TLS verifier asks it during every
//! handshake. Which connection speaks for whom is in `registry.rs`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use bentpipe_proto::tunnel::EnrolCode;
use bentpipe_units::BitRate;

use super::enrolled::Recorded;
use crate::bucket::Bucket;
use crate::config::{ClientKey, Permit, ServerConfig};
use crate::net::dial::Rights;
use crate::net::policy::Policy;
use bentpipe_tunnel::engine::Connection;
use bentpipe_tunnel::engine::identity::PublicKey;

/// One client with its rights.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) rights: Rights,
    /// Ports of the server that it may publish.
    pub(super) publish: Vec<Permit>,
    pub(super) max_flows: u64,
    memory: u64,
    max_rate: Option<BitRate>,
    /// Flows and packets a second, over all of its connections.
    flows: Mutex<Bucket>,
    packets: Mutex<Bucket>,
}

impl Client {
    /// True if it may open one more flow now.
    pub(super) fn may_open(&self, now: Instant) -> bool {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        flows.take(now)
    }

    /// True if it may send one more packet now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        packets.take(now)
    }

    /// Bytes that its tunnel may hold, and its sealed flows as many.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// True if what it is sent has a highest rate.
    pub(super) fn is_paced(&self) -> bool {
        self.max_rate.is_some()
    }

    /// Sets the limits of a connection of this client.
    pub(super) fn limit(&self, now: Instant, connection: &mut Connection) {
        connection.tunnel.set_memory(self.memory);
        connection.tunnel.set_max_flows(self.max_flows);
        connection.set_max_rate(now, self.max_rate);
        connection.set_max_flows(self.max_flows);
    }
}

/// A client that joins by a code, or has joined.
struct Enrolment {
    client: Arc<Client>,
    /// Seconds since 1970.
    expires: u64,
}

/// Clients that may connect, by key.
#[derive(Default)]
struct ClientTable {
    clients: HashMap<PublicKey, Arc<Client>>,
    enrolments: HashMap<PublicKey, Enrolment>,
}

/// The live list of clients.
pub(super) struct Clients {
    table: Arc<RwLock<ClientTable>>,
    recorded: Recorded,
}

impl Clients {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let recorded = Recorded::load(&config.state_dir);
        Self {
            table: Arc::new(RwLock::new(table(config, &recorded))),
            recorded,
        }
    }

    pub(super) fn replace(&self, config: &ServerConfig) {
        let mut current = self.table.write().unwrap_or_else(PoisonError::into_inner);
        self.recorded.read_again();
        // Under the lock: a client that joins meanwhile is in the list that is made here, or enters it after.
        *current = table(config, &self.recorded);
    }

    fn read(&self) -> RwLockReadGuard<'_, ClientTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &PublicKey) -> Option<Arc<Client>> {
        self.read().clients.get(key).cloned()
    }

    /// Clients that have a key, and those that are to name one.
    pub(super) fn len(&self) -> usize {
        let table = self.read();
        let pending = |key: &&PublicKey| self.recorded.of(key).is_none();
        table.clients.len() + table.enrolments.keys().filter(pending).count()
    }

    /// True if some client is to join by a code.
    pub(super) fn awaits(&self) -> bool {
        let pending = |key| self.recorded.of(key).is_none();
        self.read().enrolments.keys().any(pending)
    }

    /// True if `key` lets a client name its own, or did.
    pub(super) fn is_enrolment(&self, key: &PublicKey) -> bool {
        self.read().enrolments.contains_key(key)
    }

    /// Name of the client that joins with the enrolment key `key`.
    pub(super) fn enrolment_name(&self, key: &PublicKey) -> String {
        let table = self.read();
        let name = table.enrolments.get(key).map(|it| it.client.name.clone());
        name.unwrap_or_else(|| "unknown".to_owned())
    }

    /// Lists `key` as that of the client that joins with `enrolment`, if it may still; `now` is in seconds since 1970.
    pub(super) fn enrol(
        &self,
        enrolment: &PublicKey,
        key: &PublicKey,
        now: u64,
    ) -> (EnrolCode, u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = table.enrolments.get(enrolment) else {
            return (EnrolCode::Internal, 0);
        };
        let own = self.recorded.of(enrolment).as_ref() == Some(key);
        if !own && (table.clients.contains_key(key) || table.enrolments.contains_key(key)) {
            return (EnrolCode::KeyTaken, 0);
        }
        let client = found.client.clone();
        let answer = self.recorded.enrol(enrolment, found.expires, key, now);
        if answer.0 == EnrolCode::Ok {
            table.clients.entry(*key).or_insert(client);
        }
        answer
    }

    /// Largest limit of any client: what a tunnel's HELLO announces before its client is known.
    pub(super) fn limits(&self) -> (u64, u64) {
        let table = self.read();
        let all = || {
            let joining = table.enrolments.values().map(|it| &it.client);
            table.clients.values().chain(joining)
        };
        let flows = all().map(|client| client.max_flows).max().unwrap_or(0);
        let memory = all().map(|client| client.memory).max().unwrap_or(0);
        (flows, memory)
    }

    /// The first address of every prefix that some client is expressly allowed, one of each family that has any.
    pub(super) fn allowed(&self) -> Vec<IpAddr> {
        let table = self.read();
        table
            .clients
            .values()
            .flat_map(|client| client.rights.policy.allow.iter())
            .map(|allowed| allowed.prefix().addr())
            .collect()
    }

    /// Question that the TLS verifier asks.
    pub(super) fn verifier(&self) -> Arc<dyn Fn(&PublicKey) -> bool + Send + Sync> {
        let table = self.table.clone();
        Arc::new(move |key| {
            let table = table.read().unwrap_or_else(PoisonError::into_inner);
            table.clients.contains_key(key) || table.enrolments.contains_key(key)
        })
    }
}

fn table(config: &ServerConfig, recorded: &Recorded) -> ClientTable {
    let mut table = ClientTable::default();
    for listed in &config.clients {
        let client = Arc::new(Client::new(listed));
        match listed.key {
            ClientKey::Own(key) => {
                table.clients.insert(key, client);
            }
            ClientKey::Enrolment { key, expires } => {
                if let Some(own) = recorded.of(&key) {
                    table.clients.insert(own, client.clone());
                }
                table.enrolments.insert(key, Enrolment { client, expires });
            }
        }
    }
    table
}

impl Client {
    fn new(client: &crate::config::Client) -> Self {
        Self {
            name: client.name.clone(),
            rights: Rights::new(Policy {
                allow: client.allow.clone(),
                only: client.only.clone(),
            }),
            publish: client.publish.clone(),
            max_flows: u64::from(client.max_flows),
            memory: client.memory.as_u64(),
            max_rate: client.max_rate,
            flows: Mutex::new(Bucket::new(client.max_flows_per_s)),
            packets: Mutex::new(Bucket::new(client.max_packets_per_s)),
        }
    }
}
