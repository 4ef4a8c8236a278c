//! OpenSAND's own figures, as measured with version 8.2.0 on the link of the QPEP papers: with its ticks, and beside
//! them what physics gives without.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_link::Way;

use super::bench::Bench;
use super::dama::{first_packets, paper_return, round_trip};
use super::dvb::losses;
use super::row::{Row, quantile};

const SECOND: Duration = Duration::from_secs(1);
const DELAY: Duration = Duration::from_millis(250);
const TICKS: &str = "timing = \"opensand_ticks\"";

/// All rows, in pairs: with the ticks, against what was measured; without, for information.
pub(super) fn rows() -> Result<Vec<Row>> {
    let pairs = [round_trips()?, forward()?, back()?, first_packet()?];
    let mut rows: Vec<_> = pairs.into_iter().flatten().collect();
    rows.extend(edges()?);
    Ok(rows)
}

/// Figures of `measure` with ticks, which are to hold, and beside them those without.
fn pair<T>(
    case: &str,
    expected: &str,
    measure: impl Fn(&str) -> Result<T>,
    shown: impl Fn(&T) -> String,
    holds: impl Fn(&T) -> bool,
) -> Result<[Row; 2]> {
    let (ticks, physics) = (measure(TICKS)?, measure("")?);
    Ok([
        Row::new("OpenSAND", case, shown(&ticks), expected, holds(&ticks)),
        Row::new("physics", case, shown(&physics), "for comparison", true),
    ])
}

