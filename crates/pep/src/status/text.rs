//! The report for people: labels left, facts right, never wider than 80 columns.

mod path;

use std::fmt::{self, Display, Formatter};

use crate::config::{Action, Transport};
use bentpipe_tunnel::engine::Account;
use ipnet::IpNet;

use super::format::{counted, line, quantity, size, span};
use super::{
    LesRefused, PacketKinds, Packets, PepSide, Refused, RuleStatus, Session, Side, StatusReport,
    Tunnel, TunnelState,
};
use path::write_path;

impl Display for StatusReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let up = span(self.uptime_s);
        writeln!(
            f,
            "bentpipe {} {}, pid {}, up {up}",
            self.role(),
            self.version,
            self.pid
        )?;
        line(f, "config", &self.config_file.display().to_string())?;
        if let Some(sandbox) = &self.sandbox {
            line(f, "sandbox", &sandbox.to_string())?;
        }
        if let Some(memory) = &self.all_tunnels_memory {
            let (used, ceiling) = (size(memory.used), size(memory.ceiling));
            line(f, "all tunnels", &format!("{used} of {ceiling} of memory"))?;
        }
        for rule in &self.rules {
            write_rule(f, rule)?;
        }
        for repair in &self.kernel {
            line(f, "kernel", &repair.to_string())?;
        }
        let session = |f: &mut Formatter<'_>, session, peer, epoch| match self.transport {
            Some(Transport::Plain) => write_plain(f, session, peer),
            Some(Transport::Quic) | None => write_session(f, session, peer, epoch),
        };
        match &self.side {
            Side::Client(client) => session(f, client, "server", self.uptime_s),
            Side::Pep(pep) => write_pep(f, pep),
            Side::Origin { listen, origin } => {
                line(f, "listen", &joined(listen))?;
                origin.write(f)
            }
            Side::Server { clients, .. } => {
                write_doors(f, &self.side)?;
                for client in clients {
                    writeln!(f)?;
                    line(f, "client", &client.name)?;
                    session(f, &client.session, "at", client.session.tunnel.since_s)?;
                }
                Ok(())
            }
        }
    }
}

/// Ways in of a server, and what was refused there.
fn write_doors(f: &mut Formatter<'_>, side: &Side) -> fmt::Result {
    let Side::Server {
        listen,
        listen_tls,
        listen_sle,
        listen_les,
        families,
        packets_limited,
        sle,
        les,
        tls,
        ..
    } = side
    else {
        return Ok(());
    };
    line(f, "listen", &joined(listen))?;
    let others = [
        ("listen, TLS", listen_tls),
        ("listen, SLE", listen_sle),
        ("listen, LES", listen_les),
    ];
    for (label, addresses) in others {
        if !addresses.is_empty() {
            line(f, label, &joined(addresses))?;
        }
    }
    if let Some(families) = families {
        line(f, "reaches", &families.to_string())?;
    }
    if let Some(limited) = packets_limited {
        line(f, "packets", limited)?;
    }
    if let Some(sle) = sle.as_ref().filter(|sle| !sle.is_idle()) {
        line(f, "sealed", &sle.to_string())?;
    }
    if let Some(les) = les.filter(|les| *les != LesRefused::default()) {
        line(f, "LES", &format!("refused {les}"))?;
    }
    if let Some(tls) = tls.as_ref().filter(|tls| !tls.is_idle()) {
        line(f, "by TLS", &tls.to_string())?;
    }
    Ok(())
}

fn joined<T: Display>(addresses: &[T]) -> String {
    let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    all.join(", ")
}

fn write_pep(f: &mut Formatter<'_>, pep: &PepSide) -> fmt::Result {
    if let Some(listen) = pep.listen {
        line(f, "listen", &listen.to_string())?;
    }
    for reason in &pep.reasons {
        line(f, "reason", reason)?;
    }
    line(f, "relays", &pep.segments.to_string())?;
    if let Some(keys) = &pep.keys {
        line(f, "LES keys", &keys.to_string())?;
    }
    for (label, causes) in pep.segments.causes() {
        if !causes.is_empty() {
            line(f, label, &causes)?;
        }
    }
    let session = &pep.session;
    write_session(f, session, "other PEP", session.tunnel.since_s)
}

