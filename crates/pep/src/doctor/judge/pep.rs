//! Needs of an operator's PEP: its table, interfaces, forwarding between them, firewalls that let it pass, and the other PEP.

use super::far::{self, FarWords};
use super::network::list;
use super::server::listen;
use super::{fail, finding, ok, tried, warn};
use crate::doctor::facts::{Facts, MeetingFacts, PepFacts, SourceCheck};
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
    findings.extend(pep.source_checks.iter().map(sources));
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
        let mend = "if they drop what is forwarded: `iptables -I FORWARD -i bentpipe-+ -j ACCEPT`, and the same with `-o`";
        findings.push(warn("firewall", text, Some(mend.into())));
    }
    findings
}

/// Finding on the check of sources at an interface: one that heeds marks looks for the way back in the PEP's own table.
fn sources(check: &SourceCheck) -> Finding {
    let SourceCheck {
        interface,
        rp_filter,
        by_mark,
    } = check;
    let strict = *rp_filter == 1;
    let text = match by_mark {
        true => format!("rp_filter of {interface} is {rp_filter}, and heeds marks"),
        false => format!("rp_filter of {interface} is {rp_filter}"),
    };
    let mend = format!(
        "run `sysctl -w net.ipv4.conf.{interface}.rp_filter=2`: the PEP's mark leads into its device, so what comes in here would be dropped"
    );
    let level = if strict && *by_mark {
        Level::Fail
    } else {
        Level::Ok
    };
    finding(
        level,
        "sysctl",
        text,
        (level == Level::Fail).then_some(mend),
    )
}
