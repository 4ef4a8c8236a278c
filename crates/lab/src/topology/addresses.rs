//! Every address of the topology, in one place. All networks are /24 and /64.

use std::net::{Ipv4Addr, Ipv6Addr};

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