fn write_rule(f: &mut Formatter<'_>, rule: &RuleStatus) -> fmt::Result {
    let action = match rule.action {
        Action::Tunnel => "through the tunnel",
        Action::Direct => "direct, in clear",
        Action::Block => "blocked",
    };
    let proxies = match rule.connections {
        0 => String::new(),
        number => format!("; {} of proxies", quantity(number, "connection")),
    };
    let (packets, bytes) = (quantity(rule.packets, "packet"), size(rule.bytes));
    let text = format!("{action}: {packets}, {bytes}{proxies}");
    line(f, &format!("rule {}", rule.rule), &text)
}

/// The other end's address, introduced by `peer`, where it is known.
fn address(tunnel: &Tunnel, peer: &str) -> String {
    let known = tunnel.peer.as_ref();
    known.map_or(String::new(), |address| format!(", {peer} {address}"))
}

/// Without a tunnel: what crosses is the kernel's TCP.
fn write_plain(f: &mut Formatter<'_>, session: &Session, peer: &str) -> fmt::Result {
    let tunnel = &session.tunnel;
    let address = address(tunnel, peer);
    line(
        f,
        "transport",
        &format!(
            "plain TCP: neither encrypted nor authenticated; {} for {}{address}",
            tunnel.state,
            span(tunnel.since_s)
        ),
    )?;
    if let Some(error) = &tunnel.last_error {
        line(f, "last error", error)?;
    }
    write_flows(f, session)
}

/// `peer` introduces the address of the other end; totals began `epoch` seconds ago.
fn write_session(f: &mut Formatter<'_>, session: &Session, peer: &str, epoch: u64) -> fmt::Result {
    let Session { tunnel, memory, .. } = session;
    write_tunnel(f, tunnel, peer)?;
    line(
        f,
        "memory",
        &format!("{} of {}", size(memory.used), size(memory.ceiling)),
    )?;
    let since = match peer {
        "server" => "the client started",
        _ => "this tunnel began",
    };
    line(f, "totals since", &format!("{since}, {} ago", span(epoch)))?;
    write_flows(f, session)?;
    write_beside(f, session, peer)?;
    for port in &session.publish {
        line(f, "published", &port.to_string())?;
    }
    let [received, sent] = session.crossed();
    let text = format!("{} received, {} sent", size(received), size(sent));
    line(f, "link", &text)?;
    if let Some(ledger) = &session.ledger_bytes {
        line(f, "sent for", &by_purpose(&ledger.sent))?;
        line(f, "received for", &by_purpose(&ledger.received))?;
    }
    if let Some(metering) = &session.metering {
        line(f, "metered", &metering.to_string())?;
    }
    if let Some(measured) = &session.measured {
        line(f, "measured", &measured.to_string())?;
    }
    match &session.dns {
        Some(dns) => line(f, "DNS", &dns.to_string()),
        None => Ok(()),
    }
}

/// State of a tunnel, and its path while it is in use; `peer` introduces the address of the other end.
fn write_tunnel(f: &mut Formatter<'_>, tunnel: &Tunnel, peer: &str) -> fmt::Result {
    let next = tunnel
        .next_attempt_s
        .filter(|_| tunnel.state != TunnelState::Silent)
        .map(|next| format!("; next attempt in {}", span(next)));
    let text = format!(
        "{} for {}{}{}",
        tunnel.state,
        span(tunnel.since_s),
        address(tunnel, peer),
        next.unwrap_or_default()
    );
    line(f, "tunnel", &text)?;
    if let Some(error) = &tunnel.last_error {
        line(f, "last error", error)?;
    }
    if let Some(link) = &tunnel.link {
        line(f, "link class", &link.to_string())?;
    }
    if let Some(families) = &tunnel.families {
        line(f, "reaches", &families.to_string())?;
    }
    if matches!(
        tunnel.state,
        TunnelState::Ready | TunnelState::Silent | TunnelState::Draining
    ) {
        write_path(f, tunnel)?;
    }
    Ok(())
}

