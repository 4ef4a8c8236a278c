//! What an interception needs of the kernel, compared with what is there: others flush, delete and set on the same machine.
//!
//! ```text
//!   Installed::wanted ─► Wanted ─┐
//!                                ├─► lacking (pure) ─► Lack … ─► Installed::mend
//!   Seen::look ────────► Seen ───┘
//! ```

use std::fmt;
use std::io;

use bentpipe_sys::link;
use bentpipe_sys::nftables::{self, Fingerprint};
use bentpipe_sys::policy_rule::{Action, Family, MAIN, PolicyRule, TableRoute, Way};
use bentpipe_sys::route::MarkedRoute;
use bentpipe_sys::watch::Object;
use ipnet::IpNet;

use super::barrier::{self, Holder};
use super::lan::{self, Lan};
use super::{Interception, Routing};
use crate::firewall::{CLIENT_TABLE, GUARD_TABLE, Passage, Setting};

/// Things that are to be in the kernel while an interception is in force.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Counts what this process itself has changed.
    pub(super) generation: u64,
    pub(super) table: Option<Fingerprint>,
    pub(super) rules: Vec<PolicyRule>,
    pub(super) routes: Vec<TableRoute>,
    pub(super) interfaces: Vec<String>,
    pub(super) lan: Lan,
    pub(super) guard_rules: Vec<PolicyRule>,
    /// Device that packets go through, if they do.
    pub(super) device: Option<String>,
    pub(super) attached: bool,
    /// Destinations that are left alone.
    pub(super) exempt: Vec<IpNet>,
    /// This machine's own traffic is taken in.
    pub(super) local: bool,
    pub(super) routing: Routing,
}

/// Things that are in the kernel.
#[derive(Debug, Default)]
pub struct SeenInKernel {
    table: Option<Fingerprint>,
    guard: bool,
    rules: Vec<PolicyRule>,
    routes: Vec<TableRoute>,
    lan: Lan,
    settings: Vec<Setting>,
}

/// Something that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// The table.
    Table {
        /// The thing is there, with other contents.
        changed: bool,
    },
    /// A routing rule.
    Rule(PolicyRule),
    /// A route of one of our tables.
    Route(TableRoute),
    /// The table is made for other interfaces, or other addresses of theirs.
    Lan {
        /// The addresses are the LAN's, not our device's.
        of_lan: bool,
    },
    /// The guard's table, whose rules are there.
    Guard,
    /// A setting.
    Setting(Setting),
    /// A firewall drops what is forwarded, and has no rule yet that lets our device's packets pass.
    Passage(Passage),
}

impl SeenInKernel {
    /// The kernel's numbers of the interfaces that are intercepted.
    #[must_use]
    pub fn lan(&self) -> &[u32] {
        self.lan.named()
    }

    /// Looks at what `wanted` is about.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn look(wanted: &Wanted) -> io::Result<Self> {
        let mut seen = Self {
            table: nftables::fingerprint(CLIENT_TABLE)?,
            lan: Lan::present(
                &wanted.interfaces,
                wanted.device.as_deref(),
                Some(&wanted.lan),
            )?,
            ..Self::default()
        };
        for family in Family::usable() {
            seen.rules.extend(PolicyRule::list(family)?);
        }
        let mut tables: Vec<u32> = wanted.routes.iter().map(|route| route.table).collect();
        tables.sort_unstable();
        tables.dedup();
        for table in tables {
            for family in Family::usable() {
                seen.routes.extend(match table {
                    MAIN => lan::present(family)?,
                    _ => TableRoute::list(family, table)?,
                });
            }
        }
        if !barrier::of(&seen.rules, Holder::Guard).is_empty() {
            seen.guard = nftables::fingerprint(GUARD_TABLE)?.is_some();
        }
        let bridges = link::links()?
            .iter()
            .any(|link| link.bridge && wanted.interfaces.contains(&link.name));
        let device = wanted.device.as_deref();
        seen.settings = Setting::lacking(
            &wanted.interfaces,
            device.is_some(),
            device.filter(|_| wanted.attached),
            bridges,
        );
        if !barrier::of(&wanted.rules, Holder::Client).is_empty() {
            // Interfaces come and go, an uplink that is dialled anew above all.
            seen.settings.extend(Setting::unheeded()?);
        }
        Ok(seen)
    }
}

