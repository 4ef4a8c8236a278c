//! Addresses that count as one where places are shared out.

use std::net::IpAddr;

use ipnet::IpNet;

/// Host at `address`: the IPv4 address, or the first of its IPv6 /64.
pub(crate) fn host(address: IpAddr) -> IpAddr {
    first(address, 32, 64)
}

/// Network around `address`, of which one operator may have many addresses: the first of its IPv4 /24 or IPv6 /48.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    first(address, 24, 48)
}

/// First address of the prefix around `address`, of as many bits as its family has here.
fn first(address: IpAddr, ipv4: u8, ipv6: u8) -> IpAddr {
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { ipv4 } else { ipv6 };
    IpNet::new_assert(address, bits).trunc().addr()
}
