//! An interception in force: what changes while it is, what is put back, and its removal.

mod admission;
mod surroundings;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_sys::claim::Claim;
use bentpipe_sys::command::run;
use bentpipe_sys::hold::Hold;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::nftables::{self, Fingerprint};
use bentpipe_sys::policy_rule::PolicyRule;
use bentpipe_sys::route::{MarkedRoute, Target};
use ipnet::IpNet;

use super::kept::{self, Count, Kept, LearnedAddress};
use super::kernel_answer::KernelAnswer;
use super::lan::Lan;
use super::upkeep::{self, Lack, Wanted};
use super::{Carrying, Interception, REFUSED_FOR, barrier, invalid};
use crate::firewall::{CLIENT_TABLE, Settings, close_passages, prepare_device};
pub(super) use surroundings::let_go;
use surroundings::{WhenDropped, brought_up_to_date};

/// An interception in force. Dropping it removes it, unless it is left ([`Self::leave`]); drop it in the namespace it was installed in.
#[derive(Debug)]
pub struct Installed {
    exempt: Vec<IpNet>,
    routes: Vec<MarkedRoute>,
    table: Table,
    settings: Settings,
    /// One for each rule: it learns.
    rules: Vec<bool>,
    when_dropped: WhenDropped,
    current: Interception,
    /// LAN that the table was made for.
    lan: Lan,
    /// The table as we left it.
    print: Option<Fingerprint>,
    generation: u64,
    attached: bool,
    /// For the table's next copy, if this one is taken away.
    counted: Vec<Count>,
    lessons: HashMap<(usize, IpAddr), Duration>,
    /// Hold on this machine's own traffic while the table is away.
    hold: Option<Hold>,
    _claim: Claim,
}

/// Addresses of names that are kept for the table's next copy: as many as one set of it holds.
const MAX_LESSONS: usize = 65_535;

impl Installed {
    /// Puts `it` in force, for who holds the `claim`.
    ///
    /// # Errors
    /// As [`Interception::install_claimed`].
    pub(super) fn put_in_force(it: &Interception, claim: Claim) -> io::Result<Self> {
        let settings = Settings::left_behind_by_both()?;
        let when_dropped = match Table::new(CLIENT_TABLE).exists()? {
            true => WhenDropped::Inherited,
            false => WhenDropped::Removed,
        };
        let lan = Lan::of(it, settings.opened_machine())?;
        let (body, exempt) = it.prepared(&lan, &Kept::default())?;
        // The guard exists first: whatever fails below is undone by it, but for what keeps in what a killed client's rules did.
        let mut installed = Self {
            exempt,
            routes: it.routes(),
            table: Table::new(CLIENT_TABLE),
            settings,
            rules: it.rules.iter().map(|rule| rule.learned).collect(),
            when_dropped,
            current: it.clone(),
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
        if !it.needs_device() {
            it.remove_packet_routes()?;
        }
        // In force first: what is forwarded from then on is subject to it.
        installed.replace(&body)?;
        // And behind it the rules that let pass only what it marks.
        let barrier = barrier::of_client(it, &installed.lan.surfaces());
        barrier::remove(barrier::Holder::Client, &barrier)?;
        installed.heed_marks()?;
        barrier.iter().try_for_each(PolicyRule::add)?;
        brought_up_to_date(it, &installed.lan)?;
        installed.lan.keep_in()?;
        installed.hold_own()?;
        close_passages()?;
        // Where the setting cannot be written the guardian says so, and tries on.
        let _ = installed.keep_bridges_out();
        if it.needs_device() {
            installed.forward_interfaces()?;
        }
        Ok(installed)
    }

    /// Has the kernel answer further connections to `destination` by itself for [`REFUSED_FOR`]. Starts
    /// a process (milliseconds): call it off the data path, and not more often than needed.
    ///
    /// # Errors
    /// Somebody removed the table, or the set is full (65535 destinations).
    pub fn refuse(&self, destination: SocketAddr, kind: KernelAnswer) -> io::Result<()> {
        let set = match (kind, destination) {
            (KernelAnswer::Reset, SocketAddr::V4(_)) => "refused4",
            (KernelAnswer::Reset, SocketAddr::V6(_)) => "refused6",
            (KernelAnswer::HostUnreachable, SocketAddr::V4(_)) => "unreachable4",
            (KernelAnswer::HostUnreachable, SocketAddr::V6(_)) => "unreachable6",
        };
        let element = format!("{} . {}", destination.ip(), destination.port());
        self.table.add_element(set, &element, Some(REFUSED_FOR))
    }

    /// From now on these addresses count as destinations of their rules; one that did already counts for its new time. All
    /// of them, or none if there is an error. To be told before a host hears of the addresses.
    ///
    /// # Errors
    /// As [`Self::refuse`]; or a rule has no such destinations.
    pub fn learn(&mut self, lessons: &[LearnedAddress]) -> io::Result<()> {
        if self.lessons.len() + lessons.len() > MAX_LESSONS {
            // Those that are still used have their time from the set itself.
            self.lessons.clear();
        }
        let known = lessons
            .iter()
            .map(|one| ((one.rule, one.address), one.time));
        self.lessons.extend(known);
        nft::apply(&kept::teaching(CLIENT_TABLE, lessons))
    }

    /// Counts of what each rule has decided on so far.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub fn counts(&mut self) -> io::Result<Vec<Count>> {
        if self.rules.is_empty() {
            return Ok(Vec::new());
        }
        let listing = run("nft", &["list", "counters", "table", "inet", CLIENT_TABLE])?;
        self.counted = kept::counts(&listing, self.rules.len());
        Ok(self.counted.clone())
    }

