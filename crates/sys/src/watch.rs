//! Notices of what others do to interfaces, addresses, routes, rules, network settings and nftables.
//!
//! ```text
//!   others ── ip, nft, sysctl ──► kernel ══ rtnetlink, nfnetlink groups ══► Watch::take ──► Change, by whom
//! ```
//!
//! A notice says that something has changed, not what is there now: who hears of one looks again. Notices may be lost
//! ([`Object::Unknown`] stands for those), so one looks every few seconds as well. Settings under /proc/sys have notices for
//! forwarding alone.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol};
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::command;
use crate::link::read_link;
use crate::netlink::{messages, parse};
use crate::nftables::{GENERATION, REMOVALS, SUBSYSTEM, attribute, text};

/// Groups of rtnetlink (linux/rtnetlink.h): links; addresses, routes, rules and settings of IPv4 and IPv6.
const ROUTE_GROUPS: [u32; 9] = [1, 5, 7, 8, 9, 11, 19, 24, 25];
/// The group of nfnetlink that tells of nftables.
const NFTABLES_GROUP: u32 = 7;
/// Settings of interfaces, which the library does not read.
const NEW_NETCONF: u16 = 80;
const DEL_NETCONF: u16 = 81;

/// Datagrams read at once; a routing daemon that fills a table sends thousands.
const MAX_DATAGRAMS: usize = 4096;

/// Room for notices, bytes: a burst of some thousand fits.
const BUFFER: usize = 4 << 20;

/// Kind of thing that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// An interface, by its name.
    Link(String),
    /// An address of the interface with this number.
    Address(u32),
    /// A route in the table with this number.
    Route(u32),
    /// A route of a routing daemon in the table with this number, which may change a hundred a second; nobody asks by whom.
    DaemonRoute(u32),
    /// A rule of policy routing.
    Rule,
    /// A setting of IPv4 or IPv6.
    Setting,
    /// A table of nftables, by its name, or something in it.
    Table(String),
    /// Anything: notices were lost.
    Unknown,
}

/// A process that changes things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Process id of the actor, as the kernel tells it; another than ours for the same process in a container.
    pub pid: u32,
    /// Name of the actor, where it can be known: many have ended by the time that one asks.
    pub name: Option<String>,
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "\"{name}\" (pid {})", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// One kind of change since the last call; of several to one object the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Thing that was changed.
    pub object: Object,
    /// Something of it was taken away.
    pub removed: bool,
    /// Program that did it; `None` for the kernel and for this process.
    pub by: Option<Actor>,
}

/// The sockets that hear of changes in one network namespace.
#[derive(Debug)]
pub struct Watch {
    route: Socket,
    /// Absent without CAP_NET_ADMIN, or nftables in the kernel.
    netfilter: Option<Socket>,
}

impl Watch {
    /// Begins to listen, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's; usually no descriptor is left.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            route: subscribed(NETLINK_ROUTE, &ROUTE_GROUPS)?,
            netfilter: subscribed(NETLINK_NETFILTER, &[NFTABLES_GROUP]).ok(),
        })
    }

    /// The descriptors that are readable when there is something to take.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.route)
            .chain(&self.netfilter)
            .map(AsFd::as_fd)
    }

    /// Waits until there is something to take, `wake` is readable, or `time` has passed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, wake: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
        let descriptors = self.descriptors().chain([wake]);
        let mut polled: Vec<PollFd<'_>> = descriptors
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let time = Timespec::try_from(time).ok();
        match poll(&mut polled, time.as_ref()) {
            Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what was noticed since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        drain(&self.route, &mut changes, |kind, port, body, changes| {
            if let Some((object, removed)) = route_object(kind, body) {
                let by = match object {
                    Object::DaemonRoute(_) => None,
                    _ => actor(port, None),
                };
                note(changes, object, removed, by);
            }
        });
        if let Some(socket) = &self.netfilter {
            // Those of a transaction come before the message that names who made it.
            let mut open = Vec::new();
            drain(socket, &mut changes, |kind, port, body, changes| {
                if kind == SUBSYSTEM | GENERATION {
                    let name = attribute(body, 3).and_then(text);
                    for (object, removed) in open.drain(..) {
                        note(changes, object, removed, actor(port, name.clone()));
                    }
                } else if let Some(name) = attribute(body, 1).and_then(text) {
                    let removed = REMOVALS.contains(&(kind & 0xff));
                    open.push((Object::Table(name), removed));
                }
            });
            for (object, removed) in open {
                note(&mut changes, object, removed, None);
            }
        }
        changes
    }
}

