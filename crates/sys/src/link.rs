//! Network interfaces and their addresses, by netlink, in the calling thread's namespace.
//!
//! What `ip link` and `ip addr` show, as far as somebody here asks for it. It changes what it is told, and decides nothing.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{change, list};

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Number of the interface, which no later interface of this boot has.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// The interface is set up.
    pub up: bool,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// The interface is a bridge.
    pub bridge: bool,
    /// Number of the interface that this one is a port of (bridge, bond, VRF): what comes in counts as that one's.
    pub master: Option<u32>,
    /// Number of the interface whose packets this one has a share of, if it is a VLAN, a MACVLAN or an IPVLAN.
    pub parent: Option<u32>,
    /// Kind of the device that leads elsewhere in packets of its own (`wireguard`, `tun`), as `ip` names it.
    pub tunnel: Option<String>,
}

/// An address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Number of its interface.
    pub index: u32,
    /// The address itself.
    pub own: IpAddr,
    /// Network that is connected: the address's prefix, or that of the other end of a point-to-point link. Host bits are as they
    /// were given.
    pub prefix: IpNet,
    /// The address is known on its link alone: the kernel takes it as the source of nothing that goes further.
    pub on_link: bool,
}

impl Address {
    /// The address with the length of its prefix, as it is set and deleted.
    #[must_use]
    pub fn as_set(&self) -> IpNet {
        IpNet::new(self.own, self.prefix.prefix_len()).unwrap_or(self.prefix)
    }
}

/// All interfaces.
///
/// # Errors
/// The kernel gave no answer.
pub fn links() -> io::Result<Vec<Link>> {
    let listed = list(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    Ok(listed
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(read_link(&link)),
            _ => None,
        })
        .collect())
}

/// An interface that is a port of another (bridge, bond, VRF): what comes in by it counts as come in by that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name of the interface.
    pub name: String,
    /// Name of the one that it is a port of; of several, one in the other, the outermost.
    pub master: String,
    /// Names that what comes in by the port can bear then: the master, and VLANs and the like on it.
    pub surfaces: Vec<String>,
}

/// Steps from an interface to the outermost one that are followed; a bond in a bridge in a VRF has three.
const MAX_NESTED: usize = 8;

/// Ports among the interfaces `named`, as `links` has them. One whose master is `named` as well is none.
#[must_use]
pub fn ports(links: &[Link], named: &[String]) -> Vec<Port> {
    let of = |index: u32| links.iter().find(|link| link.index == index);
    let port = |link: &Link| {
        let above = |link: &&Link| link.master.and_then(of);
        let nested = std::iter::successors(above(&link), above).take(MAX_NESTED);
        let master = nested.last()?;
        let mut indices = vec![master.index];
        for _ in 0..MAX_NESTED {
            let on = |link: &&Link| link.parent.is_some_and(|parent| indices.contains(&parent));
            let more: Vec<_> = links.iter().filter(on).map(|link| link.index).collect();
            indices.extend(more);
            indices.sort_unstable();
            indices.dedup();
        }
        let surfaces = indices.into_iter().filter_map(of);
        let surfaces = surfaces.map(|link| link.name.clone());
        Some(Port {
            name: link.name.clone(),
            master: master.name.clone(),
            surfaces: surfaces.filter(|name| !named.contains(name)).collect(),
        })
    };
    let listed = links.iter().filter(|link| named.contains(&link.name));
    let ports = listed.filter_map(port);
    ports.filter(|port| !named.contains(&port.master)).collect()
}

/// Reads what the kernel tells of an interface.
pub(crate) fn read_link(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        up: message.header.flags.contains(LinkFlags::Up),
        mtu: 0,
        bridge: false,
        master: None,
        parent: None,
        tunnel: None,
    };
    let (mut below, mut shares) = (None, false);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Link(index) => below = Some(*index),
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.master = (*index != 0).then_some(*index),
            LinkAttribute::LinkInfo(info) => {
                link.bridge = info.contains(&LinkInfo::Kind(InfoKind::Bridge));
                link.tunnel = info.iter().find_map(tunnel);
                shares = info.iter().any(is_share);
            }
            _ => {}
        }
    }
    link.parent = below.filter(|_| shares);
    link
}

