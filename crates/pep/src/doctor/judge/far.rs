//! The far end of a tunnel, as whoever connects to it sees it: a name, a way, and an answer.

use bentpipe_tunnel::engine::{self, TrialOutcome, headers};

use super::network::list;
use super::{fail, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{Facts, FarFacts, HandshakeResult, WayThere};

/// Packet that the tunnel grows to, bytes.
const FULL_MTU: u32 = 1500;

/// Words for the far end, and for what this end has to do with it.
#[derive(Clone, Copy)]
pub(super) struct FarWords<'a> {
    /// Area of the findings.
    area: &'static str,
    /// The far end, as in a sentence.
    who: &'static str,
    /// Table of the configuration that names it.
    table: &'static str,
    /// Key of the configuration that has its address.
    address: &'static str,
    /// Name of this end.
    own: &'static str,
    /// Public key of this end, where it can be read.
    public_key: Option<&'a str>,
    /// The far end takes a code that this end has.
    enrols: bool,
}

impl<'a> FarWords<'a> {
    /// Words for a server, to a client with this key, which `enrols` by a code.
    pub(super) const fn server(public_key: Option<&'a str>, enrols: bool) -> Self {
        Self {
            area: "server",
            who: "the server",
            table: "server",
            address: "`[server] address`",
            own: "client",
            public_key,
            enrols,
        }
    }

    /// Words for the other PEP, to a PEP with this key.
    pub(super) const fn pep(public_key: Option<&'a str>) -> Self {
        Self {
            area: "peer",
            who: "the other PEP",
            table: "peer",
            address: "`[peer] address`",
            own: "PEP",
            public_key,
            enrols: false,
        }
    }

    /// Mend of a far end that does not know this one's key.
    fn list_key(&self) -> String {
        let key = self.public_key.unwrap_or("KEY");
        match self.table {
            "server" => format!(
                "add a [[client]] with `public_key = \"{key}\"` to the server's file and reload it (`systemctl reload bentpipe-server`, or \
                 SIGHUP), or have the client join by a new code of `bentpipe server add`"
            ),
            _ => format!(
                "set `public_key = \"{key}\"` in `[peer]` of the other PEP's file, and restart it"
            ),
        }
    }
}

pub(super) fn judge(facts: &Facts, words: &FarWords<'_>, far: &FarFacts) -> Vec<Finding> {
    let name = &far.name;
    let addresses = match &far.addresses {
        Ok(addresses) => addresses,
        Err(error) => {
            let mend = format!(
                "mend /etc/resolv.conf, or put an address into {}",
                words.address
            );
            return vec![fail(
                "dns",
                format!("cannot resolve {name}: {error}"),
                Some(mend),
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
            words.area,
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
            "give {} a route past it: `ip route add {} via GATEWAY`",
            words.who,
            way.to.ip()
        );
        findings.push(warn(
            "vpn",
            format!("the way to {} leads into {device} ({kind})", way.to.ip()),
            Some(mend),
        ));
    }
    findings.push(reached(words, way));
    findings
}

fn mtu(way: &WayThere) -> Option<Finding> {
    let mtu = way.mtu?;
    let device = way.device.as_deref().unwrap_or("an interface");
    let text = format!("{mtu} bytes by {device} to {}", way.to.ip());
    let headers = headers(way.to.ip().to_canonical().is_ipv6());
    let least = u32::from(engine::LEAST_MTU) + headers as u32;
    Some(match mtu {
        _ if mtu < least => fail(
            "mtu",
            format!("{text}: QUIC needs {least}"),
            Some(format!(
                "run `ip link set {device} mtu {FULL_MTU}`, or what the link takes"
            )),
        ),
        ..FULL_MTU => ok(
            "mtu",
            format!("{text}: the tunnel's packets stay below that"),
        ),
        _ => ok("mtu", text),
    })
}

fn reached(words: &FarWords<'_>, way: &WayThere) -> Finding {
    let FarWords {
        area, who, address, ..
    } = *words;
    let to = way.to;
    let port = to.port();
    match &way.reached {
        HandshakeResult::TunnelUp(text) => ok(area, text.clone()),
        HandshakeResult::Connected(time) => ok(area, format!("{to} answers TCP after {} ms", time.as_millis())),
        HandshakeResult::Shaken(outcome) => shaken(words, way, outcome),
        HandshakeResult::Unreachable(said) => fail(
            area,
            format!("{to}: {said}"),
            Some(format!(
                "start {who}, open UDP port {port} in its firewall, or correct {address}"
            )),
        ),
        HandshakeResult::Unsent(fault) => fail(
            area,
            fault.clone(),
            Some(format!(
                "accept UDP to port {port} in the chain that drops it, and where that firewall keeps its rules"
            )),
        ),
        HandshakeResult::Silent(time) => fail(
            area,
            format!("nothing came back from {to} within {} s", time.as_secs()),
            Some(format!(
                "likely causes: UDP port {port} is blocked on the way or by {who}'s firewall, {who} does not run, \
                 or {address} is wrong"
            )),
        ),
        HandshakeResult::TlsAlone(tls) => warn(
            area,
            format!("nothing comes back from {to} by UDP; {tls} accepts TCP, so the tunnel goes over TLS"),
            Some(format!("let UDP port {port} pass, if the network is yours: over TLS each loss holds up all that follows")),
        ),
        HandshakeResult::Unfinished(time) => fail(
            area,
            format!("{to} answers, and its handshake does not end within {} s", time.as_secs()),
            Some("likely causes: large datagrams are lost on the way (MTU), or the link loses very much".into()),
        ),
        HandshakeResult::NotTried(error) => fail(area, format!("{to}: {error}"), None),
    }
}

fn shaken(words: &FarWords<'_>, way: &WayThere, outcome: &TrialOutcome) -> Finding {
    let FarWords { area, .. } = *words;
    let to = way.to;
    match outcome {
        TrialOutcome::Known { rtt } => ok(
            area,
            format!(
                "{to} answers and knows this {}'s key, RTT {} ms",
                words.own,
                rtt.as_millis()
            ),
        ),
        TrialOutcome::UnknownClient if words.enrols => ok(
            area,
            format!(
                "{to} answers, knows the code, and does not know this client's key yet: it is named with the code when the client starts, and only \
                 then the server says so if the code was used or has expired"
            ),
        ),
        TrialOutcome::UnknownClient => fail(
            area,
            format!("{to} answers, and does not know this {}'s key", words.own),
            Some(words.list_key()),
        ),
        TrialOutcome::WrongServer => fail(
            area,
            format!(
                "{to} shows another key than `public_key` in [{}]",
                words.table
            ),
            Some(format!(
                "set what `bentpipe pubkey` prints for the key file of {}, or find out who answers there",
                words.who
            )),
        ),
        TrialOutcome::Closed(reason) => fail(area, format!("{to} refuses: {reason}"), None),
        TrialOutcome::ClosedByStranger(reason) => fail(
            area,
            format!(
                "something at {to}, or on the way, closes connections without having shown the key of {}: {reason}",
                words.who
            ),
            Some("find out who answers there; a daemon of another version may".into()),
        ),
    }
}
