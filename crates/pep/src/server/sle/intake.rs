//! The table `inet bentpipe_sle`: outer connections that clients make to others, taken in on their way through this machine.
//!
//! ```text
//!   client ─► interface ─ from `sources`, to `prefixes`, SYN ─► TPROXY ─► listener on loopback; further segments of the same
//!   everybody else, all that was begun before, and all while no listener is there ─► forwarded, as without the table
//! ```
//!
//! What this machine itself dials leaves by the output hook, which the table has not. Its own addresses are left alone unless they
//! are listed one by one. What others take away is put back by a guardian.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_sys::nft::Table;
use bentpipe_sys::nftables::fingerprint;
use bentpipe_sys::policy_rule::{Action, Family as Version, PolicyRule, TableRoute};
use bentpipe_sys::route::{MarkedPackets, MarkedRoute, Target};
use bentpipe_sys::watch::Object;
use bentpipe_sys::written_table::WrittenTable;
use ipnet::IpNet;

use crate::config::SleIntake;
use crate::firewall::{Chain, Family, Mark, SLE_TABLE, anonymous, tell_of_rules, tell_of_table};
use crate::kernel::{Faults, Guardian, KernelPart, Repairs, Subject};

/// Bits of the mark that are ours; others are left as they are.
const MASK: u32 = 0xf000_0000;

/// Mark of packets that are taken in.
const TAKEN: Mark = Mark::new(VALUE, MASK);
pub(crate) const VALUE: u32 = 0x8000_0000;

/// Routing table of what is taken in.
const ROUTES: u32 = 25_204;

/// Priority of the routing rules that lead there; behind those of PEPs and before clients'.
const PRIORITY: u32 = 98;

/// Destinations that concern this machine alone, or no single host.
const NEVER: &str = "fib daddr type { local, broadcast, multicast, anycast } return";

/// A SYN that opens a connection.
const OPENING: &str = "tcp flags & (fin | syn | rst | ack) == syn";

/// Name that whoever has rules here holds: an abstract address, which a network namespace has once, and a dead process never.
const SOLE: &str = "bentpipe sle intake";

/// Rules in force; dropping them removes them.
pub(in crate::server) struct IntakeRules {
    guardian: Option<Guardian>,
    rules: Arc<Mutex<Rules>>,
    _sole: Sole,
}

/// Right to have the rules: nobody else in this network namespace has it.
struct Sole(#[expect(dead_code, reason = "held for its name")] UnixDatagram);

impl Sole {
    fn take() -> io::Result<Self> {
        let name = LocalAddr::from_abstract_name(SOLE)?;
        UnixDatagram::bind_addr(&name).map(Self)
    }
}

/// Things that are to be in the kernel.
struct Rules {
    body: String,
    route: MarkedRoute,
    table: WrittenTable,
}

impl IntakeRules {
    /// Leads connections that `intake` names to the `listeners`, which are there and transparent; this machine's ports of `own`
    /// are left alone.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; then nothing stays behind.
    pub(super) fn install(
        intake: &SleIntake,
        listeners: &[SocketAddr],
        own: &[u16],
    ) -> io::Result<Self> {
        let sole = Sole::take().map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => io::Error::other(
                "another server takes in connections on this machine; have one of them do so, with the `interfaces`, `prefixes` \
                 and `sources` of both",
            ),
            _ => error,
        })?;
        let mut rules = Rules {
            body: body(intake, listeners, own),
            route: route(&intake.interfaces),
            table: WrittenTable::new(SLE_TABLE),
        };
        // What cannot be removed is replaced, or that fails and says why.
        let _ = rules.remove();
        if let Err(error) = rules.put_in_force() {
            let _ = rules.remove();
            return Err(error);
        }
        let rules = Arc::new(Mutex::new(rules));
        Ok(Self {
            guardian: Guardian::start_or_tell(KeptIntake(rules.clone())),
            rules,
            _sole: sole,
        })
    }

    /// Removes what a server that was killed has left, where this one takes in nothing.
    pub(in crate::server) fn remove_leftover() {
        // Not those of a server that runs.
        let Ok(_sole) = Sole::take() else {
            return;
        };
        // Who may not look could have left nothing, nor can it take anything away.
        if !Rules::exist().unwrap_or(false) {
            return;
        }
        let _ = Rules::remove_all(&route(&[]));
        match Rules::exist() {
            Ok(false) => tracing::info!(
                "table inet {SLE_TABLE} and its routing rules, which a server that was killed had left, are removed"
            ),
            _ => tracing::warn!(
                "table inet {SLE_TABLE}, which a server that was killed has left, cannot be removed; run `nft delete table inet {SLE_TABLE}`"
            ),
        }
    }

    /// Things that were put back, for `status`.
    pub(in crate::server) fn repairs(&self) -> Option<Repairs> {
        self.guardian.as_ref().map(Guardian::repairs)
    }
}

