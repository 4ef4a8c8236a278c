//! DVB-RCS2's access by request: how long it takes, how much it grants, in virtual time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_link::Way;

use super::bench::Bench;
use super::row::Row;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// All rows.
pub(super) fn rows() -> Result<Vec<Row>> {
    let mut rows = access()?;
    rows.push(ceiling()?);
    Ok(rows)
}

/// The paper's return link with these contracts.
pub(super) fn paper_return(contracts: &str, timing: &str) -> String {
    format!(
        "[scenario]\nname = \"self-test\"\nseed = 5\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [forward]\nstandard = \"cbr\"\nbit_rate = \"100 Mbit/s\"\n\
         [return]\nstandard = \"dvb-rcs2\"\nsymbol_rate = \"7.4 Mbaud\"\nwaveforms = \"3-12\"\nmsl = 23\n\
         l2_header = \"14 B\"\n{contracts}\n{timing}\n\
         [link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"20 dB\"\n"
    )
}

/// Round trips of single packets after idleness, in seconds, sorted.
pub(super) fn first_packets(text: &str, count: u32) -> Result<Vec<f64>> {
    let mut link = Bench::new(text)?;
    let mut times = Vec::new();
    for number in 1..=count {
        // Anywhere within the period of requests.
        let at = SECOND * 5 * number + MILLISECOND * (number * 397 % 1007);
        times.push(round_trip(&mut link, at)?.as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The time until the answer to a packet of a terminal is there; the gateway answers at once.
pub(super) fn round_trip(link: &mut Bench, at: Duration) -> Result<Duration> {
    link.send(at, Way::Return, 98);
    let there = link.next(at + SECOND * 5).context("the packet was lost")?;
    link.send(there.at, Way::Forward, 98);
    let back = link
        .next(there.at + SECOND * 5)
        .context("the answer was lost")?;
    Ok(back.at - at)
}

/// With capacity by request only: the wait for the request is uniform over its period, the rest is constant.
fn access() -> Result<Vec<Row>> {
    let times = first_packets(&paper_return("rbdc_max = \"5120 kbit/s\"", ""), 200)?;
    let least = times[0];
    // Kolmogorov-Smirnov against the uniform distribution over a second from the least.
    let count = times.len() as f64;
    let distance = times.iter().enumerate().map(|(index, time)| {
        let model = (time - least).clamp(0.0, 1.0);
        (model - index as f64 / count)
            .abs()
            .max((model - (index + 1) as f64 / count).abs())
    });
    let distance = distance.fold(0.0, f64::max);
    // At a level of 0.01.
    let limit = 1.628 / count.sqrt();
    // Two delays and 23 superframes, up to two superframes of alignment.
    let floor = 0.5 + 23.0 * 0.0265;
    Ok(vec![
        Row::within(
            "DAMA",
            "first packet after idle, RBDC only: least",
            least,
            floor..=floor + 0.053,
            "s",
            3,
        ),
        Row::within(
            "DAMA",
            "the same: distance from a uniform wait (KS)",
            distance,
            0.0..=limit,
            "",
            3,
        ),
    ])
}

/// More than is granted: what arrives is the contract's.
fn ceiling() -> Result<Row> {
    let mut link = Bench::new(&paper_return(
        "cra = \"100 kbit/s\"\nrbdc_max = \"5120 kbit/s\"",
        "",
    ))?;
    let goodput = super::opensand::saturate(&mut link, Way::Return, 1428, 8e6, 40)?;
    // Burst payload in whole slots, less labels and fragments, for IP packets behind an Ethernet header.
    let slots = (5.22e6_f64 * 0.0265 / 8.0 / 194.0).ceil();
    let expected = slots * 194.0 * 8.0 / 0.0265 * 189.0 / 194.0 * 1428.0 / 1452.0 / 1e6;
    Ok(Row::within(
        "DAMA",
        "grant ceiling, CRA 100 + RBDC 5120 kbit/s",
        goodput,
        expected * 0.99..=expected * 1.01,
        "Mbit/s",
        3,
    ))
}