fn is_share(info: &LinkInfo) -> bool {
    use InfoKind::{IpVlan, MacVlan, Vlan};
    matches!(info, LinkInfo::Kind(Vlan | MacVlan | IpVlan))
}

fn tunnel(info: &LinkInfo) -> Option<String> {
    use InfoKind::{
        Geneve, GreTun, GreTun6, Ip6Tnl, IpIp, SitTun, Tun, Vti, Vti6, Wireguard, Xfrm,
    };
    match info {
        LinkInfo::Kind(
            kind @ (Geneve | GreTun | GreTun6 | Ip6Tnl | IpIp | SitTun | Tun | Vti | Vti6
            | Wireguard | Xfrm),
        ) => Some(kind.to_string()),
        _ => None,
    }
}

/// Number and name of every interface.
pub(crate) fn names() -> io::Result<Vec<(u32, String)>> {
    Ok(links()?
        .into_iter()
        .map(|link| (link.index, link.name))
        .collect())
}

/// The number of the interface `name`.
///
/// # Errors
/// There is no such interface.
pub fn index(name: &str) -> io::Result<u32> {
    let found = links()?.into_iter().find(|link| link.name == name);
    found.map(|link| link.index).ok_or_else(|| {
        let text = format!("no interface `{name}`; `ip link` lists them");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// All addresses of this machine.
///
/// # Errors
/// The kernel gave no answer.
pub fn addresses() -> io::Result<Vec<Address>> {
    let listed = list(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    Ok(listed
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(address) => read_address(&address),
            _ => None,
        })
        .collect())
}

fn read_address(message: &AddressMessage) -> Option<Address> {
    let (mut own, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            _ => {}
        }
    }
    let other = other.or(own)?;
    Some(Address {
        index: message.header.index,
        own: own.unwrap_or(other),
        prefix: IpNet::new(other, message.header.prefix_len).ok()?,
        on_link: message.header.scope == AddressScope::Link,
    })
}

/// Sets the interface `name` up, with this MTU in bytes.
///
/// # Errors
/// There is no such interface, or the privilege is missing.
pub fn set_up(name: &str, mtu: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index(name)?;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::Mtu(mtu));
    change(RouteNetlinkMessage::SetLink(message), 0)
}

/// Gives the interface `name` an address, without asking whether a neighbour has it; one that is there stays.
///
/// # Errors
/// There is no such interface, the privilege is missing, or the interface has no IPv6.
pub fn add_address(name: &str, address: IpNet) -> io::Result<()> {
    add(address_message(index(name)?, address), address)
}

/// Gives the interface `name` an address that the kernel takes as the source of nothing that leaves the link; one that is there stays,
/// with its scope.
///
/// # Errors
/// As [`add_address`].
pub fn add_local_address(name: &str, address: IpNet) -> io::Result<()> {
    let mut message = address_message(index(name)?, address);
    message.header.scope = AddressScope::Link;
    add(message, address)
}

fn add(mut message: AddressMessage, address: IpNet) -> io::Result<()> {
    if address.addr().is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        let flags = AddressFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    change(
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}

/// Takes an address from the interface `name`; one that is not there is no error.
///
/// # Errors
/// The privilege is missing.
pub fn delete_address(name: &str, address: IpNet) -> io::Result<()> {
    let Ok(index) = index(name) else {
        return Ok(());
    };
    let message = address_message(index, address);
    match change(RouteNetlinkMessage::DelAddress(message), 0) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(()),
        outcome => outcome,
    }
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.prefix_len();
    message.header.family = match address {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    message.attributes = vec![
        AddressAttribute::Local(address.addr()),
        AddressAttribute::Address(address.addr()),
    ];
    message
}
