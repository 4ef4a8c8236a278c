//! DNS for the clients: queries go on to the resolvers that the operator names, or that this machine uses.
//!
//! Each attempt has a socket of its own, connected, so that an answer must come from the resolver's address to a port that
//! the kernel has chosen at random; identifier, question and the letters' case are compared in `proto/dns/outgoing.rs`. What does not
//! fit is dropped, and the wait goes on. Earlier attempts stay open beside later ones.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::dns::{Answer, Query, Refusal};
use resolv_conf::ScopedIp;
use tokio::time::timeout;

use super::answering::Answering;
use super::names::{self, Later, LookupPermits, NameAddresses};
use super::nat64;
use super::race::{Outcome, Race};
use crate::config::scoped;
use crate::process;
use crate::throttle::Throttle;

/// Time that each attempt has before the next begins.
const ATTEMPTS: [Duration; 4] = [
    Duration::from_millis(1000),
    Duration::from_millis(1000),
    Duration::from_millis(1500),
    Duration::from_millis(2500),
];

/// After so long there is no answer, whatever is still under way (`PROTOCOL.md` §4.1).
const PATIENCE: Duration = Duration::from_secs(7);

/// Age that the list of this machine's resolvers may have.
const FRESH: Duration = Duration::from_secs(10);

/// Path of the list.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Path of the list that systemd-resolved itself asks, where [`RESOLV_CONF`] names systemd-resolved alone.
const BEHIND_RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// Longest list that is read, bytes.
const MAX_FILE: u64 = 64 << 10;

/// Resolvers of this machine that are asked; no resolver library uses more.
const MAX_SERVERS: usize = 3;

/// Names that this machine knows itself; read anew after this time.
const HOSTS: &str = "/etc/hosts";
const HOSTS_FRESH: Duration = Duration::from_secs(2);

/// One shard's way to the resolvers.
pub(crate) struct Resolver {
    configured: Rc<[SocketAddr]>,
    system: RefCell<Option<(Instant, Rc<[SocketAddr]>)>>,
    /// Number of the one that answered last.
    preferred: Cell<usize>,
    /// Names of /etc/hosts, and when that was read.
    hosts: RefCell<Option<(Instant, Rc<Hosts>)>>,
    /// The mark of its sockets, if they need one.
    mark: Option<u32>,
    /// Record of answers by which the operator hears of their end, if there is one.
    answering: Option<Arc<Answering>>,
}

/// Addresses by name, lower case.
type Hosts = HashMap<String, Vec<IpAddr>>;

impl Resolver {
    /// `configured`: whom to ask; empty: whom this machine asks.
    pub(crate) fn new(configured: &[SocketAddr]) -> Self {
        Self {
            configured: configured.into(),
            system: RefCell::default(),
            preferred: Cell::new(0),
            hosts: RefCell::default(),
            mark: None,
            answering: None,
        }
    }

    /// With `mark` on its sockets.
    pub(crate) fn marked(self, mark: Option<u32>) -> Self {
        Self { mark, ..self }
    }

    /// As this one; the operator hears by `answering` when nobody answers.
    pub(crate) fn heeded(self, answering: Arc<Answering>) -> Self {
        Self {
            answering: Some(answering),
            ..self
        }
    }

    /// The answer to a client's message, an error among them; `None` if the message deserves none.
    pub(crate) async fn resolve(&self, message: &[u8]) -> Option<Vec<u8>> {
        let query = match Query::decode(message) {
            Ok(query) => query,
            Err(Refusal::Answer(answer)) => return Some(answer),
            Err(Refusal::Silence) => return None,
        };
        let answer = self.ask(&query).await;
        if let Some(answering) = &self.answering {
            answering.take(process::now(), answer.is_some(), &self.servers());
        }
        answer.or_else(|| Some(query.unanswered()))
    }

