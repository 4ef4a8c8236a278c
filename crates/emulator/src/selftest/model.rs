//! The model against closed forms, in virtual time: exact, whatever else the machine does.

use std::time::Duration;

use anyhow::Result;
use bentpipe_link::{Files, Way};

use super::bench::Bench;
use super::row::{Row, binomial_interval, quantile};

/// A link with constant bit rates; `more` is appended.
pub(super) fn constant(bit_rate: &str, one_way_delay: &str, more: &str) -> String {
    format!(
        "[scenario]\nname = \"self-test\"\nseed = 1\n[orbit]\nmodel = \"constant\"\n\
         one_way_delay = \"{one_way_delay}\"\n[forward]\nstandard = \"cbr\"\nbit_rate = \"{bit_rate}\"\n\
         [return]\nstandard = \"cbr\"\nbit_rate = \"{bit_rate}\"\n{more}\n"
    )
}

/// All rows on queues, rates, losses and determinism.
pub(super) fn rows(quick: bool) -> Result<Vec<Row>> {
    let mut rows = vec![delay()?, queue()?, sojourn()?];
    for megabits in [1, 5, 10, 50, 178] {
        rows.push(rate(megabits)?);
    }
    let packets = if quick { 200_000 } else { 1_000_000 };
    rows.extend(independent(packets)?);
    for bytes in [76, 1500] {
        rows.push(bit_errors(bytes, packets)?);
    }
    rows.extend(bursts(packets)?);
    rows.push(determinism()?);
    rows.extend(trace()?);
    Ok(rows)
}

fn delay() -> Result<Row> {
    let mut link = Bench::new(&constant("10 Mbit/s", "250 ms", ""))?;
    link.send(Duration::ZERO, Way::Return, 1250);
    let arrivals = link.arrivals(Duration::from_secs(1));
    let at = arrivals
        .first()
        .map_or(f64::NAN, |arrival| arrival.at.as_secs_f64() * 1e3);
    Ok(Row::within(
        "propagation",
        "1250 B at 10 Mbit/s, 250 ms one way",
        at,
        251.0..=251.0,
        "ms",
        6,
    ))
}

fn queue() -> Result<Row> {
    let mut link = Bench::new(&constant("10 Mbit/s", "5 ms", "[queue]\npackets = 100\n"))?;
    // One is in service, the queue holds its limit, the rest is lost.
    for _ in 0..200 {
        link.send(Duration::ZERO, Way::Forward, 1250);
    }
    link.arrivals(Duration::from_secs(10));
    let counters = link.probe(Duration::from_secs(10)).terminals[0]
        .forward_link
        .counters;
    let dropped = counters.dropped_queue as f64;
    Ok(Row::within(
        "queue",
        "burst of 200 into a queue of 100 packets",
        dropped,
        99.0..=99.0,
        "dropped",
        0,
    ))
}

fn sojourn() -> Result<Row> {
    let mut link = Bench::new(&constant(
        "10 Mbit/s",
        "0 ms",
        "[queue]\nlimit = \"125 kB\"\n",
    ))?;
    let mut longest = Duration::ZERO;
    let mut sent = Vec::new();
    // 20 Mbit/s for a second.
    for number in 0..2000 {
        let at = Duration::from_micros(500 * number);
        sent.push(at);
        link.send(at, Way::Forward, 1250);
    }
    for arrival in link.arrivals(Duration::from_secs(10)) {
        longest = longest.max(arrival.at - sent[arrival.number as usize]);
    }
    // What waits, what is in service and the packet itself.
    let millis = longest.as_secs_f64() * 1e3;
    Ok(Row::within(
        "queue",
        "longest stay, 125 kB at 10 Mbit/s",
        millis,
        100.0..=102.0,
        "ms",
        2,
    ))
}

