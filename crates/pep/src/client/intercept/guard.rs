//! The table `inet bentpipe_guard` and routing rules beside it: keep in, while no client runs, what a client would take in.
//!
//! Explicit and lasting: it is put in force before the network comes up, outlives every process, and goes when it is
//! told to. It reads nothing of the machine, so that it can be there before any interface is. Beside a client's own table it
//! lets pass what that has marked.

use std::fmt::Write as _;
use std::io;

use bentpipe_sys::command::run;
use bentpipe_sys::nft::Table;
use bentpipe_sys::policy_rule::PolicyRule;
use ipnet::IpNet;

use super::ruleset::{self, EXEMPT, ICMP, NEIGHBOURS, marked, names, set_mark};
use super::{Interception, Other, barrier, policy};
use crate::firewall::{CLIENT_TABLE, GUARD_TABLE, Setting, Settings};

/// Counter of what the routing rules bar next, which no later hook sees, and the end of its chain.
const HELD_BACK: &str = concat!(
    "    fib daddr type { local, broadcast, multicast, anycast } return\n",
    "    counter comment \"held back\"\n  }\n"
);

impl Interception {
    /// Puts the guard in force, for this interception; interfaces need not exist.
    ///
    /// # Errors
    /// A value makes no sense, `nft` or the privilege is missing. Then nothing has changed.
    pub fn guard(&self) -> io::Result<()> {
        self.validate()?;
        let table = Table::new(GUARD_TABLE);
        let mut settings = Settings::left_behind(&table)?;
        settings.adopt_marks(Settings::left_behind(&Table::new(CLIENT_TABLE))?);
        settings.note(Setting::unheeded(&self.interfaces)?);
        table.replace(&format!("{}{}", settings.set_of_marks(), body(self)))?;
        settings.apply()?;
        // After the table, whose marks let pass what the rules bar.
        let wanted = barrier::of_guard(self);
        barrier::remove(barrier::Holder::Guard, &wanted)?;
        wanted.iter().try_for_each(PolicyRule::add)
    }
}

/// Removes the guard; one that is not there is no error.
///
/// # Errors
/// `nft` or the privilege is missing.
pub fn guard_off() -> io::Result<()> {
    // In this order: a table without these rules is as good as another's that was flushed.
    barrier::remove(barrier::Holder::Guard, &[])?;
    let table = Table::new(GUARD_TABLE);
    let needed = !barrier::present(barrier::Holder::Client)?.is_empty();
    Settings::left_behind(&table)?.restore(needed);
    table.remove()
}

/// The guard's rules as `nft` lists them; `None` if it is off.
///
/// # Errors
/// `nft` or the privilege is missing.
pub fn guard_listing() -> io::Result<Option<String>> {
    match Table::new(GUARD_TABLE).exists()? {
        true => run("nft", &["list", "table", "inet", GUARD_TABLE]).map(Some),
        false if barrier::present(barrier::Holder::Guard)?.is_empty() => Ok(None),
        false => Ok(Some(format!(
            "the table inet {GUARD_TABLE} was removed by another program; routing rules still keep in what is forwarded: \
             `bentpipe guard on` puts it back"
        ))),
    }
}

pub(super) fn body(it: &Interception) -> String {
    let bypass: Vec<IpNet> = it.bypass.iter().map(IpNet::trunc).collect();
    let mut text = ruleset::exempt_sets(&ruleset::link_local().chain(bypass).collect::<Vec<_>>());
    text.push_str(&policy::sets(&it.rules, &policy::Kept::default()));
    text.push_str(&policy::without_process(&it.rules));
    if !it.interfaces.is_empty() {
        text.push_str(&passing(it));
        text.push_str(&forward(it));
    }
    if it.local {
        text.push_str(&output(it));
    }
    text
}

/// Marks what the guard lets pass, for the routing rules that bar the rest. What a client has marked keeps its mark.
fn passing(it: &Interception) -> String {
    let lan = names(it);
    let mut text = format!(
        "  chain pass {{\n    {} accept\n  }}\n",
        set_mark(it, it.direct_mark)
    );
    text.push_str(&policy::passing(&it.rules, &it.other));
    let _ = writeln!(
        text,
        "  chain unmarked {{\n    type filter hook prerouting priority mangle + 10; policy accept;\n{}    iifname != {{ {lan} }} return\n    meta mark & {:#x} != 0 return",
        ruleset::arriving_elsewhere(it),
        it.mark_mask
    );
    for name in &it.interfaces {
        let _ = writeln!(text, "    fib daddr oifname \"{name}\" goto pass");
    }
    text.push_str(
        "    ip daddr @exempt4 goto pass\n    ip6 daddr @exempt6 goto pass\n    jump passing\n",
    );
    text.push_str(HELD_BACK);
    text
}

fn forward(it: &Interception) -> String {
    let lan = names(it);
    let mut text = format!(
        "  chain forward {{\n    type filter hook forward priority filter - 10; policy accept;\n    iifname != {{ {lan} }} return\n    oifname {{ {lan} }} return\n    {} oifname \"{}\" return\n",
        marked(it, it.tunnel_mark),
        it.device
    );
    text.push_str(&last(it));
    text
}

/// Where routing has changed its mind after a mark, this hook still sees the old device; so marks pass here, and the wrong
/// way out is barred at the very end.
fn output(it: &Interception) -> String {
    let mut text = String::from(
        "  chain output {\n    type filter hook output priority filter - 10; policy accept;\n    oifname \"lo\" return\n",
    );
    if !it.interfaces.is_empty() {
        let _ = writeln!(text, "    oifname {{ {} }} return", names(it));
    }
    for mark in [it.own_mark, it.mark, it.tunnel_mark] {
        let _ = writeln!(text, "    {} return", marked(it, mark));
    }
    let _ = writeln!(
        text,
        "    ct direction reply return\n{NEIGHBOURS}    {ICMP} ct state related return"
    );
    text.push_str(&last(it));
    text.push_str(&ruleset::guard_out(it));
    text
}

/// Rules common to both ways out: what may leave in clear, and the end.
fn last(it: &Interception) -> String {
    let mut text = format!(
        "    {} return\n{EXEMPT}    jump rules\n",
        marked(it, it.direct_mark)
    );
    if it.other == Other::Direct {
        text.push_str("    meta l4proto != tcp return\n");
    }
    text.push_str("    counter drop\n  }\n");
    text
}