    /// True if no listener takes connections to `address`, as of those that go in clear for want of a tunnel, or into the device. The kernel
    /// also leaves alone this machine's own addresses, broadcast and multicast.
    #[must_use]
    pub fn leaves_alone(&self, address: IpAddr) -> bool {
        !self.current.carries()
            || self.current.device.tcp.takes(address)
            || self.exempt.iter().any(|net| net.contains(&address))
    }

    /// Leads [`super::Other::Tunnel`] into the device, which must exist and be up. To be called again whenever it has been made
    /// anew; while it is missing, packets for it are dropped.
    ///
    /// # Errors
    /// There is no such device, it is down, or `ip` or the privilege is missing.
    pub fn attach(&mut self) -> io::Result<()> {
        self.attached = true;
        self.generation += 1;
        for route in &self.routes {
            if let Target::Device { name, .. } = &route.target {
                prepare_device(name)?;
            }
            route.attach()?;
        }
        self.heed_marks()
    }

    /// Puts `changed` in force in one step, without a gap (reload, new address of an interface). What
    /// was refused is forgotten, unless gates are all that changes.
    ///
    /// # Errors
    /// As [`Interception::install`], but what was in force stays. Interfaces, marks and routing tables cannot change.
    pub fn update(&mut self, changed: &Interception) -> io::Result<()> {
        if changed.routes() != self.routes {
            return Err(invalid(
                "interfaces, marks and routing tables cannot change while in force".into(),
            ));
        }
        // Whoever changes something else may not know yet that the client drains, and it never ceases to.
        let changed = &Interception {
            carrying: match self.current.carrying {
                Carrying::Draining => Carrying::Draining,
                Carrying::Yes | Carrying::No => changed.carrying,
            },
            ..changed.clone()
        };
        if self.change_gates(changed)? {
            return Ok(());
        }
        let lan = Lan::present(&changed.interfaces, changed.device(), Some(&self.lan))?;
        let kept = self.kept();
        let (body, exempt) = changed.prepared(&lan, &kept)?;
        self.replace(&body)?;
        lan.keep_in()?;
        let held_before = self.lan.surfaces();
        let has_new = lan.has_new_since(&self.lan);
        self.lan = lan;
        self.exempt = exempt;
        self.current = changed.clone();
        if self.lan.surfaces() != held_before {
            self.hold_surfaces()?;
        }
        if has_new {
            let _ = self.keep_bridges_out();
        }
        if has_new && self.current.needs_device() {
            // A new interface has the machine's defaults, which forward nothing.
            self.forward_interfaces()?;
        }
        self.hold_own()
    }

