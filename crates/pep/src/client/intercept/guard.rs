//! The table `inet bentpipe_guard` and routing rules beside it: keep in, while no client runs, what a client would take in.
//!
//! Explicit and lasting: it is put in force before the network comes up, outlives every process, and goes when it is
//! told to. It needs nothing of the machine, so that it can be there before any interface is; of those that are there it reads which
//! are ports of others, and holds these others as well. Beside a client's own table it
//! lets pass what that has marked.

use std::io;

use bentpipe_sys::command::run;
use bentpipe_sys::link;
use bentpipe_sys::nft::Table;
use bentpipe_sys::policy_rule::PolicyRule;
use ipnet::IpNet;

use super::kept::Kept;
use super::ruleset::{self, EXEMPT, ICMP, NEIGHBOURS, NEVER, names};
use super::{Interception, Other, barrier, hooks, lan, policy};
use crate::firewall::{CLIENT_TABLE, Chain, GUARD_TABLE, Setting, Settings};

impl Interception {
    /// Puts the guard in force, for this interception; interfaces need not exist.
    ///
    /// # Errors
    /// A value makes no sense, `nft` or the privilege is missing. Then nothing has changed.
    pub fn guard(&self) -> io::Result<()> {
        self.validate()?;
        let held = lan::surfaces(&link::ports(&link::links()?, &self.interfaces));
        let table = Table::new(GUARD_TABLE);
        let mut settings = Settings::left_behind(&table)?;
        settings.adopt_marks(Settings::left_behind(&Table::new(CLIENT_TABLE))?);
        settings.note(Setting::unheeded(&self.interfaces)?);
        table.replace(&format!("{}{}", settings.set_of_marks(), body(self, &held)))?;
        settings.apply()?;
        // After the table, whose marks let pass what the rules bar.
        let wanted = barrier::of_guard(self, &held);
        barrier::remove(barrier::Holder::Guard, &wanted)?;
        wanted.iter().try_for_each(PolicyRule::add)
    }
}

/// True if the guard is on, also if another program has removed its table.
pub(super) fn is_on() -> io::Result<bool> {
    Ok(!barrier::present(barrier::Holder::Guard)?.is_empty())
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

/// The guard's sets and chains; what comes in by those of the names `held` goes nowhere.
pub(super) fn body(it: &Interception, held: &[String]) -> String {
    let bypass = it.bypass.iter().map(IpNet::trunc);
    let mut text = ruleset::exempt_sets(&ruleset::link_local().chain(bypass).collect::<Vec<_>>());
    text.push_str(&policy::sets(&it.rules, &Kept::default()));
    let mut chains = vec![policy::without_process(&it.rules)];
    if !it.interfaces.is_empty() {
        chains.extend(passing(it, held));
        chains.push(forward(it, held));
    }
    if it.local {
        chains.extend([output(it), hooks::guard_out(it)]);
    }
    text + &ruleset::printed(chains)
}

/// Marks what the guard lets pass, for the routing rules that bar the rest. What a client has marked keeps its mark.
fn passing(it: &Interception, held: &[String]) -> [Chain; 3] {
    let pass = it.routing.direct().set() + " accept";
    let lan = it.interfaces.iter();
    let place = "prerouting priority mangle + 10";
    let unmarked = Chain::at("unmarked", "filter", place)
        .rules(hooks::arriving_elsewhere(it, held))
        .rule(format_args!("iifname != {{ {} }} return", names(it)))
        .rule(format_args!("{} return", it.routing.direct().any_borne()))
        .rules(lan.map(|name| format!("fib daddr oifname \"{name}\" goto pass")))
        .rule("ip daddr @exempt4 goto pass")
        .rule("ip6 daddr @exempt6 goto pass")
        .rule("jump passing")
        // Counter of what the routing rules bar next, which no later hook sees.
        .rule(NEVER)
        .rule("counter comment \"held back\"");
    [
        Chain::new("pass").rule(pass),
        policy::passing(&it.rules, it.other),
        unmarked,
    ]
}

fn forward(it: &Interception, held: &[String]) -> Chain {
    let (lan, tunnel) = (names(it), it.routing.tunnel().borne());
    let chain = Chain::at("forward", "filter", "forward priority filter - 10")
        .rules(hooks::holding(held))
        .rule(format_args!("iifname != {{ {lan} }} return"))
        .rule(format_args!("oifname {{ {lan} }} return"))
        .rule(format_args!(
            "{tunnel} oifname \"{}\" return",
            it.device.name
        ));
    ended(chain, it)
}

/// Where routing has changed its mind after a mark, this hook still sees the old device; so marks pass here, and the wrong
/// way out is barred at the very end.
fn output(it: &Interception) -> Chain {
    let lan = (!it.interfaces.is_empty()).then(|| format!("oifname {{ {} }} return", names(it)));
    let routing = it.routing;
    let marks = [routing.own(), routing.intercepted(), routing.tunnel()];
    let chain = Chain::at("output", "filter", "output priority filter - 10")
        .rule("oifname \"lo\" return")
        .rules(lan)
        .rules(marks.map(|mark| mark.borne() + " return"))
        .rule("ct direction reply return")
        .rules(NEIGHBOURS)
        .rule(format_args!("{ICMP} ct state related return"));
    ended(chain, it)
}

/// The chain with the rules common to both ways out: what may leave in clear, and the end.
fn ended(chain: Chain, it: &Interception) -> Chain {
    let other = (it.other == Other::Direct).then_some("meta l4proto != tcp return");
    chain
        .rule(it.routing.direct().borne() + " return")
        .rules(EXEMPT)
        .rule("jump rules")
        .rules(other)
        .rule("counter drop")
}
