//! Servers of the configuration: their addresses, and the keys that are shown to them.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_tunnel::engine::identity;
use quinn_proto::crypto::{ClientConfig as ClientCrypto, HmacKey};

use super::SharedKeyLog;
use super::connections::Attempt;
use super::enrol::{self, Enrolments};
use super::memory::ClientMemory;
use crate::config::{ClientConfig, Server, ServerAddress};
use crate::keys::{PrivateKey, PublicKey};
use crate::net::lookup::Lookups;
use crate::net::nat64;
use crate::process::{self, RunError};

/// An address that a network without IPv4 has a route to, as to all of the IPv6 internet.
const ANYWHERE: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

/// Servers of the configuration, by their index there.
pub(super) struct Servers {
    config: Rc<ClientConfig>,
    own: PublicKey,
    reset_key: Arc<dyn HmacKey>,
    crypto: Vec<Arc<dyn ClientCrypto>>,
    /// Keys of codes to join by.
    enrolments: Enrolments,
    remembered: RefCell<ClientMemory<SocketAddr>>,
    lookups: Lookups,
    /// The socket is IPv6 and reaches IPv4 addresses in their mapped form.
    dual_stack: bool,
}

impl Servers {
    /// Servers of `config`, to which `key` is shown, or the one-time keys of `enrolments`.
    pub(super) fn new(
        config: Rc<ClientConfig>,
        (key, enrolments): (&PrivateKey, &[Option<PrivateKey>]),
        key_log: &SharedKeyLog,
        dual_stack: bool,
    ) -> Result<Self, RunError> {
        let enrolments = Enrolments::new(&config, enrolments, key_log)?;
        let servers = config.servers.iter();
        let crypto = servers.map(|server| enrol::crypto(&config, server, key, key_log));
        let crypto = crypto.collect::<Result<_, _>>()?;
        let remembered =
            ClientMemory::load(&config.state_dir, "servers.json", "the server's address");
        Ok(Self {
            lookups: super::lookups(&config),
            config,
            own: key.public(),
            reset_key: identity::reset_key(key),
            crypto,
            enrolments,
            remembered: RefCell::new(remembered),
            dual_stack,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.config.servers.len()
    }

    /// The address as it is configured.
    pub(super) fn address(&self, server: usize) -> &ServerAddress {
        &self.config.servers[server].address
    }

    pub(super) fn is_named(&self, server: usize) -> bool {
        matches!(self.address(server), ServerAddress::Name { .. })
    }

    /// Key that the server knows this client by.
    pub(super) fn own_key(&self) -> &PublicKey {
        &self.own
    }

    /// TLS of an attempt at a server; true if that shows the one-time key.
    pub(super) fn crypto(&self, server: usize) -> (Arc<dyn ClientCrypto>, bool) {
        match self.enrolments.crypto(server) {
            Some(crypto) => (crypto, true),
            None => (self.crypto[server].clone(), false),
        }
    }

    /// TLS of a handshake that is to lead to no tunnel, and the key that the client believes resets by.
    pub(super) fn trial_crypto(&self, server: usize) -> (Arc<dyn ClientCrypto>, Arc<dyn HmacKey>) {
        (self.crypto[server].clone(), self.reset_key.clone())
    }

    /// Has attempts at a server show the one-time key; false if there is none, or the server has answered about it.
    pub(super) fn enrol_at(&self, server: usize) -> bool {
        self.enrolments.want(server)
    }

    /// A server has answered about the one-time key, or does not know it.
    pub(super) fn on_enrolment_answered(&self, server: usize) {
        self.enrolments.on_answered(server);
    }

    /// Addresses at which a server may be now: by its name, and of those first where it was last, for another may lead nowhere; without
    /// an answer, where it was last.
    pub(super) async fn resolve(&self, server: usize) -> io::Result<Vec<SocketAddr>> {
        let address = self.address(server);
        let (host, port) = match address {
            ServerAddress::Ip(address) => return Ok(self.routed(vec![*address]).await),
            ServerAddress::Name { host, port } => (host, *port),
        };
        let found = self.look_up(host, port).await;
        let remembered = self.remembered.borrow().get(&address.to_string());
        match (found, remembered) {
            (Ok(found), Some(known)) => Ok(first(found, known)),
            (Err(_), Some(known)) => Ok(vec![known]),
            (found, None) => found,
        }
    }

    /// Addresses that `address` leads to.
    pub(super) async fn find(&self, address: &ServerAddress) -> io::Result<Vec<SocketAddr>> {
        match address {
            ServerAddress::Ip(address) => Ok(self.routed(vec![*address]).await),
            ServerAddress::Name { host, port } => self.look_up(host, *port).await,
        }
    }

    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(self.routed(self.lookups.find(host, port).await?).await)
    }

    /// The `addresses`; where the machine has a way into IPv6 and to none of them, those in their place that the network's
    /// translator leads to them (RFC 7050), if it has one.
    async fn routed(&self, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let has_way = |address| process::source_towards(address).is_some();
        let lost = !addresses.iter().copied().any(has_way);
        let port = addresses.first().map_or(0, SocketAddr::port);
        if !lost || process::source_address(ANYWHERE.into()).is_none() {
            return addresses;
        }
        let shown = self.lookups.find(nat64::PROBE, port).await;
        let shown: Vec<_> = shown.iter().flatten().map(SocketAddr::ip).collect();
        let translated = translated(&addresses, &shown);
        match translated.is_empty() {
            true => addresses,
            false => translated,
        }
    }

    /// True if the name of a server leads elsewhere by now than to `address`.
    pub(super) async fn has_moved(&self, (server, address): (usize, SocketAddr)) -> bool {
        let ServerAddress::Name { host, port } = self.address(server) else {
            return false;
        };
        let found = self.lookups.find_all(host, *port).await;
        let Ok(addresses) = found else {
            return false;
        };
        !self.routed(addresses).await.contains(&address)
    }

    /// Keeps the address of a server that was given by name and has proved to be it.
    pub(super) fn remember(&self, attempt: &Attempt) {
        if self.is_named(attempt.server) {
            let name = self.address(attempt.server).to_string();
            self.remembered.borrow_mut().put(&name, attempt.address);
        }
    }

    /// Addresses of all servers, as far as they are known.
    pub(super) fn known(&self) -> Vec<IpAddr> {
        let remembered = self.remembered.borrow();
        let known = |server: &Server| match &server.address {
            ServerAddress::Ip(address) => Some(address.ip()),
            name @ ServerAddress::Name { .. } => Some(remembered.get(&name.to_string())?.ip()),
        };
        self.config.servers.iter().filter_map(known).collect()
    }

    /// An address in the form that our socket takes.
    pub(super) fn remote(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.dual_stack => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
            }
            other => other,
        }
    }
}