fn rate(megabits: u64) -> Result<Row> {
    let mut link = Bench::new(&constant(
        &format!("{megabits} Mbit/s"),
        "250 ms",
        "[queue]\npackets = 100000\n",
    ))?;
    let sizes = [100, 576, 1400];
    let count = 3000u64;
    for number in 0..count {
        link.send(Duration::ZERO, Way::Forward, sizes[number as usize % 3]);
    }
    let arrivals = link.arrivals(Duration::from_secs(3600));
    let (first, last) = (arrivals[0], arrivals[arrivals.len() - 1]);
    let bits: u64 = arrivals[1..].iter().map(|arrival| arrival.bytes * 8).sum();
    let rate = bits as f64 / (last.at - first.at).as_secs_f64() / 1e6;
    let nominal = megabits as f64;
    let range = nominal * 0.9995..=nominal * 1.0005;
    Ok(Row::within(
        "rate",
        "packets of 100, 576 and 1400 B in turn",
        rate,
        range,
        "Mbit/s",
        3,
    ))
}

/// Fates of `count` packets of `bytes`, true for lost, in the order of sending.
fn losses(more: &str, bytes: u64, count: u64) -> Result<Vec<bool>> {
    let mut link = Bench::new(&constant("1 Gbit/s", "1 ms", more))?;
    let mut lost = vec![true; count as usize];
    for number in 0..count {
        let at = PAUSE * number as u32;
        link.send(at, Way::Forward, bytes);
        while let Some(arrival) = link.arrival(at) {
            lost[arrival.number as usize] = false;
        }
    }
    for arrival in link.arrivals(PAUSE * count as u32 + Duration::from_secs(1)) {
        lost[arrival.number as usize] = false;
    }
    Ok(lost)
}

/// Between two packets: more than one of 1500 bytes takes at 1 Gbit/s, so that no queue loses any.
const PAUSE: Duration = Duration::from_micros(20);

fn share(events: usize, of: usize) -> f64 {
    events as f64 / of.max(1) as f64
}

fn independent(count: u64) -> Result<Vec<Row>> {
    let p = 0.01;
    let lost = losses("[errors]\nmodel = \"iid\"\nrate = \"1 %\"\n", 1000, count)?;
    let rate = share(lost.iter().filter(|lost| **lost).count(), lost.len());
    let again: Vec<_> = lost
        .windows(2)
        .filter(|pair| pair[0])
        .map(|pair| pair[1])
        .collect();
    // Runs: what follows a loss is lost as often as anything.
    let after = share(again.iter().filter(|lost| **lost).count(), again.len());
    let percent =
        |range: std::ops::RangeInclusive<f64>| range.start() * 100.0..=range.end() * 100.0;
    Ok(vec![
        Row::within(
            "loss",
            format!("independent, 1 %, {count} packets"),
            rate * 100.0,
            percent(binomial_interval(count, p)),
            "%",
            4,
        ),
        Row::within(
            "loss",
            "independent: how often a loss follows a loss",
            after * 100.0,
            percent(binomial_interval(again.len() as u64, p)),
            "%",
            3,
        ),
    ])
}

/// A packet is lost if one of its bits is wrong.
fn bit_errors(bytes: u64, count: u64) -> Result<Row> {
    const RATE: f64 = 1e-5;
    let lost = losses(
        "[errors]\nmodel = \"bits\"\nrate = \"1e-5\"\n",
        bytes,
        count,
    )?;
    let found = share(lost.iter().filter(|lost| **lost).count(), lost.len());
    let p = 1.0 - (1.0 - RATE).powi(8 * bytes as i32);
    let range = binomial_interval(count, p);
    Ok(Row::within(
        "loss",
        format!("bit errors, 1e-5, {count} packets of {bytes} B"),
        found * 100.0,
        range.start() * 100.0..=range.end() * 100.0,
        "%",
        4,
    ))
}

