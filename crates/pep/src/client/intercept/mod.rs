//! Interception: which packets of this machine and of its LANs go to the transparent listeners, which into our device.
//!
//! The table `inet bentpipe_client` and the policy routes that belong to it, installed and removed as
//! one. It fails closed: rules mark first, then tproxy, then drop, and behind the device's route stands a
//! blackhole, so that a listener or a device that is gone lets nothing out in clear. It opens no sockets and
//! relays nothing. Behind the table stand routing rules (`barrier.rs`); what others take away is found by `upkeep.rs`.
//!
//! Known limits: a firewall of the user's that drops in its own input hook also drops intercepted
//! connections; sockets of this machine bound to an interface (SO_BINDTODEVICE) are cut, not relayed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_sys::claim::Claim;
use bentpipe_sys::connections;
use bentpipe_sys::hold::Hold;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::route::{MarkedRoute, Target};
use ipnet::IpNet;

use crate::firewall::{CLIENT_TABLE, Settings, TRIAL_TABLE};

use installed::let_go;
use lan::Lan;
use policy::Kept;

pub use gate::{ADMITTED_FOR, Gate};
pub use guard::{guard_listing, guard_off};
pub use installed::{Installed, Refusal};
pub use policy::{Action, Count, Lesson, Rule, WITH_PORTS};
pub use upkeep::{Lack, Seen, Wanted, lacking};

mod barrier;
mod gate;
mod guard;
mod inbound;
mod installed;
mod lan;
mod packets;
mod policy;
mod ruleset;
#[cfg(test)]
mod snapshots;
mod upkeep;

/// Time that the kernel answers by itself for a destination that was refused or unreachable. A service that was restarted is
/// found again after it, and a host that keeps asking costs the link one round trip in as long.
pub const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Traffic to intercept. All of it is read at [`Interception::install`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interception {
    /// Interfaces whose TCP is intercepted, by name; they must exist.
    pub interfaces: Vec<String>,
    /// True if this machine's own TCP is intercepted too.
    pub local: bool,
    /// The port of the transparent listeners, the same for IPv4 and IPv6.
    pub port: u16,
    /// The mark of intercepted packets.
    pub mark: u32,
    /// The bits of the mark that are ours; others are left as they are.
    pub mark_mask: u32,
    /// The mark of our own sockets, exempt from interception; within `mark_mask`, not `mark`.
    pub own_mark: u32,
    /// The routing table for intercepted packets.
    pub table: u32,
    /// The priority of the rule that leads there.
    pub priority: u32,
    /// Destinations that are left alone, all protocols.
    pub bypass: Vec<IpNet>,
    /// Addresses of the bentpipe server, left alone.
    pub server: Vec<IpAddr>,
    /// Fate of everything but TCP (and DNS, if there is a `dns_port`).
    pub other: Other,
    /// True if HTTP/3 (UDP port 443) is answered with "port unreachable", so that browsers fall back to TCP.
    pub reject_http3: bool,
    /// The port of the transparent DNS listeners, UDP and TCP, IPv4 and IPv6; `None`: DNS is like any other traffic.
    pub dns_port: Option<u16>,
    /// Fate of name lookups that are meant for this machine itself.
    pub router_dns: RouterDns,
    /// The TUN device that [`Other::Tunnel`] leads into.
    pub device: String,
    /// The mark of packets for the device.
    pub tunnel_mark: u32,
    /// UDP ports of the far side, and the host that what comes to each goes to, through the device.
    pub published: Vec<(u16, SocketAddr)>,
    /// UDP goes into the device from ports below this one, or below 1024; the others are used by somebody else, who reads and
    /// writes the packets himself.
    pub udp_ports_below: Option<u16>,
    /// Prefixes behind `interfaces` that the far side routes here as they are: it may begin connections to their hosts, and
    /// these keep their addresses in the device.
    pub routed: Vec<IpNet>,
    /// The mark of packets that may leave in clear.
    pub direct_mark: u32,
    /// The routing table for packets with `tunnel_mark`.
    pub tunnel_table: u32,
    /// True if the far side reaches IPv4; if not, IPv4 connections are refused at once.
    pub ipv4: bool,
    /// True if the far side reaches IPv6; if not, IPv6 connections are refused at once.
    pub ipv6: bool,
    /// Gates at which connections wait until they are admitted ([`Installed::admit`]).
    pub gates: Vec<Gate>,
    /// Rules on what is carried, goes direct or is blocked; the first that matches counts. The same for as long as it is in force.
    pub rules: Vec<Rule>,
    /// Traffic that cannot be carried goes in clear: while not `carrying`, and without listeners or device.
    pub fail_open: bool,
    /// True if there is a far side that answers; of account with `fail_open` alone.
    pub carrying: bool,
}

/// Fate of name lookups of the LAN that are meant for this machine's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouterDns {
    /// A name server that is bound to the very address gets them; what a server on the wildcard address would get, and
    /// what nobody would, goes to the DNS listeners.
    #[default]
    Auto,
    /// Any name server of this machine gets them; what nobody would get goes to the DNS listeners.
    Leave,
    /// All of them go to the DNS listeners.
    Answer,
}

