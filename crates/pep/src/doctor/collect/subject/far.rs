//! The way to a server: its addresses, the first of them that has a route, and what is known of that.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bentpipe_sys::link;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};

use crate::config::ServerAddress;
use crate::doctor::facts::{FarFacts, HandshakeResult, WayThere};
use crate::process;

/// Time for a lookup: a resolver without a network holds one for many seconds.
const LOOKUP: Duration = Duration::from_secs(5);

/// A server, and what `reach` says of its first address that has a route.
pub(super) fn far(
    name: &str,
    addresses: Result<Vec<SocketAddr>, String>,
    reach: impl Fn(SocketAddr) -> HandshakeResult,
) -> FarFacts {
    let known = addresses.as_deref().unwrap_or_default();
    let routed = known
        .iter()
        .find_map(|to| Some((*to, process::source_towards(*to)?)));
    FarFacts {
        name: name.to_owned(),
        way: routed.map(|(to, source)| WayThere {
            to,
            device: device_of(source),
            mtu: mtu(to),
            reached: reach(to),
        }),
        addresses,
        tls: Vec::new(),
    }
}

/// Addresses of a server, by this machine's resolver.
pub(super) fn resolve(address: &ServerAddress) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = match address {
        ServerAddress::Ip(address) => return Ok(vec![*address]),
        ServerAddress::Name { host, port } => (host.clone(), *port),
    };
    let (answer, found) = mpsc::channel();
    // Left to itself if it takes too long: this process ends soon.
    thread::spawn(move || {
        let looked_up = (host, port).to_socket_addrs();
        let _ = answer.send(looked_up.map(Vec::from_iter));
    });
    match found.recv_timeout(LOOKUP) {
        Ok(Ok(addresses)) if addresses.is_empty() => Err("it has no addresses".into()),
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LOOKUP.as_secs())),
    }
}

/// The interface that has the address `source`.
fn device_of(source: IpAddr) -> Option<String> {
    let addresses = link::addresses().ok()?;
    let index = addresses
        .iter()
        .find(|address| address.own == source)?
        .index;
    let link = link::links()
        .ok()?
        .into_iter()
        .find(|link| link.index == index)?;
    Some(link.name)
}

/// Largest packet that the kernel sends to `to`, bytes.
fn mtu(to: SocketAddr) -> Option<u32> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    match to {
        SocketAddr::V4(_) => ip_mtu(&socket).ok(),
        SocketAddr::V6(_) => ipv6_mtu(&socket).ok(),
    }
}
