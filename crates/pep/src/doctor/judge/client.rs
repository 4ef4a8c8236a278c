//! What a client needs: a way to its servers, an answer, and the interfaces that it takes in.

use bentpipe_sys::link::Port;

use super::far::{self, FarWords};
use super::network::list;
use super::{fail, ok, warn};
use crate::authority::ValidityPhase;
use crate::client::intercept::name_the_stray;
use crate::doctor::Finding;
use crate::doctor::facts::{AuthorityFacts, ClientFacts, Facts, GuardFacts};

pub(super) fn judge(facts: &Facts, client: &ClientFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let words = FarWords::server(client.public_key.as_deref(), client.enrols);
    for server in &client.servers {
        findings.extend(far::judge(facts, &words, server));
    }
    findings.extend(asked_beside(facts, client));
    let limited = client.packets_limited.iter();
    findings.extend(limited.map(|line| warn("packets", line.clone(), None)));
    if !client.missing.is_empty() {
        findings.push(fail(
            "interfaces",
            format!(
                "not there: {}; what their hosts send goes nowhere, and the others are taken in",
                list(&client.missing)
            ),
            Some("bring them up, or name in `[intercept] interfaces` what `ip link` shows".into()),
        ));
    }
    let ports = client.ports.iter();
    findings.extend(ports.map(|Port { name, master, .. }| {
        let why = "what its hosts send comes in by that one, and no rule takes it in";
        let text = format!("{name} is a port of {master}: {why}");
        let mend = format!("name {master} in `interfaces` of `[intercept]`");
        fail("interfaces", text, Some(mend))
    }));
    findings.extend(shared_with_uplinks(facts, client));
    findings.extend(client.strays.iter().map(|stray| {
        let [why, mend] = name_the_stray(stray);
        fail(
            "routes",
            format!("the LAN's {}: {why}", stray.to),
            Some(mend),
        )
    }));
    let ahead = client.rules_ahead.iter().cloned();
    findings.extend(ahead.map(|[why, mend]| fail("routes", why, Some(mend))));
    findings.extend(settings(facts, client));
    findings.extend(client.intercepts.and_then(guard));
    findings.extend(client.authority.as_ref().map(authority));
    findings
}

/// Finding on interfaces that are taken in and have the uplink as well, as a bridge has that has both among its ports.
fn shared_with_uplinks(facts: &Facts, client: &ClientFacts) -> Option<Finding> {
    let mut shared = client.interfaces.clone();
    shared.retain(|name| facts.network.uplinks.contains(name));
    let text = format!(
        "default routes leave by {} as well: what hosts there send past the router no rule takes in",
        list(&shared)
    );
    let mend = "give the uplink a network of its own, which is no port of the LAN's bridge";
    (!shared.is_empty()).then(|| warn("interfaces", text, Some(mend.into())))
}

/// Finding on the guard, of which systemd knows only what its own unit has done.
fn guard(state: GuardFacts) -> Option<Finding> {
    Some(match state {
        GuardFacts::Unknown => return None,
        GuardFacts::On => ok("guard", "on: nothing leaves in clear while no client runs"),
        GuardFacts::Off => warn(
            "guard",
            "off: before the client has started, and after an orderly stop, this machine forwards in clear what it takes in",
            Some(
                "run `systemctl enable bentpipe-guard` and `systemctl restart bentpipe-guard` (without systemd: `bentpipe guard on`)"
                    .into(),
            ),
        ),
    })
}

/// Finding on the local CA: without one the listed hosts load as all others do.
fn authority(authority: &AuthorityFacts) -> Finding {
    const ANEW: &str = "run `bentpipe ca remove`, then `bentpipe ca init`";
    match authority {
        AuthorityFacts::Absent(directory) => warn(
            "ca",
            format!("{} has none for `names` of `[web]`", directory.display()),
            Some("run `bentpipe ca init`".into()),
        ),
        AuthorityFacts::Unfit(fault) => warn("ca", fault.clone(), None),
        AuthorityFacts::Present {
            subject,
            expires,
            phase: ValidityPhase::Over,
            ..
        } => {
            let text = format!("{subject} has expired on {expires}");
            warn("ca", text, Some(ANEW.into()))
        }
        AuthorityFacts::Present {
            subject,
            phase: ValidityPhase::NotYet,
            ..
        } => {
            let text = format!("the clock of this machine stands before {subject} was made");
            let mend = "set the clock: run `timedatectl set-ntp true`, or `date -s`";
            warn("ca", text, Some(mend.into()))
        }
        AuthorityFacts::Present {
            subject, lacking, ..
        } if !lacking.is_empty() => {
            let text = format!("{subject} is not for {}", list(lacking));
            warn("ca", text, Some(ANEW.into()))
        }
        AuthorityFacts::Present {
            subject, expires, ..
        } => ok(
            "ca",
            format!("{subject} answers for listed hosts until {expires}"),
        ),
    }
}

/// Warning of a name server of this machine that hosts of the LAN may ask, and that has no client to ask in its turn: its questions are this
/// machine's own traffic.
fn asked_beside(facts: &Facts, client: &ClientFacts) -> Option<Finding> {
    if !client.own_names_in_clear {
        return None;
    }
    let mut holders = facts.network.port_53.iter();
    let holder = holders.find(|holder| !holder.address.ip().is_loopback())?;
    Some(warn(
        "dns",
        format!("names that hosts ask of {holder} leave in clear where it asks others in its turn"),
        Some(
            "give it the client to ask: `listen = \"127.0.0.1:5300\"` in `[dns]` here, and `no-resolv` and `server=127.0.0.1#5300` in dnsmasq's \
             configuration; or set `[intercept] local = true`"
                .into(),
        ),
    ))
}

/// Settings of the kernel that matter where traffic is taken in.
fn settings(facts: &Facts, client: &ClientFacts) -> Vec<Finding> {
    let machine = &facts.machine;
    let mut findings = Vec::new();
    if let (Some(why), Some(0)) = (client.forwards, machine.setting("net.ipv4.ip_forward")) {
        findings.push(warn(
            "sysctl",
            format!("net.ipv4.ip_forward is 0: what goes past the tunnel ({why}) is not forwarded"),
            Some("put `net.ipv4.ip_forward = 1` into /etc/sysctl.d/60-bentpipe.conf, and run `sysctl --system`".into()),
        ));
    }
    if facts.network.uplinks.len() > 1 && machine.setting("net.ipv4.conf.all.rp_filter") == Some(1)
    {
        findings.push(warn(
            "sysctl",
            format!(
                "net.ipv4.conf.all.rp_filter is 1 with default routes by {}: answers that come in by another uplink are dropped",
                list(&facts.network.uplinks)
            ),
            Some("run `sysctl -w net.ipv4.conf.all.rp_filter=2`".into()),
        ));
    } else if let Some(value) = machine.setting("net.ipv4.conf.all.rp_filter") {
        findings.push(ok(
            "sysctl",
            format!("net.ipv4.conf.all.rp_filter is {value}"),
        ));
    }
    findings
}