impl Drop for IntakeRules {
    fn drop(&mut self) {
        // Nothing is put back from here on.
        self.guardian = None;
        let [table, routes] = lock(&self.rules).remove();
        tell_of_table(SLE_TABLE, table);
        tell_of_rules("routing rule of [sle]", routes, PRIORITY);
    }
}

fn lock(rules: &Mutex<Rules>) -> std::sync::MutexGuard<'_, Rules> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rules {
    /// Puts all in force; the table last, so that nothing is marked that has no way.
    fn put_in_force(&mut self) -> io::Result<()> {
        self.route.install()?;
        self.table.write(&self.body)
    }

    /// Removes all, also what a server that was killed has left; connections pass as without one. Says how it went with the table, and
    /// with rules and routes.
    fn remove(&self) -> [io::Result<()>; 2] {
        Self::remove_all(&self.route)
    }

    /// True if the table is there, or a rule that leads to its routes.
    fn exist() -> io::Result<bool> {
        if fingerprint(SLE_TABLE)?.is_some() {
            return Ok(true);
        }
        let mut families = Version::usable().into_iter();
        families.try_fold(false, |found, family| {
            let all = PolicyRule::list(family)?;
            Ok(found || all.iter().any(|it| it.action == Action::Table(ROUTES)))
        })
    }

    fn remove_all(route: &MarkedRoute) -> [io::Result<()>; 2] {
        [Table::new(SLE_TABLE).remove(), route.remove()]
    }

    fn faults(&self) -> io::Result<Faults<IntakePart>> {
        let table = self.table.fault()?.map(|state| (IntakePart::Table, state));
        let mut faults = Vec::from_iter(table);
        for rule in self.route.rules() {
            if !PolicyRule::list(rule.family)?.contains(&rule) {
                faults.push((IntakePart::Rule(rule), "is gone"));
            }
        }
        for route in self.route.routes(false) {
            if !TableRoute::list(route.family(), route.table)?.contains(&route) {
                faults.push((IntakePart::Route(route), "is gone"));
            }
        }
        Ok(faults)
    }
}

fn version(family: Version) -> &'static str {
    match family {
        Version::V4 => "IPv4",
        Version::V6 => "IPv6",
    }
}

/// A part that can be put back by itself.
enum IntakePart {
    Table,
    Rule(PolicyRule),
    Route(TableRoute),
}

impl KernelPart for IntakePart {
    fn name(&self) -> String {
        match self {
            Self::Table => format!("table inet {SLE_TABLE}"),
            Self::Rule(rule) => {
                let (family, priority) = (version(rule.family), rule.priority);
                let from = rule.iif.as_deref().unwrap_or_default();
                format!("{family} rule {priority} of [sle] for {from}")
            }
            Self::Route(route) => {
                let (family, table) = (version(route.family()), route.table);
                format!("{family} route to this machine in routing table {table}")
            }
        }
    }

    fn object(&self) -> Object {
        match self {
            Self::Table => Object::Table(SLE_TABLE.into()),
            Self::Rule(_) => Object::Rule,
            Self::Route(route) => Object::Route(route.table),
        }
    }
}

/// The rules as what a [`Guardian`] keeps.
struct KeptIntake(Arc<Mutex<Rules>>);

impl Subject for KeptIntake {
    type Part = IntakePart;