/// Addresses by which translators lead to the IPv4 ones of `addresses`, if `shown` is what the name that shows a translator's prefix
/// leads to.
fn translated(addresses: &[SocketAddr], shown: &[IpAddr]) -> Vec<SocketAddr> {
    let known = nat64::discover(shown);
    let of = |address: &SocketAddr| {
        let known = match address {
            SocketAddr::V4(v4) => known.iter().map(|one| one.translated(*v4.ip())).collect(),
            SocketAddr::V6(_) => Vec::new(),
        };
        let port = address.port();
        known
            .into_iter()
            .map(move |ip| SocketAddr::new(ip.into(), port))
    };
    addresses.iter().flat_map(of).collect()
}

/// `addresses` with `known` first, if it is one of them.
fn first(mut addresses: Vec<SocketAddr>, known: SocketAddr) -> Vec<SocketAddr> {
    if let Some(at) = addresses.iter().position(|address| *address == known) {
        addresses[..=at].rotate_right(1);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_server_was_comes_first_and_nothing_else_moves() {
        let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        assert_eq!(first(vec![a, b, c], c), [c, a, b]);
        assert_eq!(first(vec![a, b], a), [a, b]);
        assert_eq!(first(vec![a, b], c), [a, b]);
    }

    #[test]
    fn a_translator_leads_to_ipv4_addresses_alone() {
        let addresses: Vec<SocketAddr> = ["192.0.2.1:4433", "[2001:db8::1]:4433"]
            .map(|text| text.parse().unwrap())
            .into();
        let shown: Vec<IpAddr> = ["64:ff9b::c000:aa", "64:ff9b::c000:ab", "192.0.0.170"]
            .map(|text| text.parse().unwrap())
            .into();
        let expected: SocketAddr = "[64:ff9b::192.0.2.1]:4433".parse().unwrap();
        assert_eq!(translated(&addresses, &shown), [expected]);
        assert!(translated(&addresses, &shown[2..]).is_empty());
        assert!(translated(&addresses[1..], &shown).is_empty());
    }
}