fn subscribed(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    let _ = socket.set_rx_buf_sz(libc::c_int::try_from(BUFFER).unwrap_or(libc::c_int::MAX));
    for group in groups {
        socket.add_membership(*group)?;
    }
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Hands each message that waits to `take`: its type, the port of who caused it, and what follows the header.
fn drain(
    socket: &Socket,
    changes: &mut Vec<Change>,
    mut take: impl FnMut(u16, u32, &[u8], &mut Vec<Change>),
) {
    let mut buffer = Vec::with_capacity(1 << 16);
    for _ in 0..MAX_DATAGRAMS {
        buffer.clear();
        match socket.recv(&mut buffer, libc::MSG_DONTWAIT) {
            Ok(_) => {
                for message in messages(&buffer).flatten() {
                    let (kind, port) = (message.message_type(), message.port_number());
                    take(kind, port, message.payload(), changes);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The queue has overflowed: whatever was known may be wrong.
            Err(_) => note(changes, Object::Unknown, true, None),
        }
    }
}

fn note(changes: &mut Vec<Change>, object: Object, removed: bool, by: Option<Actor>) {
    let change = Change {
        object,
        removed,
        by,
    };
    let same =
        |other: &&mut Change| other.object == change.object && other.removed == change.removed;
    match changes.iter_mut().find(same) {
        // What this process did last is not told instead of who did it before.
        Some(known) if change.by.is_some() => *known = change,
        Some(_) => {}
        None => changes.push(change),
    }
}

fn route_object(kind: u16, body: &[u8]) -> Option<(Object, bool)> {
    if matches!(kind, NEW_NETCONF | DEL_NETCONF) {
        return Some((Object::Setting, kind == DEL_NETCONF));
    }
    Some(match parse(kind, body)? {
        RouteNetlinkMessage::NewLink(link) => (Object::Link(read_link(&link).name), false),
        RouteNetlinkMessage::DelLink(link) => (Object::Link(read_link(&link).name), true),
        RouteNetlinkMessage::NewAddress(address) => (Object::Address(address.header.index), false),
        RouteNetlinkMessage::DelAddress(address) => (Object::Address(address.header.index), true),
        RouteNetlinkMessage::NewRoute(route) => (object_of(&route), false),
        RouteNetlinkMessage::DelRoute(route) => (object_of(&route), true),
        RouteNetlinkMessage::NewRule(_) => (Object::Rule, false),
        RouteNetlinkMessage::DelRule(_) => (Object::Rule, true),
        _ => return None,
    })
}

fn object_of(route: &RouteMessage) -> Object {
    use RouteProtocol::{Babel, Bgp, Bird, Eigrp, Isis, Ospf, Rip, Zebra};
    let table = table_of(route);
    match route.header.protocol {
        Babel | Bgp | Bird | Eigrp | Isis | Ospf | Rip | Zebra => Object::DaemonRoute(table),
        _ => Object::Route(table),
    }
}

fn table_of(route: &RouteMessage) -> u32 {
    let number = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    number.unwrap_or_else(|| route.header.table.into())
}

/// Program that owns the netlink port: ports of programs that open one socket are their process ids.
fn actor(port: u32, name: Option<String>) -> Option<Actor> {
    if port == 0 || port == std::process::id() || command::is_own_child(port) {
        return None;
    }
    let own = fs::read_to_string(format!("/proc/{port}/comm"));
    let name = name.or_else(|| own.ok().map(|name| name.trim().to_owned()));
    // A port that is no process's is a further socket of one, ours perhaps.
    (name.is_some() || port < 1 << 22).then_some(Actor { pid: port, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::run;
    use crate::netns::NetNs;

    #[test]
    fn routes_of_a_routing_daemon_are_told_from_those_of_others() {
        let Ok(place) = NetNs::temporary(&format!("bpw-{}", std::process::id())) else {
            let required = std::env::var_os("BENTPIPE_REQUIRE_ROOT").is_some();
            assert!(!required, "no namespace can be made here");
            eprintln!("skipped: needs root, to make a namespace");
            return;
        };
        let seen = place.enter(|| {
            run("ip", &["link", "set", "lo", "up"]).expect("lo");
            let watch = Watch::open().expect("a socket");
            ["bird", "zebra", "bgp", "dhcp", "static"].map(|protocol| {
                let route = ["198.51.100.0/24", "dev", "lo", "protocol", protocol];
                let objects = ["add", "del"].map(|verb| {
                    run("ip", &[&["route", verb][..], &route].concat()).expect(protocol);
                    watch.take().remove(0).object
                });
                assert_eq!(objects[0], objects[1], "{protocol}");
                objects[0].clone()
            })
        });
        let (daemon, route) = (Object::DaemonRoute(254), Object::Route(254));
        let wanted = [&daemon, &daemon, &daemon, &route, &route].map(Clone::clone);
        assert_eq!(seen.expect("the place"), wanted);
    }
}
