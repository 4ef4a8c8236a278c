//! Routes, devices, firewalls and name servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use bentpipe_proto::dns::{Outgoing, Query};
use bentpipe_sys::command::run;
use bentpipe_sys::nftables::{self, BaseChain, FORWARD, INPUT, OUTPUT, POSTROUTING, PREROUTING};
use bentpipe_sys::reach::{Reach, RouteQuery};
use bentpipe_sys::{device, link};

use super::{MAX_FILE, sockets, text, tried};
use crate::doctor::facts::{NetworkFacts, Trial};

/// Addresses that stand for the internet.
const PUBLIC: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
];

/// Beginning of the names of our own tables.
const OURS: &str = "bentpipe_";

/// Words in `nft list chains` by which other programs show, and who they are.
const TRACES: [(&str, &str); 5] = [
    ("chain DOCKER", "Docker"),
    ("chain ufw-", "ufw"),
    ("table inet firewalld", "firewalld"),
    ("table inet fw4", "fw4 of OpenWrt"),
    ("chain LIBVIRT", "libvirt"),
];

pub(super) fn collect(net_admin: bool) -> NetworkFacts {
    let mut query = RouteQuery::open().ok();
    let mut has = |address: IpAddr| {
        let reach = query.as_mut().and_then(|query| query.ask(address).ok());
        reach == Some(Reach::Elsewhere)
    };
    let [ipv4, ipv6] = PUBLIC.map(&mut has);
    let links = link::links().unwrap_or_default();
    let tunnels = links.into_iter().filter(|link| link.name != device::NAME);
    NetworkFacts {
        ipv4,
        ipv6,
        uplinks: uplinks(),
        tunnels: tunnels
            .filter(|link| link.up)
            .filter_map(|link| Some((link.name, link.tunnel?)))
            .collect(),
        firewalls: tried(net_admin, traces),
        forward_chains: chains(
            net_admin,
            |chain| chain.hook == FORWARD && chain.drops,
            |chain| {
                let arguments = ["list", "chain", chain.family, &chain.table, &chain.name];
                run("nft", &arguments).map(|listing| lets_pass(&listing))
            },
        ),
        // What decides may stand in chains that are jumped to.
        inward_chains: chains(
            net_admin,
            |chain| [PREROUTING, INPUT].contains(&chain.hook),
            table,
        ),
        outward_chains: chains(
            net_admin,
            |chain| [OUTPUT, POSTROUTING].contains(&chain.hook),
            table,
        ),
        legacy_tables: !text("/proc/net/ip_tables_names").trim().is_empty(),
        resolvers: resolvers(),
        port_53: sockets::holders("udp", 53),
    }
}

/// The whole table of a chain as `nft` lists it.
fn table(chain: &BaseChain) -> io::Result<String> {
    run("nft", &["list", "table", chain.family, &chain.table])
}

/// Devices of default routes of any table, each once, but for those of this program's own tables. The tables may hold a million others, so
/// `ip` is asked for these alone.
fn uplinks() -> Vec<String> {
    let mut devices = Vec::new();
    for family in ["-4", "-6"] {
        let listed =
            run("ip", &[family, "route", "show", "default", "table", "all"]).unwrap_or_default();
        let mut words = listed.split_whitespace();
        while words.by_ref().any(|word| word == "dev") {
            devices.extend(words.next().map(str::to_owned));
        }
    }
    devices.retain(|name| name != "lo" && name != device::NAME);
    devices.sort();
    devices.dedup();
    devices
}

fn traces() -> io::Result<Vec<&'static str>> {
    let listed = run("nft", &["list", "chains"])?;
    let found = TRACES.iter().filter(|(trace, _)| listed.contains(trace));
    Ok(found.map(|(_, name)| *name).collect())
}

