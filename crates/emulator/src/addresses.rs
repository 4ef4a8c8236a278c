//! Every address of the topology, in one place: the usual ones as constants, and those of a scenario's `[network]`.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};
use bentpipe_link::{Network, Networks};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::router::Router;

/// The user's address.
pub const USER: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 2);
/// The terminal's address on `lan0`.
pub const TERMINAL_LAN: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 1);
/// The terminal's address on `sat0`.
pub const TERMINAL_SAT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);
/// The gateway's address on `sat0`.
pub const GATEWAY_SAT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
/// The gateway's address on `wan0`.
pub const GATEWAY_WAN: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);
/// The web's first address.
pub const WEB: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 2);

/// The address of the web's resolver.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 3);
/// The address that the web has for a VPN's own packets, where one ends there.
pub const VPN_HOST: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 4);

/// The user's address.
pub const USER6: Ipv6Addr = v6(0x10, 2);
/// The terminal's address on `lan0`.
pub const TERMINAL_LAN6: Ipv6Addr = v6(0x10, 1);
/// The terminal's address on `sat0`.
pub const TERMINAL_SAT6: Ipv6Addr = v6(0x20, 2);
/// The gateway's address on `sat0`.
pub const GATEWAY_SAT6: Ipv6Addr = v6(0x20, 1);
/// The gateway's address on `wan0`.
pub const GATEWAY_WAN6: Ipv6Addr = v6(0x30, 1);
/// The web's first address.
pub const WEB6: Ipv6Addr = v6(0x30, 2);
/// The address of the web's resolver.
pub const RESOLVER6: Ipv6Addr = v6(0x30, 3);

/// The most hosts that fit beside the other addresses.
pub const MAX_HOSTS: u8 = 240;

/// The last byte of the first host's address.
const FIRST_HOST: u8 = 10;

/// The address of the page's `i`-th host, from 0: 10.30.0.10+i.
#[must_use]
pub const fn host(i: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 30, 0, FIRST_HOST.saturating_add(i))
}

/// The address of the page's `i`-th host, from 0: fd00:30::10+i, in hex.
#[must_use]
pub const fn host6(i: u8) -> Ipv6Addr {
    v6(0x30, 0x10 + i as u16)
}

const fn v6(network: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, network, 0, 0, 0, 0, 0, host)
}

/// The addresses of a scenario with one or more terminals.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    network: Network,
    terminals: usize,
}

/// An interface's addresses, with the lengths of their networks.
pub(crate) type Pair = (Ipv4Net, Ipv6Net);

/// Parts of the host's address on each network.
const GATEWAY: u32 = 1;
const FIRST_TERMINAL: u32 = 2;
const RESOLVES: u32 = 3;

impl Addresses {
    /// Addresses of `network` for `terminals` terminals.
    ///
    /// # Errors
    /// They do not fit.
    pub fn new(network: &Network, terminals: usize) -> Result<Self> {
        let (lan, _) = network.lan;
        let room = 1usize << 24u8.saturating_sub(lan.prefix_len());
        ensure!(
            terminals <= room,
            "{lan} has no /24 for each of {terminals} terminals"
        );
        Ok(Self {
            network: *network,
            terminals,
        })
    }

    /// True if there is more than one terminal.
    pub(crate) fn several(&self) -> bool {
        self.terminals > 1
    }

    /// The users' network behind a terminal.
    fn lan(&self, terminal: usize) -> Networks {
        let (v4, v6) = self.network.lan;
        // As many as there are terminals: they fit, see `new`.
        let number = terminal as u32;
        let v4 = Ipv4Addr::from_bits(v4.network().to_bits() + (number << 8));
        let v6 = Ipv6Addr::from_bits(v6.network().to_bits() + (u128::from(number) << 64));
        (Ipv4Net::new_assert(v4, 24), Ipv6Net::new_assert(v6, 64))
    }

    pub(crate) fn user(&self, terminal: usize) -> Pair {
        within(self.lan(terminal), FIRST_TERMINAL, 2)
    }

    pub(crate) fn terminal_lan(&self, terminal: usize) -> Pair {
        within(self.lan(terminal), GATEWAY, 1)
    }

    pub(crate) fn terminal_sat(&self, terminal: usize) -> Pair {
        let host = FIRST_TERMINAL + terminal as u32;
        within(self.network.satellite, host, host)
    }

    pub(crate) fn gateway_sat(&self) -> Pair {
        within(self.network.satellite, GATEWAY, 1)
    }

    pub(crate) fn gateway_wan(&self) -> Pair {
        within(self.network.web, GATEWAY, 1)
    }

    pub(crate) fn web(&self) -> Pair {
        within(self.network.web, FIRST_TERMINAL, 2)
    }

    pub(crate) fn resolver(&self) -> Pair {
        within(self.network.web, RESOLVES, RESOLVES)
    }

    /// The web's `i`-th further host.
    pub(crate) fn host(&self, i: u8) -> Pair {
        within(
            self.network.web,
            u32::from(FIRST_HOST) + u32::from(i),
            0x10 + u32::from(i),
        )
    }

    /// Router that finds the terminal of each packet of the gateway.
    #[must_use]
    pub fn router(&self) -> Router {
        Router::new((0..self.terminals).map(|terminal| {
            let (v4, v6) = self.lan(terminal);
            let (own4, own6) = self.terminal_sat(terminal);
            let host = |net: IpNet| IpNet::new_assert(net.addr(), net.max_prefix_len());
            vec![v4.into(), v6.into(), host(own4.into()), host(own6.into())]
        }))
    }
}

/// The addresses with these numbers of a host within the networks.
fn within((v4, v6): Networks, host4: u32, host6: u32) -> Pair {
    let address4 = Ipv4Addr::from_bits(v4.network().to_bits() + host4);
    let address6 = Ipv6Addr::from_bits(v6.network().to_bits() + u128::from(host6));
    (
        Ipv4Net::new_assert(address4, v4.prefix_len()),
        Ipv6Net::new_assert(address6, v6.prefix_len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_addresses_are_those_of_an_empty_table() {
        let usual = Addresses::new(&Network::default(), 2).unwrap();
        let plain = |(v4, v6): Pair| (v4.addr(), v6.addr());
        assert_eq!(plain(usual.user(0)), (USER, USER6));
        assert_eq!(plain(usual.terminal_lan(0)), (TERMINAL_LAN, TERMINAL_LAN6));
        assert_eq!(plain(usual.terminal_sat(0)), (TERMINAL_SAT, TERMINAL_SAT6));
        assert_eq!(plain(usual.gateway_sat()), (GATEWAY_SAT, GATEWAY_SAT6));
        assert_eq!(plain(usual.gateway_wan()), (GATEWAY_WAN, GATEWAY_WAN6));
        assert_eq!(plain(usual.web()), (WEB, WEB6));
        assert_eq!(plain(usual.resolver()), (RESOLVER, RESOLVER6));
        assert_eq!(plain(usual.host(3)), (host(3), host6(3)));
        assert_eq!(
            plain(usual.user(1)),
            (
                "10.10.1.2".parse().unwrap(),
                "fd00:10:0:1::2".parse().unwrap()
            )
        );
        assert_eq!(usual.user(1).0.prefix_len(), 24);
    }
}