/// Things of `wanted` that are not as they are to be.
#[must_use]
pub fn lacking(wanted: &Wanted, seen: &SeenInKernel) -> Vec<Lack> {
    let mut lacks = Vec::new();
    // The barrier first: it holds while the table is made.
    let missing = |rule: &&PolicyRule| !seen.rules.contains(rule);
    lacks.extend(wanted.rules.iter().filter(missing).cloned().map(Lack::Rule));
    let whole = seen.table.is_some() && seen.table == wanted.table;
    if !whole {
        let changed = seen.table.is_some();
        lacks.push(Lack::Table { changed });
    } else if seen.lan != wanted.lan {
        lacks.push(Lack::Lan {
            of_lan: !seen.lan.has_same_network(&wanted.lan),
        });
    }
    let missing = |route: &&TableRoute| !seen.routes.contains(route);
    lacks.extend(
        wanted
            .routes
            .iter()
            .filter(missing)
            .cloned()
            .map(Lack::Route),
    );
    if !barrier::of(&seen.rules, Holder::Guard).is_empty() {
        if !seen.guard {
            lacks.push(Lack::Guard);
        }
        // Of both families and all interfaces, some may have been taken.
        let missing = |rule: &&PolicyRule| !seen.rules.contains(rule);
        let rules = wanted.guard_rules.iter().filter(missing);
        lacks.extend(rules.cloned().map(Lack::Rule));
    }
    // What is given to new interfaces is noted in the table, which must be there.
    let settings = seen.settings.iter();
    let settings = settings.filter(|setting| whole || !setting.is_of_marks());
    lacks.extend(settings.cloned().map(Lack::Setting));
    lacks
}

impl Lack {
    /// True if nobody took anything away: what is in force follows a change of interfaces or of their addresses.
    #[must_use]
    pub fn is_change(&self) -> bool {
        match self {
            Self::Lan { .. } => true,
            Self::Setting(setting) => setting.is_of_marks(),
            _ => false,
        }
    }

    /// True if the guard has it, which may be on its way off.
    #[must_use]
    pub fn is_of_guard(&self) -> bool {
        match self {
            Self::Guard => true,
            Self::Rule(rule) => !barrier::of(std::slice::from_ref(rule), Holder::Guard).is_empty(),
            _ => false,
        }
    }

    /// Difference of the thing, after its name.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            Self::Table { changed: true } | Self::Setting(_) => "was changed",
            Self::Lan { .. } => "were changed",
            Self::Passage(_) => "was missing",
            _ => "is gone",
        }
    }

    /// Object that a notice about it names.
    #[must_use]
    pub fn object(&self) -> Object {
        match self {
            Self::Table { .. } => Object::Table(CLIENT_TABLE.to_owned()),
            Self::Guard => Object::Table(GUARD_TABLE.to_owned()),
            Self::Rule(_) => Object::Rule,
            Self::Route(route) => Object::Route(route.table),
            Self::Lan { .. } => Object::Address(0),
            Self::Setting(_) => Object::Setting,
            Self::Passage(passage) => Object::Table(passage.table.clone()),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        match self {
            Self::Table { .. } => write!(f, "table inet {CLIENT_TABLE}"),
            Self::Guard => write!(f, "table inet {GUARD_TABLE}"),
            Self::Rule(rule) => {
                let (family, priority) = (version(rule.family), rule.priority);
                let from = rule.iif.as_deref();
                let from = from.map_or(String::new(), |name| format!(" for {name}"));
                match rule.action {
                    Action::Table(table) => {
                        write!(f, "{family} rule {priority}{from} to routing table {table}")
                    }
                    Action::Blackhole => write!(f, "{family} rule {priority}{from}"),
                }
            }
            Self::Route(route) => {
                let (family, table) = (version(route.family()), route.table);
                let way = match &route.way {
                    Way::Local => "to this machine",
                    Way::Blackhole => "to nowhere",
                    Way::Device(name) => name.as_str(),
                };
                write!(f, "{family} route {way} in routing table {table}")
            }
            Self::Lan { .. } => f.write_str("addresses of the intercepted interfaces"),
            Self::Setting(setting) => setting.fmt(f),
            Self::Passage(passage) => passage.fmt(f),
        }
    }
}

/// Rules of routing that `it` needs, and those against what comes in by the names `held`.
pub(super) fn rules(it: &Interception, held: &[String]) -> Vec<PolicyRule> {
    let marked = it.routes();
    let marked = marked.iter().flat_map(MarkedRoute::rules);
    let barrier = barrier::of_client(it, held);
    barrier.into_iter().chain(marked).collect()
}