/// Traffic beside TCP in the tunnel: packets, SOCKS5's datagrams, sealed flows, packets of LES, pages. The other end is the `peer`.
fn write_beside(f: &mut Formatter<'_>, session: &Session, peer: &str) -> fmt::Result {
    if let Some(packets) = &session.packets {
        write_packets(f, packets)?;
        if let Some(lack) = packets.carried.lack().filter(|_| peer == "server") {
            line(f, "not carried", lack)?;
        }
    }
    if let Some(associations) = &session.associations
        && associations.opened_total > 0
    {
        line(f, "SOCKS5 UDP", &associations.to_string())?;
    }
    if let Some(sle) = session.sle.as_ref().filter(|sle| !sle.is_idle()) {
        line(f, "sealed", &sle.to_string())?;
    }
    if let Some(les) = session.les.as_ref().filter(|les| !les.is_idle()) {
        line(f, "LES", &les.to_string())?;
        for pep in &les.peps {
            line(f, "  PEP", &pep.to_string())?;
        }
    }
    if let Some(web) = session.web.filter(|web| !web.is_idle()) {
        line(f, "pages", &web.to_string())?;
    }
    Ok(())
}

/// The bytes of `account` by what they were for.
fn by_purpose(account: &Account) -> String {
    let entries = [
        ("TCP", account.streams),
        ("DNS", account.dns),
        ("packets", account.packets),
        ("control", account.control),
        ("retransmissions", account.retransmissions),
        ("repair", account.repair),
        ("ACKs", account.acks),
        ("probes", account.probes),
        ("handshake", account.handshake),
        ("stateless", account.stateless),
        ("headers", account.headers + account.ip_headers),
    ];
    let named = entries.into_iter().filter(|(_, bytes)| *bytes > 0);
    let texts: Vec<_> = named
        .map(|(name, bytes)| format!("{name} {}", size(bytes)))
        .collect();
    texts.join(", ")
}

fn write_flows(f: &mut Formatter<'_>, session: &Session) -> fmt::Result {
    let Session { flows, bytes, .. } = session;
    let (active, waiting) = (flows.active, flows.waiting);
    let (opened, refused) = (flows.opened_total, flows.refused_total);
    line(
        f,
        "flows",
        &format!("{active} open, {waiting} waiting; {opened} opened, {refused} refused so far"),
    )?;
    if flows.refused != Refused::default() {
        line(f, "refused", &flows.refused.to_string())?;
    }
    if flows.shed_total > 0 {
        let text = format!(
            "{} that held most when memory was used up",
            flows.shed_total
        );
        line(f, "reset", &text)?;
    }
    line(
        f,
        "TCP",
        &format!(
            "{} read, {} written",
            size(bytes.lan_in),
            size(bytes.lan_out)
        ),
    )
}

/// Everything but TCP.
fn write_packets(f: &mut Formatter<'_>, packets: &Packets) -> fmt::Result {
    let (sent, received) = (size(packets.sent_bytes), size(packets.received_bytes));
    let assigned = match joined(&packets.assigned) {
        none if none.is_empty() => none,
        addresses => format!("; assigned {addresses}"),
    };
    let listed = |what: &str, prefixes: &[IpNet]| match joined(prefixes) {
        none if none.is_empty() => none,
        prefixes => format!(", {what} {prefixes}"),
    };
    let routed = listed("routed", &packets.routed) + &listed("not routed", &packets.unrouted);
    line(
        f,
        "packets",
        &format!(
            "{} sent ({sent}), {} received ({received}){assigned}{routed}{}",
            packets.sent,
            packets.received,
            kinds(packets)
        ),
    )?;
    let drops = packets.dropped;
    let causes = [
        (drops.age, "too old"),
        (drops.codel, "by CoDel"),
        (drops.overflow, "for want of room"),
        (drops.incomplete, "pieces without the rest"),
        (drops.no_tunnel, "without a tunnel"),
        (drops.malformed, "malformed"),
        (drops.spoofed, "from others' addresses"),
        (drops.policy, "to denied destinations"),
        (drops.limit, "beyond the limit of packets a second"),
        (drops.unsupported, "of kinds that the server does not carry"),
    ];
    let counted = counted(&causes);
    match counted.is_empty() {
        true => Ok(()),
        false => line(f, "dropped", &counted),
    }
}

/// Kinds of packets that are carried, if not all.
fn kinds(packets: &Packets) -> String {
    let kinds = match packets.carried {
        PacketKinds::All => return String::new(),
        PacketKinds::UdpAndEcho => "; UDP and ping only",
        PacketKinds::Udp => "; UDP only",
        PacketKinds::None => "; none carried",
    };
    match packets.mappings {
        Some(mappings) => format!("{kinds}, from {}", quantity(mappings, "socket")),
        None => kinds.to_owned(),
    }
}