    /// Puts the second line for this machine's own traffic in force, or takes it back, as the interception has it. After
    /// the table, whose marks let pass what the second line drops.
    fn hold_own(&mut self) -> io::Result<()> {
        if self.hold.as_ref().is_some_and(|hold| {
            needs_hold(&self.current) && hold.mask() == self.current.routing.mask
        }) {
            return Ok(());
        }
        match self.hold.take() {
            Some(hold) => hold.remove()?,
            None => Hold::remove_leftover()?,
        }
        if needs_hold(&self.current) {
            self.hold = Hold::put_up(self.current.routing.mask)?;
        }
        Ok(())
    }

    /// True if something of this machine's own traffic would leave in clear if another program removed the table: it is
    /// taken in, and the kernel has no tables that others cannot remove (before Linux 6.9).
    #[must_use]
    pub const fn lacks_hold(&self) -> bool {
        needs_hold(&self.current) && self.hold.is_none()
    }

    /// Part that goes on from one table to the next: as the table has it, or, if that was taken away, as it was when it was
    /// asked last.
    fn kept(&mut self) -> Kept {
        let counts = self.counts().unwrap_or_else(|_| self.counted.clone());
        let remembered = self
            .lessons
            .iter()
            .map(|((rule, address), time)| LearnedAddress {
                rule: *rule,
                address: *address,
                time: *time,
            });
        let learned = kept::learned(&self.rules).unwrap_or_else(|_| remembered.collect());
        Kept { counts, learned }
    }

    /// Puts the table with `body` in force.
    fn replace(&mut self, body: &str) -> io::Result<()> {
        self.table
            .replace(&format!("{}{body}", self.settings.sets()))?;
        self.remember()
    }

    /// The table is as it is to be.
    fn remember(&mut self) -> io::Result<()> {
        self.print = nftables::fingerprint(CLIENT_TABLE)?;
        self.generation += 1;
        Ok(())
    }

    fn forward_interfaces(&mut self) -> io::Result<()> {
        for interface in &self.current.interfaces {
            self.settings.enable(interface, &self.table)?;
        }
        self.remember()?;
        if !self.settings.opened_machine() || self.lan.has_opened_machine() {
            return Ok(());
        }
        // The table was made for a machine whose interfaces are opened one by one.
        self.lan.note_opened_machine();
        let current = self.current.clone();
        self.update(&current)
    }

    /// Things that are to be in the kernel now.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let held = self.lan.surfaces();
        let routes = self
            .routes
            .iter()
            .flat_map(|route| route.routes(self.attached));
        Wanted {
            generation: self.generation,
            table: self.print,
            rules: upkeep::rules(&self.current, &held),
            routes: routes.chain(self.lan.routes()).collect(),
            interfaces: self.current.interfaces.clone(),
            lan: self.lan.clone(),
            guard_rules: barrier::of_guard(&self.current, &held),
            device: self.current.device().map(str::to_owned),
            attached: self.attached,
            exempt: self.exempt.clone(),
            local: self.current.local,
            routing: self.current.routing,
        }
    }

    /// True if packets are led into the device.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.attached
    }

    /// True if `wanted` is still what is to be in the kernel.
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
                self.settings.mend(setting, &self.table)?;
                self.remember()
            }
            Lack::Passage(passage) => passage.open(),
        }
    }
}

/// True if `it` needs the second line for this machine's own traffic: that is taken in, and nothing of it may leave in clear.
const fn needs_hold(it: &Interception) -> bool {
    it.local && !it.fail_open
}
