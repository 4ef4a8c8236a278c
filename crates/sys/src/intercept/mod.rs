//! Interception: which packets of this machine and of its LANs go to the transparent listeners, which into our device.
//!
//! The table `inet bentpipe_client` and the policy routes that belong to it, installed and removed as
//! one. It fails closed: rules mark first, then tproxy, then drop, and behind the device's route stands a
//! blackhole, so that a listener or a device that is gone lets nothing out in clear. It opens no sockets and
//! relays nothing. Behind the table stand routing rules (`barrier.rs`); what others take away is found by `upkeep.rs`.
//!
//! Known limits: a firewall of the user's that drops in its own input hook also drops intercepted
//! connections; sockets of this machine bound to an interface (SO_BINDTODEVICE) are cut, not relayed.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::command::run;
use crate::nft::{self, Table};
use crate::nftables::{self, Fingerprint};
use crate::policy_rule::PolicyRule;
use crate::route::{MarkedRoute, Target};

use forwarding::{Forwarding, Setting};
use hold::Hold;
use lan::Lan;
use policy::Kept;

pub use claim::Claim;
pub use gate::{ADMITTED_FOR, Gate};
pub use guard::{GUARD_TABLE, guard_listing, guard_off};
pub use hold::HOLD_TABLE;
pub use policy::{Action, Count, Lesson, Rule, WITH_PORTS};
pub use upkeep::{Lack, Seen, Wanted, lacking};

mod barrier;
mod claim;
pub(crate) mod forwarding;
mod gate;
mod guard;
mod hold;
mod inbound;
mod lan;
mod packets;
mod passage;
mod policy;
mod ruleset;
mod upkeep;

/// The table's name; fixed, so that the leftover of a killed process is found.
pub const TABLE: &str = "bentpipe_client";
/// Time that the kernel answers by itself for a destination that was refused or unreachable. A service that was restarted is
/// found again after it, and a host that keeps asking costs the link one round trip in as long.
pub const REFUSED_FOR: Duration = Duration::from_secs(10);

/// What to intercept. All of it is read at [`Interception::install`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interception {
    /// Interfaces whose TCP is intercepted, by name; they must exist.
    pub interfaces: Vec<String>,
    /// Whether this machine's own TCP is intercepted too.
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
    /// What happens to everything but TCP (and DNS, if there is a `dns_port`).
    pub other: Other,
    /// Whether HTTP/3 (UDP port 443) is answered with "port unreachable", so that browsers fall back to TCP.
    pub reject_http3: bool,
    /// The port of the transparent DNS listeners, UDP and TCP, IPv4 and IPv6; `None`: DNS is like any other traffic.
    pub dns_port: Option<u16>,
    /// What becomes of name lookups that are meant for this machine itself.
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
    /// Whether the far side reaches IPv4; if not, IPv4 connections are refused at once.
    pub ipv4: bool,
    /// Whether the far side reaches IPv6; if not, IPv6 connections are refused at once.
    pub ipv6: bool,
    /// Which connections wait until they are admitted ([`Installed::admit`]).
    pub gates: Vec<Gate>,
    /// What is carried, goes direct or is blocked; the first that matches counts. The same for as long as it is in force.
    pub rules: Vec<Rule>,
    /// Whether what cannot be carried goes in clear: while not `carrying`, and without listeners or device.
    pub fail_open: bool,
    /// Whether there is a far side that answers; of account with `fail_open` alone.
    pub carrying: bool,
}

/// What becomes of name lookups of the LAN that are meant for this machine's own addresses.
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