/// Fate of traffic that is neither TCP nor DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Other {
    /// Routed into the device ([`Installed::attach`]); dropped while that does not exist.
    Tunnel,
    /// Dropped.
    #[default]
    Drop,
    /// Forwarded in clear.
    Direct,
}

impl Interception {
    /// Nothing intercepted yet, towards listeners on `port`. The marks use the top four bits, which the
    /// common users of marks (Kubernetes, Tailscale, mwan3, WireGuard) leave alone.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            interfaces: Vec::new(),
            local: false,
            port,
            mark: 0x1000_0000,
            mark_mask: 0xf000_0000,
            own_mark: 0x2000_0000,
            table: 25_200,
            priority: 99,
            bypass: Vec::new(),
            server: Vec::new(),
            other: Other::Drop,
            reject_http3: false,
            dns_port: None,
            router_dns: RouterDns::Auto,
            device: "bentpipe0".into(),
            tunnel_mark: 0x3000_0000,
            published: Vec::new(),
            udp_ports_below: None,
            routed: Vec::new(),
            direct_mark: 0x4000_0000,
            tunnel_table: 25_201,
            ipv4: true,
            ipv6: true,
            gates: Vec::new(),
            rules: Vec::new(),
            fail_open: false,
            carrying: true,
        }
    }

    /// True if anything is routed into the device: then it has to exist, and be attached ([`Installed::attach`]).
    #[must_use]
    pub fn needs_device(&self) -> bool {
        let tunnels = |rule: &Rule| rule.action == Action::Tunnel && rule.is_for_packets();
        self.other == Other::Tunnel || self.rules.iter().any(tunnels)
    }

    /// The device's name, if it is needed.
    fn device(&self) -> Option<&str> {
        self.needs_device().then_some(&self.device)
    }

    /// True if traffic is taken in now.
    fn carries(&self) -> bool {
        self.carrying || !self.fail_open
    }

    /// Installs routes, forwarding and table in the calling thread's namespace, replacing leftovers.
    ///
    /// # Errors
    /// As [`Self::install_claimed`], or another client intercepts here.
    pub fn install(&self) -> io::Result<Installed> {
        self.install_claimed(Claim::take()?)
    }

    /// As [`Self::install`], for who holds the `claim` already: of two clients the second would replace the first's table,
    /// and remove it at its end.
    ///
    /// # Errors
    /// An interface does not exist, a value makes no sense, `nft` or `ip` or the privilege is missing.
    /// Then nothing of ours is in the kernel.
    pub fn install_claimed(&self, claim: Claim) -> io::Result<Installed> {
        Installed::put_in_force(self, claim)
    }

    /// Removes table and routes, also those that a killed process left.
    ///
    /// # Errors
    /// `nft` or `ip` or the privilege is missing.
    pub fn remove(&self) -> io::Result<()> {
        Hold::remove_leftover()?;
        let table = Table::new(CLIENT_TABLE);
        let_go(&Settings::left_behind(&table)?, &table)?;
        self.local_route().remove()?;
        self.packet_route().remove()
    }

    fn prepared(&self, lan: &Lan, kept: &Kept) -> io::Result<(String, Vec<IpNet>)> {
        self.validate()?;
        let inbound = if self.local {
            connections::inbound()?
        } else {
            Vec::new()
        };
        let exempt = ruleset::exempt(self, lan.prefixes());
        let body = ruleset::body(self, lan, &inbound, kept);
        Ok((body, exempt))
    }

    fn validate(&self) -> io::Result<()> {
        let mut marks = [self.mark, self.own_mark, self.tunnel_mark, self.direct_mark];
        marks.sort_unstable();
        let outside = marks.iter().any(|mark| mark & !self.mark_mask != 0);
        if outside || marks[0] == 0 || marks.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!(
                "marks {marks:#x?} must differ, be non-zero and lie within the mask {:#x}",
                self.mark_mask
            )));
        }
        let usable = |byte: u8| byte.is_ascii_graphic() && !br#""'*\/{};"#.contains(&byte);
        match self
            .interfaces
            .iter()
            .chain([&self.device])
            .chain(self.rules.iter().flat_map(|rule| &rule.interfaces))
            .find(|name| name.is_empty() || !name.bytes().all(usable))
        {
            Some(name) => Err(invalid(format!("`{name}` is not an interface name"))),
            None => Ok(()),
        }
    }

    fn routes(&self) -> Vec<MarkedRoute> {
        let packets = self.needs_device().then(|| self.packet_route());
        std::iter::once(self.local_route()).chain(packets).collect()
    }

    fn local_route(&self) -> MarkedRoute {
        MarkedRoute {
            mark: self.mark,
            mask: self.mark_mask,
            table: self.table,
            priority: self.priority,
            target: Target::Local,
        }
    }

    fn packet_route(&self) -> MarkedRoute {
        MarkedRoute {
            mark: self.tunnel_mark,
            table: self.tunnel_table,
            target: Target::Device {
                name: self.device.clone(),
                or_nowhere: !self.fail_open,
            },
            ..self.local_route()
        }
    }
}

