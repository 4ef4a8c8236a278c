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

use bentpipe_proto::tunnel::Families;
use bentpipe_sys::claim::{Claim, Sole};
use bentpipe_sys::connections;
use bentpipe_sys::hold::Hold;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::route::MarkedRoute;
use ipnet::IpNet;

use crate::firewall::{CLIENT_TABLE, Family, Settings, TRIAL_TABLE};

use installed::let_go;
use kept::Kept;
use lan::Lan;

pub use ahead::RuleAhead;
pub(crate) use ahead::ahead_of;
pub use device::{Device, TcpIntoDevice};
pub use dns::{DnsInterception, RouterDns};
pub use foreign::{Foreign, ForeignLook};
pub use gate::{ADMITTED_FOR, Gate};
pub(crate) use guard::is_on as is_guard_on;
pub use guard::{guard_listing, guard_off};
pub use installed::Installed;
pub use kept::{Count, LearnedAddress};
pub use kernel_answer::KernelAnswer;
pub use lan::fault_of_port;
pub(crate) use lan::{name_the_master, name_the_stray, strays_of};
pub use policy::{Action, Rule, WITH_PORTS};
pub use routing::Routing;
pub use upkeep::{Lack, SeenInKernel, Wanted, lacking};

mod ahead;
mod barrier;
mod device;
mod dns;
mod draining;
mod foreign;
mod gate;
mod guard;
mod hooks;
mod inbound;
mod installed;
mod kept;
mod kernel_answer;
mod lan;
mod packets;
mod policy;
mod routing;
mod ruleset;
#[cfg(test)]
mod snapshots;
mod upkeep;