fn round_trips() -> Result<[Row; 2]> {
    let measure = |timing: &str| -> Result<[f64; 3]> {
        let mut link = Bench::new(&format!(
            "[scenario]\nname = \"self-test\"\nseed = 5\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
             [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\n{timing}\n\
             [return]\nstandard = \"dvb-rcs2\"\nsymbol_rate = \"40 Mbaud\"\nwaveforms = \"3-12\"\ncra = \"3 Mbit/s\"\n{timing}\n\
             [link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"20 dB\"\n"
        ))?;
        let mut times = Vec::new();
        for number in 1..=200u32 {
            // Anywhere within the frames of both directions.
            let at = Duration::from_micros(1_007_713) * number;
            times.push(round_trip(&mut link, at)?.as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Ok([times[0], mean, quantile(&times, 1.0)])
    };
    // Their extremes hold the host's own lateness too.
    let near = |figure: f64, measured: f64| (figure - measured).abs() <= 10.0;
    pair(
        "RTT least/mean/most, 250 ms one way",
        "505/521/538 ms, mean to 3 ms",
        measure,
        |[least, mean, most]| format!("{least:.0}/{mean:.0}/{most:.0} ms"),
        |[least, mean, most]| {
            near(*least, 505.0) && (mean - 521.4).abs() <= 3.0 && near(*most, 538.6)
        },
    )
}

/// IP goodput in Mbit/s of packets of `bytes` at `offered` bit/s, in the last three quarters of `seconds`.
pub(super) fn saturate(
    link: &mut Bench,
    way: Way,
    bytes: u64,
    offered: f64,
    seconds: u32,
) -> Result<f64> {
    let gap = Duration::from_secs_f64(bytes as f64 * 8.0 / offered);
    let (settled, end) = (SECOND * (seconds / 4), SECOND * seconds);
    let mut at = Duration::ZERO;
    let mut carried = 0u64;
    while at < end {
        at += gap;
        link.send(at, way, bytes);
        while let Some(arrival) = link.arrival(at) {
            carried += if arrival.at > settled {
                arrival.bytes
            } else {
                0
            };
        }
        // Drops are what overload is about; they are not kept.
        while link.event().is_some() {}
    }
    Ok(carried as f64 * 8.0 / (end - settled).as_secs_f64() / 1e6)
}

/// UDP goodput: of 1428 bytes, 1400 are the user's.
const USERS_PART: f64 = 1400.0 / 1428.0;

fn goodput(case: &str, theirs: f64, measure: impl Fn(&str) -> Result<f64>) -> Result<[Row; 2]> {
    pair(
        case,
        &format!("{theirs:.2} Mbit/s, to 5 %"),
        measure,
        |rate| format!("{rate:.2} Mbit/s"),
        |rate| (rate / theirs - 1.0).abs() <= 0.05,
    )
}

fn forward() -> Result<[Row; 2]> {
    let measure = |timing: &str| -> Result<f64> {
        let mut link = Bench::new(&format!(
            "[scenario]\nname = \"self-test\"\nseed = 5\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
             [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\nl2_header = \"14 B\"\n{timing}\n\
             [return]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n[acm]\nmargin = \"0 dB\"\n\
             [link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"20 dB\"\n"
        ))?;
        Ok(saturate(&mut link, Way::Forward, 1428, 200e6, 8)? * USERS_PART)
    };
    // What their frames can carry, and what they carried less losses.
    goodput("forward UDP goodput, MODCOD 28", 171.0, measure)
}

fn back() -> Result<[Row; 2]> {
    let measure = |timing: &str| -> Result<f64> {
        let contracts = "cra = \"100 kbit/s\"\nrbdc_max = \"5120 kbit/s\"";
        let mut link = Bench::new(&paper_return(contracts, timing))?;
        Ok(saturate(&mut link, Way::Return, 1428, 8e6, 40)? * USERS_PART)
    };
    goodput("return UDP goodput, 100 + 5120 kbit/s", 4.74, measure)
}

fn first_packet() -> Result<[Row; 2]> {
    let measure = |timing: &str| -> Result<(f64, f64)> {
        let times = first_packets(&paper_return("rbdc_max = \"5120 kbit/s\"", timing), 200)?;
        // Eight pings were measured: their extremes are expected at the first and last ninth.
        Ok((quantile(&times, 1.0 / 9.0), quantile(&times, 8.0 / 9.0)))
    };
    pair(
        "first RTT after idle, RBDC only, 8 of 9",
        "1.13 to 1.92 s, to 0.1 s",
        measure,
        seconds,
        |(low, high)| (low - 1.13).abs() <= 0.1 && (high - 1.92).abs() <= 0.1,
    )
}

fn seconds((least, most): &(f64, f64)) -> String {
    format!("{least:.2} to {most:.2} s")
}

/// The paper's forward link, with a fade of 6 dB from 10 s on.
fn fading(seed: u32, timing: &str) -> String {
    format!(
        "[scenario]\nname = \"self-test\"\nseed = {seed}\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [return]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n\
         [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\n{timing}\n\
         [errors]\nmodel = \"gate\"\n[acm]\nmargin = \"1 dB\"\nhysteresis = \"0 dB\"\nreport = \"required_esn0\"\n\
         select = \"threshold\"\n[link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"20 dB\"\n\
         [attenuation.forward_downlink]\nmodel = \"on_off\"\npeak = \"6 dB\"\nstart = \"10 s\"\non = \"10 s\"\noff = \"10 s\"\n"
    )
}

/// Cost of a fade.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    /// From the fade to the terminal's next report, in seconds.
    wait: f64,
    /// From the first loss to the last.
    length: f64,
}

impl Outage {
    /// Distance of the outage from the wait for the report and two delays.
    pub(super) fn error(self) -> f64 {
        self.length - (self.wait + 2.0 * DELAY.as_secs_f64())
    }
}

/// The seed decides when the terminal's reports leave.
fn outage(seed: u32, timing: &str) -> Result<Outage> {
    let mut link = Bench::new(&fading(seed, timing))?;
    let (learned, span) = losses(&mut link, SECOND * 13);
    let learned = learned.context("the gateway never learned of the fade")?;
    let (first, last) = span.context("nothing was lost")?;
    Ok(Outage {
        // It left the terminal a delay before the gateway learned of it.
        wait: learned.saturating_sub(DELAY + SECOND * 10).as_secs_f64(),
        length: (last - first).as_secs_f64(),
    })
}

/// The least and the most.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

/// The outages of so many reports' instants.
pub(super) fn outages(timing: &str) -> Result<Vec<Outage>> {
    (1..=40).map(|seed| outage(seed, timing)).collect()
}

/// Anything from two delays to two delays and a second: it depends on when the report leaves. Theirs were edges of one
/// run, in which fades and reports both came once a second, so that each edge waited about as long as the others.
fn edges() -> Result<Vec<Row>> {
    const THEIRS: (f64, f64) = (0.64, 0.77);
    let delays = 2.0 * DELAY.as_secs_f64();
    let all = |timing: &str| -> Result<(f64, f64)> {
        Ok(range(outages(timing)?.iter().map(|outage| outage.length)))
    };
    let theirs = |timing: &str| -> Result<(f64, f64)> {
        let waits = THEIRS.0 - delays..=THEIRS.1 - delays;
        let outages = outages(timing)?;
        let such = outages.iter().filter(|outage| waits.contains(&outage.wait));
        Ok(range(such.map(|outage| outage.length)))
    };
    let mut rows = Vec::from(pair(
        "ACM outage after 6 dB, report at any time",
        "0.5 to 1.5 s, and their 0.64 to 0.77",
        all,
        seconds,
        |(least, most)| *least >= 0.49 && *least <= THEIRS.0 && *most >= THEIRS.1 && *most <= 1.53,
    )?);
    rows.extend(pair(
        "the same, report 0.14 to 0.27 s after the fade",
        "0.64 to 0.77 s, to 0.03 s",
        theirs,
        seconds,
        |(least, most)| *least >= THEIRS.0 - 0.03 && *most <= THEIRS.1 + 0.03,
    )?);
    Ok(rows)
}
