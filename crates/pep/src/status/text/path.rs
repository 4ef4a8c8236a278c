//! The path in the text of `status`: rates, round-trip times, losses and repairs.

use std::fmt::{self, Formatter};

use super::super::format::{line, quantity, rate, size};
use super::super::{Acks, Tunnel, WireKind};

/// Writes what a tunnel in use knows of its path.
pub(super) fn write_path(f: &mut Formatter<'_>, tunnel: &Tunnel) -> fmt::Result {
    if tunnel.wire == Some(WireKind::Tls) {
        let receiving = tunnel.receiving.as_ref();
        let blocked = receiving.and_then(|receiving| receiving.blocked_ratio);
        let blocked = blocked.map(|ratio| {
            let percent = ratio * 100.0;
            format!(": {percent:.1} % of what came had to wait for a lost packet")
        });
        let price = format!(
            "TLS over TCP; each loss holds up all that follows{}",
            blocked.unwrap_or_default()
        );
        line(f, "wire", &price)?;
    }
    if let Some(exchange) = &tunnel.key_exchange {
        let kind = if exchange.contains("MLKEM") {
            "post-quantum"
        } else {
            "classical: a recording may be read later"
        };
        line(f, "key exchange", &format!("{exchange} ({kind})"))?;
    }
    write_times_and_rates(f, tunnel)?;
    let mtu = tunnel
        .mtu
        .map(|mtu| format!("; datagrams up to {mtu} B"))
        .unwrap_or_default();
    line(f, "window", &format!("{}{mtu}", size(tunnel.window_bytes)))?;
    if let Some(fec) = &tunnel.fec {
        let overhead = fec.overhead_ratio * 100.0;
        let (sent, recovered) = (size(fec.sent_bytes), size(fec.recovered_bytes));
        let wasted = size(fec.wasted_bytes);
        let text = format!("{sent} sent ({overhead:.1} %); {recovered} recovered, {wasted} wasted");
        line(f, "repairs", &text)?;
    }
    write_directions(f, tunnel)
}

fn write_times_and_rates(f: &mut Formatter<'_>, tunnel: &Tunnel) -> fmt::Result {
    let ms =
        |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.1} ms"));
    let loss = tunnel.loss_ratio * 100.0;
    line(
        f,
        "RTT",
        &format!(
            "{} now, {} lowest; loss {loss:.2} %",
            ms(tunnel.rtt_ms),
            ms(tunnel.min_rtt_ms)
        ),
    )?;
    let pacing = tunnel
        .pacing_rate_bit_s
        .map(|pacing| format!("; paced at {}", rate(pacing)))
        .unwrap_or_default();
    let (received, sent) = (rate(tunnel.recv_rate_bit_s), rate(tunnel.send_rate_bit_s));
    line(
        f,
        "rate",
        &format!("{received} received, {sent} sent{pacing}"),
    )?;
    if let Some(known) = tunnel.resumed_rate_bit_s {
        line(f, "path", &format!("known, resumed at {}", rate(known)))?;
    }
    Ok(())
}

/// The two directions: who sends how.
fn write_directions(f: &mut Formatter<'_>, tunnel: &Tunnel) -> fmt::Result {
    let acks = |acks: Acks| {
        let packets = quantity(acks.packets, "packet");
        format!("ACK after {packets} or {:.0} ms", acks.delay_ms)
    };
    let limits = |max: Option<u64>, sold: Option<u64>| {
        let max = max.map(|max| format!(", at most {}", rate(max)));
        let sold = sold.map(|sold| format!(", sold {}", rate(sold)));
        max.unwrap_or_default() + &sold.unwrap_or_default()
    };
    if let Some(sending) = &tunnel.sending {
        let measured = sending
            .bottleneck_rate_bit_s
            .map(|measured| format!(", path measured {}", rate(measured)))
            .unwrap_or_default();
        let limits = limits(sending.max_rate_bit_s, sending.rate_bit_s);
        let (flight, asked) = (size(sending.in_flight_bytes), acks(sending.acks));
        line(
            f,
            "sending",
            &format!(
                "{}{limits}{measured}; {flight} in flight; {asked}",
                sending.controller
            ),
        )?;
    }
    if let Some(receiving) = &tunnel.receiving {
        let limits = limits(receiving.max_rate_bit_s, receiving.rate_bit_s);
        let controller = receiving.controller.as_ref();
        let controller = controller.map(|name| format!("{name}{limits}"));
        let asked = receiving.acks.map(acks);
        let parts: Vec<_> = [controller, asked].into_iter().flatten().collect();
        line(f, "receiving", &parts.join("; "))?;
    }
    Ok(())
}
