//! Name servers of the site: those of `zones`, and the router's own beside us.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::config::{ClientDns, RouterDns};
use crate::net::resolver::Resolver;
use crate::net::sockets::socket_address;
use crate::process;

/// Port of name servers.
const PORT: u16 = 53;

/// Age that the list of name servers on this machine may have.
const FRESH: Duration = Duration::from_secs(1);

/// Addresses of this machine whose name server is remembered.
const MAX_SERVERS: usize = 64;

/// Name servers that are asked instead of the tunnel.
pub(super) struct Near {
    mode: RouterDns,
    /// Addresses that our own listeners have.
    ours: Vec<SocketAddr>,
    mark: Option<u32>,
    resolvers: RefCell<HashMap<SocketAddr, Rc<Resolver>>>,
    /// Findings of [`Self::router`], with their times.
    known: RefCell<HashMap<IpAddr, (Instant, bool)>>,
}

impl Near {
    pub(super) fn new(config: &ClientDns, intercepts: bool) -> Self {
        #[cfg(target_os = "linux")]
        let mark = intercepts.then(crate::client::frontend::tproxy::own_mark);
        #[cfg(not(target_os = "linux"))]
        let mark = intercepts.then_some(0);
        Self {
            mode: config.router,
            ours: config.listen.clone(),
            mark,
            resolvers: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// The way to a name server.
    pub(super) fn resolver(&self, server: SocketAddr) -> Rc<Resolver> {
        let mut resolvers = self.resolvers.borrow_mut();
        if resolvers.len() >= MAX_SERVERS && !resolvers.contains_key(&server) {
            resolvers.clear();
        }
        let make = || Rc::new(Resolver::new(&[server]).marked(self.mark));
        resolvers.entry(server).or_insert_with(make).clone()
    }

    /// The name server of this machine that a query for `address` would have reached without us.
    pub(super) fn router(&self, address: IpAddr) -> Option<SocketAddr> {
        let is_ours = |ours: &SocketAddr| {
            let ip = ours.ip();
            let covers =
                ip == address || (ip.is_unspecified() && ip.is_ipv4() == address.is_ipv4());
            covers && ours.port() == PORT
        };
        if self.mode == RouterDns::Answer || self.ours.iter().any(is_ours) {
            return None;
        }
        let now = process::now();
        let mut known = self.known.borrow_mut();
        let fresh = |(read, _): &&(Instant, bool)| now.saturating_duration_since(*read) < FRESH;
        let there = match known.get(&address).filter(fresh) {
            Some((_, there)) => *there,
            None => {
                if known.len() >= MAX_SERVERS {
                    known.clear();
                }
                let there = is_own(address) && is_taken(address);
                known.insert(address, (now, there));
                there
            }
        };
        there.then_some(SocketAddr::new(address, PORT))
    }
}

/// True if `address` is this machine's: its own is what the kernel would reach it from.
fn is_own(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, PORT))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}

/// True if a socket would get datagrams for the name server's port at `address`. Read from the kernel's table, for trying
/// to bind would keep a name server that starts in that instant from its port.
fn is_taken(address: IpAddr) -> bool {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let ipv4 = || read("/proc/net/udp");
    let ipv6 = || read("/proc/net/udp6");
    (address.is_ipv4() && is_listed(&ipv4(), address)) || is_listed(&ipv6(), address)
}

/// True if `table`, as the kernel shows it, has a socket at `address` or at the wildcard address. One of IPv6 there may
/// take IPv4 as well.
fn is_listed(table: &str, address: IpAddr) -> bool {
    table.lines().skip(1).any(|line| {
        let local = line.split_whitespace().nth(1).and_then(socket_address);
        local.is_some_and(|local| {
            let ip = local.ip().to_canonical();
            local.port() == PORT && (ip == address || local.ip().is_unspecified())
        })
    })
}

/// Prefixes and addresses of this machine: nothing public leads there.
pub(super) fn local() -> Vec<IpNet> {
    #[cfg(target_os = "linux")]
    {
        let all = bentpipe_sys::link::addresses().unwrap_or_default();
        let nets =
            |address: &bentpipe_sys::link::Address| [address.prefix.trunc(), address.own.into()];
        all.iter().flat_map(nets).collect()
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_says_who_listens() {
        let head = "  sl  local_address rem_address   st tx_queue\n";
        let line = |ip: &str, port: &str| format!("{head}  12: {ip}:{port} 00000000:0000 07 0\n");
        let hex = |ip: &str| match ip.parse().unwrap() {
            IpAddr::V4(v4) => format!("{:08X}", u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => {
                let words = v6.octets();
                let words = words.chunks(4).map(|four| four.try_into().unwrap());
                words
                    .map(|four| format!("{:08X}", u32::from_ne_bytes(four)))
                    .collect()
            }
        };
        let (v4, v6): (IpAddr, IpAddr) = ("10.7.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        for (bound, address) in [
            ("0.0.0.0", v4),
            ("10.7.0.1", v4),
            ("::", v4),
            ("::ffff:10.7.0.1", v4),
            ("::", v6),
            ("fd00::1", v6),
        ] {
            assert!(is_listed(&line(&hex(bound), "0035"), address), "{bound}");
            assert!(!is_listed(&line(&hex(bound), "0036"), address), "{bound}");
        }
        for (bound, address) in [("127.0.0.1", v4), ("10.7.0.2", v4), ("fd00::2", v6)] {
            assert!(!is_listed(&line(&hex(bound), "0035"), address), "{bound}");
        }
        assert!(!is_listed("sl local_address\n garbage\n x y:z\n", v4));
    }
}
