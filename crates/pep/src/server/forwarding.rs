//! The server's table `inet bentpipe_server`: what clients' packets may do on this machine, and its silence when it is killed.
//!
//! ```text
//!   bentpipe0 ─► forward: not to bentpipe0 ─► postrouting: masquerade, or drop ─► internet
//!   bentpipe0 ◄─ forward: answers, and what is for a routed prefix ◄─── internet
//!   bentpipe0 ◄─ forward: published ports ◄─ prerouting: to the client ◄─ internet
//! ```
//!
//! Clients keep sending to a server that was killed. Without a socket the kernel answers every datagram with an ICMP error
//! across the satellite link, where nothing but the tunnel is to be seen: the table outlives SIGKILL. The next start
//! replaces it and a clean stop removes it, when it has ended what this machine's own programs have open to clients. Another program may remove it: a rule of policy routing keeps clients' packets
//! that it has not marked from leaving. Forwarding is opened interface by interface. Which destinations a client may reach is checked before its packets come here.

use std::fs;
use std::io;
use std::net::IpAddr;

use bentpipe_sys::device::NAME;
use bentpipe_sys::live_sockets::end_sockets;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::policy_rule::{Action, Family, PolicyRule};
use bentpipe_sys::written_table::WrittenTable;
use ipnet::IpNet;

use crate::firewall::{
    Router, SERVER_TABLE, Settings, TRIAL_TABLE, close_passages, interfaces, is_shut,
    tell_of_passages, tell_of_rules, tell_of_table,
};

mod rules;

/// The bits of the mark that are ours; others are left as they are.
const MASK: u32 = 0xf000_0000;

/// Priority of the rule for packets that it has not seen; before all that an administrator is likely to add.
const PRIORITY: u32 = 97;

/// Forwarding between the tunnel's device and the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Clients' addresses: what comes from them leaves with an address of this machine.
    pub translated: Vec<IpNet>,
    /// Prefixes that are routed to clients as they are: what comes from them keeps its address, unless it is a private one
    /// and bound for the internet.
    pub routed: Vec<IpNet>,
    /// UDP ports of this machine, and the client's address that each leads to.
    pub published: Vec<(u16, IpAddr)>,
}

/// The table in force, with what belongs to it; dropping it removes all.
#[derive(Debug)]
pub struct ServerTable {
    table: WrittenTable,
    ports: Vec<u16>,
    settings: Settings,
    forwarding: Option<Forwarding>,
    router: Router,
}

impl ServerTable {
    /// Drops the kernel's own "port unreachable" about datagrams to these UDP `ports`; forwards nothing.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; nothing has changed then.
    pub fn install(ports: &[u16]) -> io::Result<Self> {
        let mut installed = Self::prepare(ports)?;
        installed.write()?;
        Ok(installed)
    }

    /// The table of [`Self::install`], for who is about to [`forward`](Self::forward): until then the table of a killed server
    /// stays. A table without a look at connections, be it for a moment, would have the kernel forget their windows, and take
    /// what hosts acknowledge for invalid.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; nothing has changed then.
    pub fn prepare(ports: &[u16]) -> io::Result<Self> {
        let table = WrittenTable::new(SERVER_TABLE);
        // A killed server's settings are still in force, and its table says so.
        let settings = Settings::left_behind(table.table())?;
        Ok(Self {
            router: Router::now(settings.opened_machine()),
            table,
            ports: ports.to_vec(),
            settings,
            forwarding: None,
        })
    }

    /// Forwards, from now on, what `forwarding` says; on failure, what was said before. Where this machine did not forward before, it
    /// forwards that only: interfaces are opened one by one, so that the setting of the whole machine shows what others want.
    ///
    /// # Errors
    /// `nft` or the privilege is missing, or the settings of the kernel cannot be changed; the text says which.
    pub fn forward(&mut self, forwarding: &Forwarding) -> io::Result<()> {
        let before = self.forwarding.replace(forwarding.clone());
        let done = self.restore();
        if done.is_err() {
            // Whatever is restored next is what the caller takes to be in force.
            self.forwarding = before;
        }
        done
    }