    /// Message of a resolver, a failure among them; `None` if none answers.
    async fn ask(&self, query: &Query) -> Option<Vec<u8>> {
        let mut race = Race::new(query, self.mark);
        let answer = timeout(PATIENCE, self.run(&mut race)).await;
        answer.ok().flatten().or_else(|| race.into_failure())
    }

    /// The addresses of `name`, for this machine to dial: by the resolvers that are configured, after /etc/hosts, or as
    /// any program of this machine finds them, which takes one of the `permits` for each family.
    pub(crate) async fn look_up<'a>(
        &'a self,
        name: &'a str,
        permits: &LookupPermits,
    ) -> NameAddresses<'a> {
        match self.configured.is_empty() {
            true => names::look_up_by_system(name, Some(permits)).await,
            false => self.find(name).await,
        }
    }

    /// The addresses of `name` in /etc/hosts, or if it is not there, those that the resolvers know.
    pub(crate) async fn find<'a>(&'a self, name: &str) -> NameAddresses<'a> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            return vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()].into();
        }
        if let Some(known) = self.hosts().get(&name) {
            return known.clone().into();
        }
        self.addresses(&name).await
    }

    /// The addresses that resolvers know of `name`: IPv6 first where this machine has a route of it.
    async fn addresses<'a>(&'a self, name: &str) -> NameAddresses<'a> {
        let one = |ipv6| -> Later<'a> {
            let query = Query::for_addresses(name, ipv6);
            Box::pin(async move {
                let found = self.of_family(query, ipv6).await;
                Ok(names::at_no_port(found.unwrap_or_default()))
            })
        };
        names::either(one(true), one(false), names::is_routed).await
    }

    async fn of_family(&self, query: Option<Query>, ipv6: bool) -> Option<Vec<IpAddr>> {
        let query = query?;
        let answer = Answer::decode(&self.ask(&query).await?, &query).ok()?;
        let family = answer
            .addresses()
            .filter(|address| address.is_ipv6() == ipv6);
        Some(family.collect())
    }

    /// Addresses that the resolvers give for the name that shows a translator's prefix.
    pub(crate) async fn probe_translations(&self) -> Option<Vec<IpAddr>> {
        // Without one there is nothing to be found, which is no reason to complain.
        if self.servers().is_empty() {
            return None;
        }
        let query = Query::for_addresses(nat64::PROBE, true)?;
        let answer = Answer::decode(&self.ask(&query).await?, &query).ok()?;
        (!answer.is_failure()).then(|| answer.addresses().collect())
    }

    fn hosts(&self) -> Rc<Hosts> {
        let now = process::now();
        let known = self.hosts.borrow().clone();
        if let Some((read, hosts)) = known
            && now.saturating_duration_since(read) < HOSTS_FRESH
        {
            return hosts;
        }
        let bytes = crate::state::read(std::path::Path::new(HOSTS), MAX_FILE);
        let hosts = Rc::new(parse_hosts(&String::from_utf8_lossy(
            &bytes.unwrap_or_default(),
        )));
        *self.hosts.borrow_mut() = Some((now, hosts.clone()));
        hosts
    }

    async fn run(&self, race: &mut Race<'_>) -> Option<Vec<u8>> {
        let servers = self.servers();
        let first = self.preferred.get();
        let mut turn = first;
        for patience in ATTEMPTS {
            let Some(&server) = servers.get(turn % servers.len().max(1)) else {
                self.tell_of_none();
                return None;
            };
            race.ask(server).await;
            let until = process::now() + patience;
            loop {
                let left = until.saturating_duration_since(process::now());
                match timeout(left, race.outcome()).await {
                    Ok(Outcome::Answer(answer, server)) => {
                        let place = servers.iter().position(|known| *known == server);
                        self.preferred.set(place.unwrap_or(0));
                        return Some(answer);
                    }
                    Ok(Outcome::Again(server)) => race.ask(server).await,
                    Ok(Outcome::Next) | Err(_) => break,
                }
            }
            turn += 1;
            let all_failed = race.is_idle() && turn - first >= servers.len();
            if all_failed && race.has_failed() {
                return None;
            }
        }
        None
    }

    /// Says, at most once a minute, that there is nobody to be asked, unless the operator hears of answers anyway.
    fn tell_of_none(&self) {
        static TOLD: Throttle = Throttle::new();

        if self.answering.is_none() && TOLD.is_due(process::now()) {
            tracing::warn!("no resolver: name one in {RESOLV_CONF}");
        }
    }

    fn servers(&self) -> Rc<[SocketAddr]> {
        if !self.configured.is_empty() {
            return self.configured.clone();
        }
        let now = process::now();
        let known = self.system.borrow().clone();
        if let Some((read, servers)) = &known
            && now.saturating_duration_since(*read) < FRESH
        {
            return servers.clone();
        }
        let servers: Rc<[SocketAddr]> = match system_servers(self.mark.is_some()) {
            Ok(servers) => servers.into(),
            // Without a descriptor left to read it by, the file may still name those of before.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                process::tell_of_files(&error);
                return known.map(|(_, servers)| servers).unwrap_or_default();
            }
            Err(_) => Rc::default(),
        };
        *self.system.borrow_mut() = Some((now, servers.clone()));
        servers
    }
}

