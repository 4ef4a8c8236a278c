//! Interception for programs that do not bring their own: TPROXY as their manuals have it, and counters of what came of it.
//!
//! ```text
//!  user ──► lan0 ─ TPROXY ──taken──► program ──► satellite
//!   ◄────── lan0 ◄───given── program
//!   ◄─────► lan0 ◄──────past──────► satellite       whatever nobody listens for: it is forwarded in clear
//! ```

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;
use serde::Deserialize;

use super::Carried;
use bentpipe_emulator::topology::Topology;

const TABLE: &str = "bentpipe_lab";
/// Networks of the servers.
const NETWORKS: [(&str, &str); 2] = [("ip", "10.30.0.0/24"), ("ip6", "fd00:30::/64")];

/// The terminal's rules, which end with its namespace.
#[derive(Debug)]
pub(super) struct Interception(());

impl Interception {
    /// Hands TCP of the LAN to this port, and with `http3` UDP of port 443 to that port. What nobody takes in there is forwarded.
    /// Rules of an earlier start, which outlive the program, are replaced.
    pub(super) fn start(terminal: &NetNs, port: u16, http3: bool) -> Result<Self> {
        let rules = rules(port, http3);
        run_with_input(terminal.command("nft").args(["-f", "-"]), &rules).context("nft")?;
        for family in ["-4", "-6"] {
            // `ip` cannot replace a rule.
            let rule = ["fwmark", "1", "lookup", "100"];
            let there = terminal.run("ip", &[&[family, "rule", "show"], &rule[..]].concat())?;
            if there.trim().is_empty() {
                terminal.run("ip", &[&[family, "rule", "add"], &rule[..]].concat())?;
            }
            let route = [
                "route", "replace", "local", "default", "dev", "lo", "table", "100",
            ];
            terminal.run("ip", &[&[family], &route[..]].concat())?;
        }
        Ok(Self(()))
    }

    /// Bytes that it has taken in and given out so far, and that went past it.
    pub(super) fn carried(&self, topology: &Topology) -> Result<Carried> {
        let arguments = ["-j", "list", "counters", "table", "inet", TABLE];
        let text = topology.terminal().run("nft", &arguments)?;
        let listing: Listing =
            serde_json::from_str(&text).context("nft's counters are not understood")?;
        let counter = |name: &str| {
            let mut all = listing
                .nftables
                .iter()
                .filter_map(|item| item.counter.as_ref());
            all.find(|counter| counter.name == name)
                .with_context(|| format!("nft has no counter `{name}`"))
        };
        Ok(Carried {
            by: "the program",
            bytes: counter("taken")?.bytes + counter("given")?.bytes,
            past: counter("past")?.packets,
            all: true,
        })
    }
}

/// Packets to servers, those that come back, and the port at which they are taken in.
type Kind = (&'static str, &'static str, u16);

/// HTTP/3, whose port is kept.
const HTTP3: Kind = ("udp dport 443", "udp sport 443", 443);

/// TPROXY ends a rule where nobody listens: what is counted behind it was taken.
fn rules(port: u16, http3: bool) -> String {
    let kinds: &[Kind] = &[("meta l4proto tcp", "meta l4proto tcp", port), HTTP3];
    let kinds = &kinds[..1 + usize::from(http3)];
    let each = |rule: &dyn Fn(&str, &str, Kind) -> String| -> String {
        let all = kinds
            .iter()
            .flat_map(|kind| NETWORKS.map(|(ip, net)| rule(ip, net, *kind)));
        all.collect()
    };
    let taken = each(&|ip, net, (there, _, port)| {
        format!(
            "iifname \"lan0\" {ip} daddr {net} {there} tproxy {ip} to :{port} counter name taken meta mark set 1 accept\n"
        )
    });
    let given = each(&|ip, net, (_, back, _)| {
        format!("oifname \"lan0\" {ip} saddr {net} {back} counter name given\n")
    });
    let past = each(&|ip, net, (there, back, _)| {
        format!(
            "iifname \"lan0\" {ip} daddr {net} {there} counter name past\n\
             oifname \"lan0\" {ip} saddr {net} {back} counter name past\n"
        )
    });
    let refused = if http3 { REFUSED } else { "" };
    format!(
        "table inet {TABLE} {{ }}\ndelete table inet {TABLE}\n\
         table inet {TABLE} {{\ncounter taken {{ }}\ncounter given {{ }}\ncounter past {{ }}\n\
         chain prerouting {{\ntype filter hook prerouting priority mangle; policy accept;\n{taken}}}\n\
         chain output {{\ntype filter hook output priority filter; policy accept;\n{given}}}\n\
         chain forward {{\ntype filter hook forward priority filter; policy accept;\n{past}{refused}}}\n}}\n"
    )
}

/// Rules for what hosts say of datagrams for which they have no socket any more: these are the terminal's own, and the word ends there.
const REFUSED: &str = "iifname \"lan0\" icmp type destination-unreachable drop\n\
                       iifname \"lan0\" icmpv6 type destination-unreachable drop\n";

/// List of `nft -j`, as far as it is asked for.
#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    counter: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    packets: u64,
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_started_again_finds_each_rule_once() -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return Ok(());
        }
        let terminal = NetNs::temporary(&format!("bp-{}-rules", std::process::id()))?;
        terminal.run("ip", &["link", "set", "lo", "up"])?;
        let seen = || {
            let commands: [(&str, &[&str]); 3] = [
                ("nft", &["list", "ruleset"]),
                ("ip", &["rule"]),
                ("ip", &["-6", "rule"]),
            ];
            let texts = commands.map(|(program, words)| terminal.run(program, words));
            texts.into_iter().collect::<Result<Vec<_>, _>>()
        };
        Interception::start(&terminal, 8080, false)?;
        let once = seen()?;
        Interception::start(&terminal, 8080, false)?;
        assert_eq!(seen()?, once);
        Ok(())
    }
}