/// Has the kernel look at a table with everything that a configuration can ask for, and forget it.
///
/// # Errors
/// `nft` or the privilege is missing, or kernel or `nft` do not know an expression; the text says which.
pub(crate) fn trial() -> io::Result<()> {
    let it = Interception {
        interfaces: vec!["lan0".into()],
        other: Other::Tunnel,
        dns_port: Some(4453),
        published: vec![(5060, SocketAddr::from(([192, 0, 2, 1], 5060)))],
        gates: vec![Gate {
            ports: vec![25],
            destinations: Vec::new(),
            shut: true,
        }],
        rules: vec![Rule {
            learned: true,
            protocols: vec![17],
            ports: vec![443],
            dscp: vec![46],
            ..Rule::for_all(Action::Block)
        }],
        ..Interception::new(4480)
    };
    let body = ruleset::body(&it, &Lan::default(), &[], &Kept::default());
    nft::check(&Table::new(TRIAL_TABLE).replacement(&body))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("cannot intercept: {text}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_before_the_kernel_sees_it() {
        let mut interception = Interception::new(1);
        interception.own_mark = interception.mark;
        assert_eq!(
            interception.validate().unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        let mut interception = Interception::new(1);
        interception.interfaces = vec!["lan0\" accept #".into()];
        assert!(
            interception
                .validate()
                .unwrap_err()
                .to_string()
                .contains("not an interface name")
        );
    }
}