/// Lines of an address and its names (hosts(5)).
fn parse_hosts(text: &str) -> Hosts {
    let mut hosts = Hosts::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        for name in words {
            hosts
                .entry(name.to_ascii_lowercase())
                .or_default()
                .push(address);
        }
    }
    hosts
}

/// The resolvers that this machine uses; none if its file makes no sense. `marked`: those that programs of this machine ask in turn,
/// as far as it is known.
fn system_servers(marked: bool) -> io::Result<Vec<SocketAddr>> {
    let own = servers_in(RESOLV_CONF)?;
    // Its own questions have no mark.
    if marked && own.iter().all(|server| server.ip().is_loopback()) {
        return Ok(servers_in(BEHIND_RESOLVED).unwrap_or(own));
    }
    Ok(own)
}

fn servers_in(file: &str) -> io::Result<Vec<SocketAddr>> {
    let bytes = crate::state::read(std::path::Path::new(file), MAX_FILE)?;
    let Ok(config) = resolv_conf::Config::parse(&bytes) else {
        return Ok(Vec::new());
    };
    let servers = config.nameservers.iter().take(MAX_SERVERS);
    Ok(servers.filter_map(nameserver).collect())
}

/// Address of a resolver of resolv.conf; `None` if it is behind an interface that this machine has not got.
fn nameserver(server: &ScopedIp) -> Option<SocketAddr> {
    match server {
        ScopedIp::V6(address, Some(scope)) => scoped(&format!("{address}%{scope}"), 53),
        other => Some(SocketAddr::new(IpAddr::from(other), 53)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_programs_read_them() {
        let hosts = parse_hosts(
            "# comment\n10.0.0.1 one One.Example # two\n\nfd00::1\tone\nnonsense three\n10.0.0.2\n",
        );
        let of = |name: &str| hosts.get(name).cloned().unwrap_or_default();
        let expected: [IpAddr; 2] = [[10, 0, 0, 1].into(), "fd00::1".parse().expect("one")];
        assert_eq!(of("one"), expected);
        assert_eq!(of("one.example"), expected[..1]);
        assert!(of("two").is_empty() && of("three").is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_resolver_of_one_link_is_asked_there() {
        let text = b"nameserver fe80::53%lo\nnameserver 192.0.2.53\nnameserver fe80::54%nosuch0\n";
        let config = resolv_conf::Config::parse(text).expect("a configuration");
        let found: Vec<_> = config.nameservers.iter().filter_map(nameserver).collect();
        let expected = ["[fe80::53%1]:53", "192.0.2.53:53"];
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            expected
        );
    }
}