/// Chains of others that are `wanted`, and the answer of `look` about each.
fn chains<T>(
    net_admin: bool,
    wanted: impl Fn(&BaseChain) -> bool,
    look: impl Fn(&BaseChain) -> io::Result<T>,
) -> Trial<Vec<(BaseChain, T)>> {
    tried(net_admin, || {
        let mut chains = nftables::base_chains()?;
        chains.retain(|chain| wanted(chain) && !chain.table.starts_with(OURS));
        // One that is gone by now lets everything pass.
        let seen = |chain: BaseChain| look(&chain).ok().map(|seen| (chain, seen));
        Ok(chains.into_iter().filter_map(seen).collect())
    })
}

/// True if a chain accepts what comes out of our device and what goes into it.
fn lets_pass(listing: &str) -> bool {
    let accepts = |direction: &str| {
        let named = format!("{direction} \"{}\"", device::NAME);
        listing
            .lines()
            .any(|line| line.contains(&named) && line.contains("accept"))
    };
    accepts("iifname") && accepts("oifname")
}

/// Waits for an answer of a name server, one after the other: a datagram may be lost on a satellite's round trip.
const RESOLVER_PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

fn resolvers() -> Result<Vec<(IpAddr, bool)>, String> {
    let bytes = crate::state::read(Path::new("/etc/resolv.conf"), MAX_FILE);
    let bytes = bytes.map_err(|error| error.to_string())?;
    let config = resolv_conf::Config::parse(&bytes).map_err(|error| error.to_string())?;
    let named = config.nameservers.iter().map(IpAddr::from);
    // All at once: silent ones cost the whole patience.
    let asked: Vec<_> = named
        .map(|address| (address, thread::spawn(move || answers(address))))
        .collect();
    let told = |answer: thread::Result<io::Result<bool>>| matches!(answer, Ok(Ok(true)));
    Ok(asked
        .into_iter()
        .map(|(address, answer)| (address, told(answer.join())))
        .collect())
}

/// True if a name server says anything to a question for a name that it knows itself (RFC 6761 §6.3).
fn answers(resolver: IpAddr) -> io::Result<bool> {
    let any = match resolver {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((resolver, 53))?;
    let question = Query::for_addresses("localhost", false).expect("a name");
    let question = Outgoing::new(&question, 0x6270, 0, false);
    for patience in RESOLVER_PATIENCE {
        socket.send(question.as_bytes())?;
        socket.set_read_timeout(Some(patience))?;
        let mut answer = [0; 512];
        match socket.recv(&mut answer) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use bentpipe_sys::netns::NetNs;

    use super::*;

    #[test]
    fn default_routes_of_all_tables_have_an_uplink() {
        // Root alone makes namespaces.
        let Ok(place) = NetNs::temporary(&format!("bpu-{}", std::process::id())) else {
            let required = std::env::var_os("BENTPIPE_REQUIRE_ROOT").is_some();
            assert!(!required, "no namespace can be made here");
            eprintln!("skipped: needs root, to make a namespace");
            return;
        };
        let found = place.enter(|| {
            for line in [
                "link set lo up",
                "link add one type veth peer name two",
                "link set one up",
                "link set two up",
                "route add default dev one",
                "route add default dev two table 201",
                "-6 route add default dev two table 201",
                // As interception has them.
                "route add local default dev lo table 77",
            ] {
                run("ip", &line.split(' ').collect::<Vec<_>>()).expect(line);
            }
            uplinks()
        });
        assert_eq!(found.expect("the place"), ["one", "two"]);
    }

    #[test]
    fn a_chain_lets_pass_what_it_accepts_both_ways() {
        let into = "  oifname \"bentpipe0\" counter packets 0 bytes 0 accept\n";
        let out = "  iifname \"bentpipe0\" accept\n";
        assert!(lets_pass(&format!("{into}{out}")));
        assert!(!lets_pass(into) && !lets_pass("policy drop;"));
        assert!(!lets_pass(
            "iifname \"bentpipe0\" drop\noifname \"bentpipe0\" drop\n"
        ));
    }
}