    /// Forwards nothing any more, and keeps the kernel silent all the same.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub fn forward_nothing(&mut self) -> io::Result<()> {
        self.forwarding = None;
        self.write()
    }

    /// Puts all in force again: rules, settings of interfaces that have come, the table.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn restore(&mut self) -> io::Result<()> {
        if self.forwarding.is_none() {
            return self.write();
        }
        self.settings.forget_gone();
        for interface in outside()? {
            self.settings.plan(&interface)?;
        }
        self.router = Router::now(self.settings.opened_machine());
        // In this order nothing of others' is forwarded for a moment, and nothing of ours with its own address.
        for rule in second_line() {
            rule.add()?;
        }
        self.write()?;
        self.settings.apply()?;
        open_device();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let body = rules::body(&self.ports, self.forwarding.as_ref(), self.router);
        self.table.write(&format!("{}{body}", self.settings.sets()))
    }

    /// Difference between the table and what was written, as the log tells it; `None` without one.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn fault(&self) -> io::Result<Option<&'static str>> {
        self.table.fault()
    }

    /// True if a rule of policy routing of ours is missing.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn lacks_rules(&self) -> io::Result<bool> {
        if self.forwarding.is_none() {
            return Ok(false);
        }
        for rule in second_line() {
            if !PolicyRule::list(rule.family)?.contains(&rule) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if a setting that we need has been changed back.
    #[must_use]
    pub fn lacks_settings(&self) -> bool {
        self.forwarding.is_some() && (self.settings.is_lost() || is_shut(NAME))
    }

    /// True if an interface has come that answers cannot come in by yet.
    ///
    /// # Errors
    /// /proc/sys cannot be read.
    pub fn has_newcomers(&self) -> io::Result<bool> {
        let mut outside = outside()?.into_iter();
        Ok(self.forwarding.is_some()
            && outside.any(|name| is_shut(&name) && !self.settings.names(&name)))
    }

    /// True if another program has made a router of this machine since, or ended that.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.forwarding.is_some() && Router::now(self.settings.opened_machine()) != self.router
    }
}

impl ServerTable {
    /// Removes the table, once this machine's own programs have no connection to clients any more: the device is gone, and what
    /// they send again would leave in clear by another route. Where they cannot be ended, what holds that back stays.
    fn end_own(&self) {
        // Routed prefixes may hold networks of this machine's own, whose connections go on.
        let all = self.forwarding.iter();
        let clients: Vec<_> = all.flat_map(|all| all.translated.clone()).collect();
        if clients.is_empty() {
            return self.remove_table();
        }
        match end_sockets(&clients) {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(
                    "{count} connections of this machine's programs to clients are ended"
                );
            }
            Err(error) => {
                tracing::warn!(
                    "connections of this machine's programs to clients cannot be ended ({error}): table inet {SERVER_TABLE} stays, so that they do not go on in clear; remove it once they are over"
                );
                if let Err(error) = self.table.table().replace(&rules::left_behind(&clients)) {
                    tracing::warn!(
                        "table inet {SERVER_TABLE} stays as it was while the server ran: {error}"
                    );
                }
                return;
            }
        }
        self.remove_table();
    }

    fn remove_table(&self) {
        tell_of_table(SERVER_TABLE, self.table.table().remove());
    }
}

impl Drop for ServerTable {
    fn drop(&mut self) {
        // What stays is found and mended by the next start. What others have opened meanwhile stays open.
        if let Err(error) = self.settings.restore(false) {
            tracing::warn!("forwarding that this server has opened stays open: {error}");
        }
        tell_of_passages(close_passages());
        self.end_own();
        for rule in second_line() {
            tell_of_rules(&format!("routing rule of {NAME}"), rule.delete(), PRIORITY);
        }
    }
}

/// Rules that hold where the table does not: a client's packet that the table has not marked goes nowhere, so that none leaves
/// with its inner address while the table is gone.
fn second_line() -> Vec<PolicyRule> {
    let families = Family::usable().into_iter();
    let rules = families.map(|family| PolicyRule {
        family,
        priority: PRIORITY,
        iif: Some(NAME.to_owned()),
        mark: Some((0, MASK)),
        from: None,
        action: Action::Blackhole,
    });
    rules.collect()
}

/// Interfaces that answers may come in by.
fn outside() -> io::Result<Vec<String>> {
    let mut names = interfaces()?;
    names.retain(|name| name != "lo" && name != NAME);
    Ok(names)
}

/// Lets what the device delivers be forwarded. Without the device there is nothing to do.
fn open_device() {
    let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{NAME}/forwarding"), "1");
    let _ = fs::write(
        format!("/proc/sys/net/ipv6/conf/{NAME}/force_forwarding"),
        "1",
    );
}

/// Has the kernel look at a table with everything that it can hold, and forget it.
///
/// # Errors
/// `nft` or the privilege is missing, or kernel or `nft` do not know an expression; the text says which.
pub(crate) fn trial() -> io::Result<()> {
    let translated = [([100, 96, 0, 0], 16)];
    let translated = translated.map(|(ip, length)| IpNet::new_assert(IpAddr::from(ip), length));
    let forwarding = Forwarding {
        translated: translated.to_vec(),
        routed: vec![IpNet::new_assert(IpAddr::from([10, 1, 0, 0]), 24)],
        published: vec![(5060, IpAddr::from([100, 96, 0, 2]))],
    };
    let body = rules::body(&[4433], Some(&forwarding), Router::default());
    nft::check(&Table::new(TRIAL_TABLE).replacement(&body))
}