    fn compare(&mut self) -> io::Result<Faults<IntakePart>> {
        lock(&self.0).faults()
    }

    fn repair(&mut self, part: &IntakePart) -> io::Result<()> {
        match part {
            IntakePart::Table => {
                let Rules { table, body, .. } = &mut *lock(&self.0);
                table.write(body)
            }
            IntakePart::Rule(rule) => rule.add(),
            IntakePart::Route(route) => route.replace(),
        }
    }
}

/// Route of what is taken in, by `interfaces`, to this machine.
fn route(interfaces: &[String]) -> MarkedRoute {
    let packets = interfaces.iter().map(|name| MarkedPackets {
        mark: VALUE,
        iif: Some(name.clone()),
    });
    MarkedRoute {
        packets: packets.collect(),
        mask: MASK,
        table: ROUTES,
        priority: PRIORITY,
        target: Target::Local,
    }
}

/// The chains, as between the braces of the table.
fn body(intake: &SleIntake, listeners: &[SocketAddr], own: &[u16]) -> String {
    let names = intake.interfaces.iter().map(|name| format!("\"{name}\""));
    let (hosts, prefixes): (Vec<IpNet>, Vec<IpNet>) = intake
        .prefixes
        .iter()
        .partition(|net| net.prefix_len() == net.max_prefix_len());
    let own = (!own.is_empty()).then(|| {
        format!(
            "tcp dport {} fib daddr type local return",
            anonymous(own.iter())
        )
    });
    let chosen = Chain::at("choose", "filter", "prerouting priority mangle")
        .rule(format_args!("iifname != {} return", anonymous(names)))
        .rule("meta l4proto != tcp return")
        .rule("fib saddr type local return")
        .rules(own)
        .rules(matches(intake, &hosts))
        .rule(NEVER)
        .rules(matches(intake, &prefixes));
    let opened = listeners.iter().map(|listener| {
        let family = Family::of(listener.ip());
        let (protocol, header) = (family.protocol(), family.header());
        format!(
            "meta nfproto {protocol} {OPENING} tproxy {header} to {listener} counter {} accept",
            TAKEN.set()
        )
    });
    let taken = Chain::new("take")
        // Before the next rule, which would give a SYN to what is left of an earlier connection (TIME_WAIT), where it ends.
        .rules(opened)
        // What belongs to a connection that was taken in. What was begun before the table was there is not.
        .rule(format_args!("socket transparent 1 {} accept", TAKEN.set()));
    format!("{taken}{chosen}")
}

/// Rules that take what goes from `sources` to `prefixes`, in each family.
fn matches(intake: &SleIntake, prefixes: &[IpNet]) -> impl Iterator<Item = String> {
    let rules = Family::BOTH.map(|family| {
        let sources = family.merged(&intake.sources)?;
        let prefixes = family.merged(prefixes)?;
        let header = family.header();
        Some(format!(
            "{header} saddr {sources} {header} daddr {prefixes} goto take"
        ))
    });
    rules.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake(prefixes: &[&str], sources: &[&str]) -> SleIntake {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        SleIntake {
            interfaces: vec!["sat0".into()],
            prefixes: nets(prefixes),
            sources: nets(sources),
        }
    }

    #[test]
    fn tables_are_those_of_the_snapshots() {
        let listeners = ["127.0.0.1:40000", "[::1]:40001"].map(|one| one.parse().unwrap());
        let script = |name, intake: &SleIntake, own: &[u16]| {
            let body = body(intake, &listeners, own);
            (name, Table::new(SLE_TABLE).replacement(&body))
        };
        let all = [
            script(
                "gateway",
                &intake(
                    &["10.30.0.0/24", "fd00:30::/64"],
                    &["10.20.0.0/24", "fd00:20::/64"],
                ),
                &[],
            ),
            script(
                "host",
                &intake(&["10.30.0.2/32", "10.30.0.0/24"], &["10.0.0.0/8"]),
                &[443, 4434],
            ),
        ];
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/sle/snapshots");
        crate::firewall::snapshot::compare(directory, &all);
    }
}
