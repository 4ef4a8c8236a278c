//! The table `inet bentpipe_guard` and routing rules beside it: keep in, while no client runs, what a client would take in.
//!
//! Explicit and lasting: it is put in force before the network comes up, outlives every process, and goes when it is
//! told to. It needs nothing of the machine, so that it can be there before any interface is; of those that are there it reads which
//! are ports of others, and holds these others as well. What a bridge takes in by a port that is named, whenever that bridge is made,
//! a table of the family `bridge` marks before IP sees it under the bridge's name. Beside a client's own table it
//! lets pass what that has marked.

use std::io;

use bentpipe_sys::link;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::policy_rule::PolicyRule;
use ipnet::IpNet;
use tracing::warn;

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
        settings.note(Setting::unheeded()?);
        let body = format!("{}{}", settings.set_of_marks(), body(self, &held));
        self.replace_guard(&table.replacement(&body))?;
        settings.apply()?;
        // After the table, whose marks let pass what the rules bar.
        let wanted = barrier::of_guard(self, &held);
        barrier::remove(barrier::Holder::Guard, &wanted)?;
        wanted.iter().try_for_each(PolicyRule::add)
    }

    /// Puts both tables of the guard in force at once, or the table of IP (`replacement`) alone where the kernel has none for bridges.
    fn replace_guard(&self, replacement: &str) -> io::Result<()> {
        let ports = Table::of_bridges(GUARD_TABLE).replacement(&ports(self));
        let Err(error) = nft::apply(&format!("{replacement}{ports}")) else {
            return Ok(());
        };
        nft::apply(replacement)?;
        if !self.interfaces.is_empty() {
            warn!(
                %error,
                "the guard has no table for bridges: where one of `interfaces` becomes a port of a bridge that is made later, what \
                 comes in by it leaves in clear; name the bridge in `interfaces`, or install the kernel's nftables for bridges \
                 (OpenWrt: kmod-nft-bridge)"
            );
        }
        Ok(())
    }
}

/// True if the guard is on, also if another program has removed its table.
///
/// # Errors
/// The kernel does not list its routing rules.
pub(crate) fn is_on() -> io::Result<bool> {
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
    let restored = Settings::left_behind(&table)?.restore(needed);
    let ports = Table::of_bridges(GUARD_TABLE);
    // A kernel without such tables says so in words of its own; a missing privilege shows at the other table.
    if ports.exists().unwrap_or(false) {
        ports.remove()?;
    }
    table.remove()?;
    restored
}

/// The guard's rules as `nft` lists them; `None` if it is off.
///
/// # Errors
/// `nft` or the privilege is missing.
pub fn guard_listing() -> io::Result<Option<String>> {
    let (table, ports) = (Table::new(GUARD_TABLE), Table::of_bridges(GUARD_TABLE));
    match table.exists()? {
        // Absent where the kernel has no such tables.
        true => Ok(Some(table.list()? + &ports.list().unwrap_or_default())),
        false if barrier::present(barrier::Holder::Guard)?.is_empty() => Ok(None),
        false => Ok(Some(format!(
            "the table inet {GUARD_TABLE} was removed by another program; routing rules still keep in what is forwarded: \
             `bentpipe guard on` puts it back"
        ))),
    }
}

/// Chains of the guard's table for bridges: what comes in by an intercepted port shows as come in by the bridge later, so it bears a
/// mark; and what the bridge hands on to another port, an uplink it may be, never comes to IP.
pub(super) fn ports(it: &Interception) -> String {
    if it.interfaces.is_empty() {
        return String::new();
    }
    let (lan, mark) = (names(it), it.routing.of_port());
    // Before `br_netfilter`, which shows the frames to the tables of IP at priority 0.
    let arriving = Chain::at("arriving", "filter", "prerouting priority filter")
        .rule(format_args!("iifname {{ {lan} }} {}", mark.set()));
    // Between intercepted ports all passes, and there the tables of IP see no mark.
    let handed_on = Chain::at("handed_on", "filter", "forward priority filter")
        .rule(format_args!(
            "iifname {{ {lan} }} oifname != {{ {lan} }} ether type != arp counter drop"
        ))
        .rule(format_args!("iifname {{ {lan} }} {}", mark.unset()));
    ruleset::printed([arriving, handed_on])
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
fn passing(it: &Interception, held: &[String]) -> [Chain; 4] {
    let pass = it.routing.direct().set() + " accept";
    let lan = it.interfaces.iter();
    let of_port = it.routing.of_port();
    let place = "prerouting priority mangle + 10";
    let unmarked = Chain::at("unmarked", "filter", place)
        .rules(hooks::arriving_elsewhere(it, held))
        // Of a bridge that is named itself, whose ports may be named as well.
        .rule(format_args!(
            "iifname {{ {} }} {} {}",
            names(it),
            of_port.borne(),
            of_port.unset()
        ))
        .rule(format_args!(
            "{} fib daddr type unicast goto held",
            of_port.borne()
        ))
        .rule(format_args!("iifname != {{ {} }} return", names(it)))
        .rule(format_args!("{} return", it.routing.direct().any_borne()))
        .rules(lan.map(|name| format!("fib daddr oifname \"{name}\" goto pass")))
        .rule("ip daddr @exempt4 goto pass")
        .rule("ip6 daddr @exempt6 goto pass")
        .rule("jump passing")
        .rule(NEVER)
        .rule("goto held");
    // Counter of what the routing rules bar next, which no later hook sees.
    let held = Chain::new("held").rule("counter comment \"held back\"");
    [
        held,
        Chain::new("pass").rule(pass),
        policy::passing(&it.rules, it.other),
        unmarked,
    ]
}

fn forward(it: &Interception, held: &[String]) -> Chain {
    let (lan, tunnel) = (names(it), it.routing.tunnel().borne());
    let chain = Chain::at("forward", "filter", "forward priority filter - 10")
        .rules(hooks::holding(held))
        .rule(format_args!(
            "{} counter drop",
            it.routing.of_port().borne()
        ))
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
    let marks = [
        [routing.own()].as_slice(),
        &routing.of_listeners(),
        &routing.of_tunnel(),
    ]
    .concat();
    let chain = Chain::at("output", "filter", "output priority filter - 10")
        .rule("oifname \"lo\" return")
        .rules(lan)
        .rules(marks.iter().map(|mark| mark.borne() + " return"))
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
