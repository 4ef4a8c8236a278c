//! Needs of an operator's PEP: its table, interfaces, forwarding between them, firewalls that let it pass, and the other PEP.

use super::far::{self, FarWords};
use super::network::list;
use super::server::listen;
use super::{fail, ok, tried, warn};
use crate::doctor::facts::{Facts, MeetingFacts, PepFacts};
use crate::doctor::{Finding, Level};

pub(super) fn judge(facts: &Facts, pep: &PepFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(tried(
        "nftables",
        &pep.table,
        "takes the PEP's table",
        Level::Fail,
        |_| Some("load nf_tables and nft_compat, or install the package `nftables`".into()),
    ));
    findings.push(match pep.missing.is_empty() {
        true => ok("interfaces", "those of `lan` and `wan` are there"),
        false => fail(
            "interfaces",
            format!("not there: {}", list(&pep.missing)),
            Some("name in `lan` and `wan` what `ip link` shows".into()),
        ),
    });
    findings.extend(forwarding(pep));
    findings.extend(firewalls(facts, pep));
    match &pep.meeting {
        MeetingFacts::Here(addresses) => findings.extend(addresses.iter().map(listen)),
        MeetingFacts::There(peer) => {
            let words = FarWords::pep(pep.public_key.as_deref());
            findings.extend(far::judge(facts, &words, peer));
        }
    }
    findings
}

fn forwarding(pep: &PepFacts) -> Vec<Finding> {
    if pep.forwarding.is_empty() {
        return vec![ok("sysctl", "the kernel forwards between `lan` and `wan`")];
    }
    let lines = pep.forwarding.iter();
    lines
        .map(|line| {
            let (text, mend) = line.split_once("; ").unwrap_or((line, ""));
            fail("sysctl", text, Some(mend.to_owned()))
        })
        .collect()
}

fn firewalls(facts: &Facts, pep: &PepFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &pep.closed_chains {
        None => {}
        Some(Err(error)) => findings.push(warn("firewall", error.clone(), None)),
        Some(Ok(chains)) => findings.extend(chains.iter().map(|(chain, mend)| {
            let name = format!("{} {} {}", chain.family, chain.table, chain.name);
            let text = format!(
                "chain `{name}` drops what is forwarded, and accepts nothing of the PEP's devices: TCP ends there"
            );
            fail("firewall", text, Some(mend.clone()))
        })),
    }
    if facts.network.legacy_tables {
        let text = "iptables-legacy has tables, which cannot be seen here";
        let mend = "if they drop what is forwarded: `iptables-legacy -I FORWARD -i bentpipe-+ -j ACCEPT`, and the same with `-o`";
        findings.push(warn("firewall", text, Some(mend.into())));
    }
    findings
}
