//! What a client needs: a way to its servers, an answer, and the interfaces that it takes in.

use bentpipe_tunnel::engine::TrialOutcome;

use super::network::list;
use super::{fail, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{
    AuthorityFacts, ClientFacts, Facts, FarFacts, HandshakeResult, WayThere,
};

/// Packet that QUIC needs, IPv6 headers included, bytes: 1200 of payload, 8 of UDP, 40 of IP.
const LEAST_MTU: u32 = 1248;

/// Packet that the tunnel grows to, bytes.
const FULL_MTU: u32 = 1500;

pub(super) fn judge(facts: &Facts, client: &ClientFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for far in &client.servers {
        findings.extend(judge_far(facts, client, far));
    }
    if !client.missing.is_empty() {
        findings.push(fail(
            "interfaces",
            format!("not there: {}", list(&client.missing)),
            Some("name in `[intercept] interfaces` what `ip link` shows".into()),
        ));
    }
    findings.extend(settings(facts, client));
    findings.extend(client.authority.as_ref().map(authority));
    findings
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
            expired: true,
            ..
        } => {
            let text = format!("{subject} has expired on {expires}");
            warn("ca", text, Some(ANEW.into()))
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

fn judge_far(facts: &Facts, client: &ClientFacts, far: &FarFacts) -> Vec<Finding> {
    let name = &far.name;
    let addresses = match &far.addresses {
        Ok(addresses) => addresses,
        Err(error) => {
            let mend = "mend /etc/resolv.conf, or put the server's address into `[server] address`";
            return vec![fail(
                "dns",
                format!("cannot resolve {name}: {error}"),
                Some(mend.into()),
            )];
        }
    };
    let ips: Vec<_> = addresses.iter().map(std::net::SocketAddr::ip).collect();
    let mut findings = Vec::new();
    if ips.iter().any(|ip| !name.contains(&ip.to_string())) {
        findings.push(ok("dns", format!("{name} is {}", list(&ips))));
    }
    let Some(way) = &far.way else {
        findings.push(fail(
            "server",
            format!("no route to {}", list(&ips)),
            Some("bring the uplink up, or `ip route add default via GATEWAY`".into()),
        ));
        return findings;
    };
    findings.extend(mtu(way));
    let tunnel = facts
        .network
        .tunnels
        .iter()
        .find(|(name, _)| Some(name) == way.device.as_ref());
    if let Some((device, kind)) = tunnel {
        let mend = format!(
            "give the server a route past it: `ip route add {} via GATEWAY`",
            way.to.ip()
        );
        findings.push(warn(
            "vpn",
            format!("the way to {} leads into {device} ({kind})", way.to.ip()),
            Some(mend),
        ));
    }
    findings.push(reached(client, way));
    findings
}

fn mtu(way: &WayThere) -> Option<Finding> {
    let mtu = way.mtu?;
    let device = way.device.as_deref().unwrap_or("an interface");
    let text = format!("{mtu} bytes by {device} to {}", way.to.ip());
    Some(match mtu {
        ..LEAST_MTU => fail(
            "mtu",
            format!("{text}: QUIC needs {LEAST_MTU}"),
            Some(format!(
                "run `ip link set {device} mtu {FULL_MTU}`, or what the link takes"
            )),
        ),
        LEAST_MTU..FULL_MTU => ok(
            "mtu",
            format!("{text}: the tunnel's packets stay below that"),
        ),
        _ => ok("mtu", text),
    })
}

fn reached(client: &ClientFacts, way: &WayThere) -> Finding {
    let to = way.to;
    let port = to.port();
    match &way.reached {
        HandshakeResult::TunnelUp(text) => ok("server", text.clone()),
        HandshakeResult::Connected(time) => ok("server", format!("{to} answers TCP after {} ms", time.as_millis())),
        HandshakeResult::Shaken(outcome) => shaken(client, way, outcome),
        HandshakeResult::Unreachable(said) => fail(
            "server",
            format!("{to}: {said}"),
            Some(format!(
                "start the server, open UDP port {port} in its firewall, or correct `[server] address`"
            )),
        ),
        HandshakeResult::Silent(time) => fail(
            "server",
            format!("nothing came back from {to} within {} s", time.as_secs()),
            Some(format!(
                "likely causes: UDP port {port} is blocked on the way or by the server's firewall, the server does not run, \
                 or `[server] address` is wrong"
            )),
        ),
        HandshakeResult::TlsAlone(tls) => warn(
            "server",
            format!("nothing comes back from {to} by UDP; {tls} accepts TCP, so the tunnel goes over TLS"),
            Some(format!("let UDP port {port} pass, if the network is yours: over TLS each loss holds up all that follows")),
        ),
        HandshakeResult::Unfinished(time) => fail(
            "server",
            format!("{to} answers, and its handshake does not end within {} s", time.as_secs()),
            Some("likely causes: large datagrams are lost on the way (MTU), or the link loses very much".into()),
        ),
        HandshakeResult::NotTried(error) => fail("server", format!("{to}: {error}"), None),
    }
}

fn shaken(client: &ClientFacts, way: &WayThere, outcome: &TrialOutcome) -> Finding {
    let to = way.to;
    let key = client.public_key.as_deref().unwrap_or("KEY");
    match outcome {
        TrialOutcome::Known { rtt } => ok(
            "server",
            format!("{to} answers and knows this client's key, RTT {} ms", rtt.as_millis()),
        ),
        TrialOutcome::UnknownClient if client.enrols => ok(
            "server",
            format!("{to} answers, and does not know this client's key yet: it is named with the code when the client starts"),
        ),
        TrialOutcome::UnknownClient => fail(
            "server",
            format!("{to} answers, and does not know this client's key"),
            Some(format!(
                "add a [[client]] with `public_key = \"{key}\"` to the server's file, then send it SIGHUP"
            )),
        ),
        TrialOutcome::WrongServer => fail(
            "server",
            format!("{to} shows another key than `public_key` in [server]"),
            Some("set what `bentpipe pubkey` prints for the server's key file, or find out who answers there".into()),
        ),
        TrialOutcome::Closed(reason) => fail("server", format!("{to} refuses: {reason}"), None),
        TrialOutcome::ClosedByStranger(reason) => fail(
            "server",
            format!("something at {to}, or on the way, closes connections without having shown the server's key: {reason}"),
            Some("find out who answers there; a server of another version may".into()),
        ),
    }
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