/// Time that the kernel answers by itself for a destination that refused, is not allowed, cannot be reached or did not answer. A service that was restarted is
/// found again after it, and a host that keeps asking costs the link one round trip in as long.
pub const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Traffic to intercept. All of it is read at [`Interception::install`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interception {
    /// Interfaces whose TCP is intercepted, by name, from when they exist on.
    pub interfaces: Vec<String>,
    /// True if this machine's own TCP is intercepted too.
    pub local: bool,
    /// The port of the transparent listeners, the same for IPv4 and IPv6.
    pub port: u16,
    /// Marks and routing tables.
    pub routing: Routing,
    /// Destinations that are left alone, all protocols.
    pub bypass: Vec<IpNet>,
    /// Addresses of the bentpipe server, left alone.
    pub server: Vec<IpAddr>,
    /// Fate of everything but TCP (and DNS, if there is `dns`).
    pub other: Other,
    /// True if HTTP/3 (UDP port 443) is answered with "port unreachable", so that browsers fall back to TCP.
    pub reject_http3: bool,
    /// Interception of name lookups; `None`: DNS is like any other traffic.
    pub dns: Option<DnsInterception>,
    /// The device of what is not relayed.
    pub device: Device,
    /// Address families that the far side reaches; connections of another are refused at once.
    pub families: Families,
    /// Gates at which connections wait until they are admitted ([`Installed::admit`]).
    pub gates: Vec<Gate>,
    /// Rules on what is carried, goes direct or is blocked; the first that matches counts. The same for as long as it is in force.
    pub rules: Vec<Rule>,
    /// Traffic that cannot be carried goes in clear: while not `carrying`, and without listeners or device.
    pub fail_open: bool,
    /// State of carriage: do new connections of hosts cross?
    pub carrying: Carrying,
}

/// State of carriage: do new connections of hosts cross?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrying {
    /// Carried.
    #[default]
    Yes,
    /// Not carried, for the far side does not answer; of account with `fail_open` alone.
    No,
    /// Waits for another client ([`Installed::drain`]).
    Draining,
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
    /// Nothing intercepted yet, towards listeners on `port`.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            interfaces: Vec::new(),
            local: false,
            port,
            routing: Routing::default(),
            bypass: Vec::new(),
            server: Vec::new(),
            other: Other::Drop,
            reject_http3: false,
            dns: None,
            device: Device::default(),
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            gates: Vec::new(),
            rules: Vec::new(),
            fail_open: false,
            carrying: Carrying::Yes,
        }
    }

    /// True if anything is routed into the device: then it has to exist, and be attached ([`Installed::attach`]).
    #[must_use]
    pub fn needs_device(&self) -> bool {
        let tunnels = |rule: &Rule| rule.action == Action::Tunnel && rule.is_for_packets();
        let tcp = !self.device.tcp.destinations.is_empty();
        self.other == Other::Tunnel || tcp || self.rules.iter().any(tunnels)
    }

    /// The device's name, if it is needed.
    fn device(&self) -> Option<&str> {
        self.needs_device().then_some(&self.device.name)
    }

    /// Families in which the far side reaches nothing.
    fn out_of_reach(&self) -> impl Iterator<Item = Family> {
        let Families { ipv4, ipv6 } = self.families;
        let families = [(Family::V4, ipv4), (Family::V6, ipv6)].into_iter();
        families.filter_map(|(family, reached)| (!reached).then_some(family))
    }

    /// True if traffic is taken in now.
    fn carries(&self) -> bool {
        self.carrying != Carrying::No || !self.fail_open
    }

    /// Installs routes, forwarding and table in the calling thread's namespace, replacing leftovers.
    ///
    /// # Errors
    /// As [`Self::install_claimed`], or another client intercepts here.
    pub fn install(&self) -> io::Result<Installed> {
        let mut installed = self.install_claimed(Claim::take(Sole::Interception)?)?;
        installed.own();
        Ok(installed)
    }

    /// As [`Self::install`], for who holds the `claim` already: of two clients the second would replace the first's table,
    /// and remove it at its end.
    ///
    /// # Errors
    /// A value makes no sense, `nft` or `ip` or the privilege is missing. An interface that does not exist is none: see
    /// [`Installed::missing`]. After an error nothing of ours is in the kernel, unless a killed client's rules were there: what they keep
    /// in stays in, then and when what is returned is dropped before it is owned ([`Installed::own`]).
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
        self.route_of_listeners().remove()?;
        self.remove_packet_routes()
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
        self.routing.validate()?;
        let usable = |byte: u8| byte.is_ascii_graphic() && !br#""'*\/{};"#.contains(&byte);
        match self
            .interfaces
            .iter()
            .chain([&self.device.name])
            .chain(self.rules.iter().flat_map(|rule| &rule.interfaces))
            .find(|name| name.is_empty() || !name.bytes().all(usable))
        {
            Some(name) => Err(invalid(format!("`{name}` is not an interface name"))),
            None => Ok(()),
        }
    }

    fn routes(&self) -> Vec<MarkedRoute> {
        let packets = self.needs_device().then(|| self.packet_routes());
        std::iter::once(self.route_of_listeners())
            .chain(packets.into_iter().flatten())
            .collect()
    }

    fn route_of_listeners(&self) -> MarkedRoute {
        self.routing.route_of_listeners(&self.interfaces)
    }

    fn remove_packet_routes(&self) -> io::Result<()> {
        let routes = self.packet_routes();
        routes.iter().try_for_each(MarkedRoute::remove)
    }

    fn packet_routes(&self) -> [MarkedRoute; 2] {
        let (routing, device) = (self.routing, &self.device.name);
        [
            routing.route_of_device(&self.interfaces, device, !self.fail_open),
            routing.way_back_by_device(device),
        ]
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
        dns: Some(DnsInterception::at(4453)),
        device: Device {
            published: vec![(5060, SocketAddr::from(([192, 0, 2, 1], 5060)))],
            tcp: TcpIntoDevice {
                destinations: vec![IpNet::from(IpAddr::from([192, 0, 2, 0]))],
                leads: true,
            },
            ..Device::default()
        },
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
    let body = format!("{}{body}", Settings::default().sets());
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
        interception.routing.own_mark = interception.routing.mark;
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