/// What happens to traffic that is neither TCP nor DNS.
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

    /// The body of the table, with `connected` as the prefixes of the intercepted interfaces. Pure: no
    /// connections to this machine are assumed to exist already.
    #[must_use]
    pub fn ruleset(&self, connected: &[IpNet]) -> String {
        let lan = Lan::with_prefixes(connected);
        ruleset::body(self, &lan, &[], &Kept::default())
    }

    /// Whether anything is routed into the device: then it has to exist, and be attached ([`Installed::attach`]).
    #[must_use]
    pub fn needs_device(&self) -> bool {
        let tunnels = |rule: &Rule| rule.action == Action::Tunnel && rule.is_for_packets();
        self.other == Other::Tunnel || self.rules.iter().any(tunnels)
    }

    /// The device's name, if it is needed.
    fn device(&self) -> Option<&str> {
        self.needs_device().then_some(&self.device)
    }

    /// Whether traffic is taken in now.
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
        let lan = Lan::of(self)?;
        let (body, exempt) = self.prepared(&lan, &Kept::default())?;
        // The guard exists first: whatever fails below is undone by it.
        let mut installed = Installed {
            exempt,
            routes: self.routes(),
            table: Table::new(TABLE),
            forwarding: Forwarding::left_behind_by_both()?,
            rules: self.rules.iter().map(|rule| rule.learned).collect(),
            armed: true,
            current: self.clone(),
            lan,
            print: None,
            generation: 0,
            attached: false,
            counted: Vec::new(),
            lessons: HashMap::new(),
            hold: None,
            _claim: claim,
        };
        for route in &installed.routes {
            route.install()?;
        }
        if !self.needs_device() {
            self.packet_route().remove()?;
        }
        // In force first: what is forwarded from then on is subject to it.
        installed.replace(&body)?;
        // And behind it the rules that let pass only what it marks.
        let barrier = barrier::of_client(self);
        barrier::remove(barrier::Holder::Client, &barrier)?;
        installed.heed_marks()?;
        barrier.iter().try_for_each(PolicyRule::add)?;
        installed.lan.keep_in()?;
        installed.hold_own()?;
        passage::close_all()?;
        if self.needs_device() {
            installed.forward_interfaces()?;
        }
        Ok(installed)
    }

    /// Removes table and routes, also those that a killed process left.
    ///
    /// # Errors
    /// `nft` or `ip` or the privilege is missing.
    pub fn remove(&self) -> io::Result<()> {
        Hold::remove_leftover()?;
        let table = Table::new(TABLE);
        let_go(&Forwarding::left_behind(&table)?, &table)?;
        self.local_route().remove()?;
        self.packet_route().remove()
    }

    fn prepared(&self, lan: &Lan, kept: &Kept) -> io::Result<(String, Vec<IpNet>)> {
        self.validate()?;
        let inbound = if self.local {
            inbound::connections()?
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

/// Why a destination is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The destination refused: the next connection is reset (ECONNREFUSED).
    Refused,
    /// The destination cannot be reached: an ICMP host-unreachable answers (EHOSTUNREACH). The kernel
    /// rate-limits it per host, and a process of this machine may see it only after its second SYN (1 s).
    Unreachable,
}

/// An interception in force. Dropping it removes it; drop it in the namespace it was installed in.
#[derive(Debug)]
pub struct Installed {
    exempt: Vec<IpNet>,
    routes: Vec<MarkedRoute>,
    table: Table,
    forwarding: Forwarding,
    /// Whether each of them learns.
    rules: Vec<bool>,
    armed: bool,
    current: Interception,
    /// What the table was made for.
    lan: Lan,
    /// The table as we left it.
    print: Option<Fingerprint>,
    generation: u64,
    attached: bool,
    /// For the table's next copy, if this one is taken away.
    counted: Vec<Count>,
    lessons: HashMap<(usize, IpAddr), Duration>,
    /// What holds this machine's own traffic while the table is away.
    hold: Option<Hold>,
    _claim: Claim,
}

/// Addresses of names that are kept for the table's next copy: as many as one set of it holds.
const MAX_LESSONS: usize = 65_535;

impl Installed {
    /// Has the kernel answer further connections to `destination` by itself for [`REFUSED_FOR`]. Starts
    /// a process (milliseconds): call it off the data path, and not more often than needed.
    ///
    /// # Errors
    /// Somebody removed the table, or the set is full (65535 destinations).
    pub fn refuse(&self, destination: SocketAddr, kind: Refusal) -> io::Result<()> {
        let set = match (kind, destination) {
            (Refusal::Refused, SocketAddr::V4(_)) => "refused4",
            (Refusal::Refused, SocketAddr::V6(_)) => "refused6",
            (Refusal::Unreachable, SocketAddr::V4(_)) => "unreachable4",
            (Refusal::Unreachable, SocketAddr::V6(_)) => "unreachable6",
        };
        let element = format!("{} . {}", destination.ip(), destination.port());
        self.table.add_element(set, &element, Some(REFUSED_FOR))
    }

    /// Lets a connection through that a [`Gate`] holds: the next of its opening segments passes.
    ///
    /// # Errors
    /// As [`Self::refuse`].
    pub fn admit(&self, source: SocketAddr, destination: SocketAddr) -> io::Result<()> {
        let set = if destination.is_ipv4() {
            "admitted4"
        } else {
            "admitted6"
        };
        let [from, to] = [source, destination].map(|end| format!("{} . {}", end.ip(), end.port()));
        self.table
            .add_element(set, &format!("{from} . {to}"), Some(ADMITTED_FOR))
    }

    /// From now on these addresses count as destinations of their rules; one that did already counts for its new time. All
    /// of them, or none if there is an error. To be told before a host hears of the addresses.
    ///
    /// # Errors
    /// As [`Self::refuse`]; or a rule has no such destinations.
    pub fn learn(&mut self, lessons: &[Lesson]) -> io::Result<()> {
        if self.lessons.len() + lessons.len() > MAX_LESSONS {
            // Those that are still used have their time from the set itself.
            self.lessons.clear();
        }
        let known = lessons
            .iter()
            .map(|one| ((one.rule, one.address), one.time));
        self.lessons.extend(known);
        nft::apply(&policy::teaching(TABLE, lessons))
    }

    /// What each rule has decided on so far.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub fn counts(&mut self) -> io::Result<Vec<Count>> {
        if self.rules.is_empty() {
            return Ok(Vec::new());
        }
        let listing = run("nft", &["list", "counters", "table", "inet", TABLE])?;
        self.counted = policy::counts(&listing, self.rules.len());
        Ok(self.counted.clone())
    }

    /// Whether connections to `address` are left alone. The kernel also leaves alone this machine's own addresses,
    /// broadcast and multicast.
    #[must_use]
    pub fn exempts(&self, address: IpAddr) -> bool {
        self.exempt.iter().any(|net| net.contains(&address))
    }

    /// Leads [`Other::Tunnel`] into the device, which must exist and be up. To be called again whenever it has been made
    /// anew; while it is missing, packets for it are dropped.
    ///
    /// # Errors
    /// There is no such device, it is down, or `ip` or the privilege is missing.
    pub fn attach(&mut self) -> io::Result<()> {
        self.attached = true;
        self.generation += 1;
        for route in &self.routes {
            if let Target::Device { name, .. } = &route.target {
                forwarding::prepare_device(name)?;
            }
            route.attach()?;
        }
        self.heed_marks()
    }

    /// Has all other interfaces heed marks, if routing rules drop what has none.
    fn heed_marks(&mut self) -> io::Result<()> {
        if barrier::of_client(&self.current).is_empty() {
            return Ok(());
        }
        let unheeded = Setting::unheeded(&self.current.interfaces)?;
        unheeded
            .iter()
            .try_for_each(|setting| self.forwarding.mend(setting, &self.table))?;
        match unheeded.is_empty() {
            true => Ok(()),
            false => self.remember(),
        }
    }

    /// Puts `changed` in force in one step, without a gap (reload, new address of an interface). What
    /// was refused is forgotten.
    ///
    /// # Errors
    /// As [`Interception::install`], but what was in force stays. Marks and routing table cannot change.
    pub fn update(&mut self, changed: &Interception) -> io::Result<()> {
        if changed.routes() != self.routes {
            return Err(invalid(
                "marks and routing table cannot change while in force".into(),
            ));
        }
        // Of an interface that is not taken in any more nothing is remembered.
        let same = changed.interfaces == self.current.interfaces;
        let known = same.then_some(&self.lan);
        let lan = Lan::present(&changed.interfaces, changed.device(), known)?;
        let kept = self.kept();
        let (body, exempt) = changed.prepared(&lan, &kept)?;
        self.replace(&body)?;
        lan.keep_in()?;
        self.lan = lan;
        self.exempt = exempt;
        self.current = changed.clone();
        self.hold_own()
    }

    /// Puts the second line for this machine's own traffic in force, or takes it back, as the interception has it. After
    /// the table, whose marks let pass what the second line drops.
    fn hold_own(&mut self) -> io::Result<()> {
        if self
            .hold
            .as_ref()
            .is_some_and(|hold| hold.fits(&self.current))
        {
            return Ok(());
        }
        match self.hold.take() {
            Some(hold) => hold.remove()?,
            None => Hold::remove_leftover()?,
        }
        if Hold::is_needed(&self.current) {
            self.hold = Hold::put_up(&self.current)?;
        }
        Ok(())
    }

    /// Whether something of this machine's own traffic would leave in clear if another program removed the table: it is
    /// taken in, and the kernel has no tables that others cannot remove (before Linux 6.9).
    #[must_use]
    pub const fn lacks_hold(&self) -> bool {
        Hold::is_needed(&self.current) && self.hold.is_none()
    }

    /// What goes on from one table to the next: as the table has it, or, if that was taken away, as it was when it was
    /// asked last.
    fn kept(&mut self) -> Kept {
        let counts = self.counts().unwrap_or_else(|_| self.counted.clone());
        let remembered = self.lessons.iter().map(|((rule, address), time)| Lesson {
            rule: *rule,
            address: *address,
            time: *time,
        });
        let learned = policy::learned(&self.rules).unwrap_or_else(|_| remembered.collect());
        Kept { counts, learned }
    }

    /// Puts the table with `body` in force.
    fn replace(&mut self, body: &str) -> io::Result<()> {
        self.table
            .replace(&format!("{}{body}", self.forwarding.sets()))?;
        self.remember()
    }

    /// The table is as it is to be.
    fn remember(&mut self) -> io::Result<()> {
        self.print = nftables::fingerprint(TABLE)?;
        self.generation += 1;
        Ok(())
    }

    fn forward_interfaces(&mut self) -> io::Result<()> {
        for interface in &self.current.interfaces {
            self.forwarding.enable(interface, &self.table)?;
        }
        self.remember()
    }

    /// What there is to be in the kernel now.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let routes = self
            .routes
            .iter()
            .flat_map(|route| route.routes(self.attached));
        Wanted {
            generation: self.generation,
            table: self.print,
            rules: upkeep::rules(&self.current),
            routes: routes.chain(self.lan.routes()).collect(),
            interfaces: self.current.interfaces.clone(),
            lan: self.lan.clone(),
            guard_rules: barrier::of_guard(&self.current),
            device: self.current.device().map(str::to_owned),
            attached: self.attached,
        }
    }

    /// Names of intercepted interfaces that no interface has now: it was removed, or has another name. What comes in by
    /// one that was renamed is dropped.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        self.lan.missing()
    }

    /// Whether packets are led into the device.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.attached
    }

    /// Whether `wanted` is what there is to be still.
    #[must_use]
    pub fn is_current(&self, wanted: &Wanted) -> bool {
        self.generation == wanted.generation
    }

    /// Puts back what is missing. Of a route into a device that is gone there is nothing to put back yet.
    ///
    /// # Errors
    /// As [`Interception::install`].
    pub fn mend(&mut self, lack: &Lack) -> io::Result<()> {
        match lack {
            Lack::Table { .. } | Lack::Lan { .. } => {
                let current = self.current.clone();
                self.update(&current)
            }
            Lack::Rule(rule) => rule.add(),
            Lack::Route(route) => route.replace(),
            Lack::Guard => self.current.guard(),
            Lack::Setting(setting) => {
                self.forwarding.mend(setting, &self.table)?;
                self.remember()
            }
            Lack::Passage(passage) => passage.open(),
        }
    }

    /// Removes table and route, with an error if that fails (dropping would swallow it).
    ///
    /// # Errors
    /// `nft` or `ip` or the privilege is missing.
    pub fn remove(mut self) -> io::Result<()> {
        self.armed = false;
        self.remove_all()
    }

    fn remove_all(&mut self) -> io::Result<()> {
        // First, while the table marks what the second line lets pass.
        if let Some(hold) = self.hold.take() {
            hold.remove()?;
        }
        let_go(&self.forwarding, &self.table)?;
        self.routes.iter().try_for_each(MarkedRoute::remove)
    }
}

/// Puts `settings` back and removes what keeps the LAN in, the `table` last.
fn let_go(settings: &Forwarding, table: &Table) -> io::Result<()> {
    // While the table still keeps in what is forwarded.
    let guarded = !barrier::present(barrier::Holder::Guard)?.is_empty();
    settings.restore(guarded);
    passage::close_all()?;
    barrier::remove(barrier::Holder::Client, &[])?;
    lan::let_out()?;
    table.remove()
}

impl Drop for Installed {
    fn drop(&mut self) {
        if self.armed {
            // Drop cannot report; what stays is found and replaced at the next start.
            let _ = self.remove_all();
        }
    }
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
