//! The state of a link at an instant, as probes and the live status show it.
//!
//! A line of a probes file is a flat JSON object with numbers, whose units are in the names: for `jq`, pandas and the
//! plot. Counters count from the start; rates are those of the period that ends with the snapshot. Between snapshots
//! stand events (changes of MODCOD, requests and grants), which have the key `event`; drops are only counted.

use std::fmt::Write as _;
use std::time::Duration;

use bentpipe_link::{ChannelProbe, Counters, Event, EventKind, Probe};
use serde_json::{Map, Value, json};

use super::lateness::Lateness;

/// A snapshot of a running link.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Since the start.
    pub at: Duration,
    /// The link's own account.
    pub probe: Probe,
    /// Delivered since the snapshot before, in bit/s of the IP layer: forward and return, per terminal.
    pub rates: Vec<[f64; 2]>,
    /// Of deliveries so far.
    pub lateness: Lateness,
}

impl Snapshot {
    pub(super) fn new(
        at: Duration,
        probe: Probe,
        lateness: Lateness,
        before: Option<&Self>,
    ) -> Self {
        let period = at.saturating_sub(before.map_or(Duration::ZERO, |before| before.at));
        let terminals = probe.terminals.iter().enumerate().map(|(index, terminal)| {
            let earlier = before.and_then(|before| before.probe.terminals.get(index));
            let rate = |now: &ChannelProbe, then: Option<&ChannelProbe>| {
                let then = then.map_or(0, |then| then.counters.delivered_bytes.as_u64());
                let bytes = now.counters.delivered_bytes.as_u64() - then;
                bytes as f64 * 8.0 / period.as_secs_f64().max(f64::MIN_POSITIVE)
            };
            [
                rate(
                    &terminal.forward_link,
                    earlier.map(|earlier| &earlier.forward_link),
                ),
                rate(
                    &terminal.return_link,
                    earlier.map(|earlier| &earlier.return_link),
                ),
            ]
        });
        Self {
            at,
            rates: terminals.collect(),
            lateness,
            probe,
        }
    }

    /// One line of JSON per terminal.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.probe
            .terminals
            .iter()
            .zip(&self.rates)
            .map(|(terminal, [forward, back])| {
                let line = json!({
                    "t_s": self.at.as_secs_f64(),
                    "terminal": terminal.name,
                    "forward": direction(&terminal.forward_link, Some(*forward)),
                    "return": direction(&terminal.return_link, Some(*back)),
                    "lateness_p99_us": micros(self.lateness.p99.get()),
                });
                line.to_string()
            })
    }

    /// One line for a human, of the first terminal and the sum of rates.
    #[must_use]
    pub fn line(&self) -> String {
        let mut text = format!("{:>6.0} s", self.at.as_secs_f64());
        let Some(first) = self.probe.terminals.first() else {
            return text;
        };
        for (index, (name, channel)) in [
            ("forward", &first.forward_link),
            ("return", &first.return_link),
        ]
        .into_iter()
        .enumerate()
        {
            let rate: f64 = self.rates.iter().map(|rates| rates[index]).sum();
            let waiting: u64 = channel
                .queues
                .iter()
                .map(|queue| queue.bytes.as_u64())
                .sum();
            // Writing into a String cannot fail.
            let _ = write!(
                text,
                " | {name} {:.2} Mbit/s, queue {} kB",
                rate / 1e6,
                waiting / 1000
            );
            if let (Some(cn), Some(modcod)) = (channel.cn, channel.modcod) {
                let _ = write!(text, ", C/N {:.1} dB, MODCOD {modcod}", cn.as_f64());
            }
            let dropped = dropped(channel);
            if dropped > 0 {
                let _ = write!(text, ", {dropped} dropped");
            }
        }
        let _ = write!(text, " | late p99 {} µs", micros(self.lateness.p99.get()));
        text
    }
}

/// Object that describes a direction of a terminal; `rate`, in bit/s, is that of the period before.
pub(super) fn direction(channel: &ChannelProbe, rate: Option<f64>) -> Value {
    let queues = channel.queues.iter().map(|queue| {
        json!({
            "name": queue.name,
            "bytes": queue.bytes.as_u64(),
            "packets": queue.packets,
            "sojourn_ms": millis(queue.sojourn.get()),
        })
    });
    let mut object = counts(&channel.counters);
    let figures = [
        ("cn_db", channel.cn.map(|cn| cn.as_f64().into())),
        ("modcod", channel.modcod.map(Value::from)),
        (
            "modcod_name",
            channel.modcod_name.as_deref().map(Value::from),
        ),
        ("capacity_bps", Some(channel.capacity.as_u64().into())),
        ("rate_bps", rate.map(|rate| rate.round().into())),
        (
            "one_way_delay_ms",
            Some(millis(channel.one_way_delay.get()).into()),
        ),
        (
            "queue_bytes",
            Some(
                channel
                    .queues
                    .iter()
                    .map(|queue| queue.bytes.as_u64())
                    .sum::<u64>()
                    .into(),
            ),
        ),
        ("queues", Some(queues.collect())),
    ];
    for (name, figure) in figures {
        object.extend(figure.map(|figure| (name.to_owned(), figure)));
    }
    Value::Object(object)
}

/// Object with the counts of packets, and of bytes where its name ends so.
pub(super) fn counts(counters: &Counters) -> Map<String, Value> {
    let figures = [
        ("offered", counters.offered.into()),
        ("offered_bytes", counters.offered_bytes.as_u64().into()),
        ("delivered", counters.delivered.into()),
        ("delivered_bytes", counters.delivered_bytes.as_u64().into()),
        ("dropped", dropped_by_cause(counters).into()),
    ];
    let figures = figures.into_iter();
    figures
        .map(|(name, figure)| (name.to_owned(), figure))
        .collect()
}

/// An event as a line of a probes file; none for a drop, of which there may be thousands in a second.
pub(super) fn event_line(at: Duration, event: &Event) -> Option<String> {
    if matches!(event.kind, EventKind::Dropped { .. }) {
        return None;
    }
    let Ok(Value::Object(mut line)) = serde_json::to_value(&event.kind) else {
        return None;
    };
    line.insert("t_s".into(), at.as_secs_f64().into());
    line.insert("terminal".into(), event.terminal.index().into());
    line.insert("direction".into(), event.way.name().into());
    Some(Value::Object(line).to_string())
}

/// The counters of drops, whose names begin so, by what follows: `queue`, `codel`, `channel`, …
fn dropped_by_cause(counters: &Counters) -> Map<String, Value> {
    let Ok(Value::Object(all)) = serde_json::to_value(counters) else {
        return Map::new();
    };
    let causes = all
        .into_iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("dropped_")?.to_owned(), count)));
    causes.collect()
}

fn dropped(channel: &ChannelProbe) -> u64 {
    dropped_by_cause(&channel.counters)
        .values()
        .filter_map(Value::as_u64)
        .sum()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