fn bursts(count: u64) -> Result<Vec<Row>> {
    const SHARE: f64 = 0.01;
    const MEAN: f64 = 5.0;
    let lost = losses(
        "[errors]\nmodel = \"gilbert_elliott\"\nrate = \"1 %\"\nmean_burst = 5\n",
        1000,
        count,
    )?;
    let total = lost.iter().filter(|lost| **lost).count();
    let starts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    let mean = share(total, starts);
    // A burst's length is geometric: variance m(m-1). The share of losses varies as the number of bursts does, and each
    // burst's length on top of it.
    let bursts = count as f64 * SHARE / MEAN;
    let half_mean = 2.5758 * (MEAN * (MEAN - 1.0) / bursts).sqrt();
    let half_share = SHARE * 2.5758 * ((1.0 + (MEAN - 1.0) / MEAN) / bursts).sqrt();
    let rate = share(total, lost.len()) * 100.0;
    let range = (SHARE - half_share) * 100.0..=(SHARE + half_share) * 100.0;
    Ok(vec![
        Row::within(
            "loss",
            format!("Gilbert-Elliott, 1 %, {count} packets"),
            rate,
            range,
            "%",
            4,
        ),
        Row::within(
            "loss",
            "Gilbert-Elliott: mean burst",
            mean,
            MEAN - half_mean..=MEAN + half_mean,
            "packets",
            3,
        ),
    ])
}

fn determinism() -> Result<Row> {
    let run = |seed: u32| -> Result<String> {
        let text = constant(
            "10 Mbit/s",
            "25 ms",
            "[errors]\nmodel = \"iid\"\nrate = \"5 %\"\n[queue]\npackets = 50\n",
        );
        let mut link = Bench::new(&text.replace("seed = 1", &format!("seed = {seed}")))?;
        let mut time = Duration::ZERO;
        for number in 0..20_000u64 {
            // Some arithmetic that is not a rhythm of the link.
            time += Duration::from_nanos(number * number * 7919 % 2_000_000);
            let way = if number % 3 == 0 {
                Way::Return
            } else {
                Way::Forward
            };
            link.send(time, way, 40 + number * 31 % 1460);
        }
        Ok(link.log(time + Duration::from_secs(10)))
    };
    let (first, second, other) = (run(1)?, run(1)?, run(2)?);
    let holds = first == second && first != other && !first.is_empty();
    let figure = format!("{} lines", first.lines().count());
    Ok(Row::new(
        "determinism",
        "same seed and arrivals, log of 20000 packets",
        figure,
        "the same bytes",
        holds,
    ))
}

/// Ten minutes of a delay that changes in steps, as a constellation's does.
fn trace() -> Result<Vec<Row>> {
    let delay = |second: u64| 26 + second / 30 * 37 % 117;
    let lines: Vec<_> = (0..=600)
        .step_by(30)
        .map(|second| format!("{second} {}", delay(second)))
        .collect();
    let files = Files::from([("trace".into(), lines.join("\n"))]);
    let orbit = "model = \"trace\"\nfile = \"trace\"\ninterpolation = \"step\"";
    let text = constant("10 Mbit/s", "ORBIT", "")
        .replace("model = \"constant\"\none_way_delay = \"ORBIT\"", orbit);
    let mut link = Bench::with_files(&text, &files)?;
    let sent = |number: u64| Duration::from_millis(number * 100 + 50);
    for number in 0..6000 {
        link.send(sent(number), Way::Forward, 1250);
    }
    let arrivals = link.arrivals(Duration::from_secs(700));
    let mut errors: Vec<_> = arrivals
        .iter()
        .map(|arrival| {
            let at = sent(arrival.number);
            // A packet takes 1 ms at 10 Mbit/s.
            let expected = (delay(at.as_secs()) + 1) as f64;
            ((arrival.at - at).as_secs_f64() * 1e3 - expected).abs()
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let ordered = arrivals
        .windows(2)
        .filter(|pair| pair[0].number < pair[1].number)
        .count()
        + 1;
    let (p99, ordered) = (quantile(&errors, 0.99), ordered as f64);
    Ok(vec![
        Row::within(
            "trace",
            "600 s of steps of 26 to 142 ms: p99 of errors",
            p99,
            0.0..=1.0,
            "ms",
            6,
        ),
        Row::within(
            "trace",
            "the same: packets in order",
            ordered,
            6000.0..=6000.0,
            "of 6000",
            0,
        ),
    ])
}
