//! From lines of probes to curves.
//!
//! Rates and drops are differences of counters, so that leaving out lines of a long run makes curves coarser, not wrong.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bentpipe_units::BitRate;
use serde::Serialize;
use serde_json::{Map, Value};

use super::panel::{DIRECTIONS, Line, Panel, capacity, drops, gauge, panel, rate};

/// Points of a curve: more than a screen has columns.
const MOST: usize = 20_000;
/// More than one beam serves at a time in any scenario; a page of so many is of use to nobody.
const MOST_TERMINALS: usize = 1000;

/// The lines of a file, by terminal.
#[derive(Debug, Default)]
pub(super) struct Columns {
    terminals: Vec<Terminal>,
    /// Values last requested and granted, by terminal and key: each holds until the next event.
    standing: BTreeMap<(u64, &'static str), f64>,
}

#[derive(Debug)]
struct Terminal {
    name: String,
    lines: Vec<Line>,
}

/// The curves of one terminal.
#[derive(Debug, Serialize)]
pub(super) struct Curves<'a> {
    name: &'a str,
    t: Vec<f64>,
    panels: Vec<Panel>,
}

/// Sums of one direction of a terminal, from the first line to the last.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Total<'a> {
    /// Name of the terminal.
    pub(super) terminal: &'a str,
    /// `forward` or `return`.
    pub(super) direction: &'static str,
    /// Bits per second of IP packets that were delivered, in the mean.
    pub(super) goodput: f64,
    /// Packets delivered.
    pub(super) delivered: u64,
    /// Packets dropped, for whatever reason.
    pub(super) dropped: u64,
}

impl Columns {
    /// Takes one line.
    pub(super) fn add(&mut self, line: &str) -> Result<()> {
        let mut line: Map<String, Value> = serde_json::from_str(line)?;
        let t = line
            .get("t_s")
            .and_then(Value::as_f64)
            .context("`t_s` is missing")?;
        if line.contains_key("event") {
            self.note(&line);
            return Ok(());
        }
        let name = line
            .get("terminal")
            .and_then(Value::as_str)
            .context("`terminal` is missing")?
            .to_owned();
        let mut way = |key: &str| match line.remove(key) {
            Some(Value::Object(way)) => Ok(way),
            _ => Err(anyhow::anyhow!("`{key}` is missing")),
        };
        let mut ways = [way("forward")?, way("return")?];
        let index = self.terminal(name)?;
        for ((terminal, key), value) in &self.standing {
            if *terminal == index as u64 {
                // Only return links ask.
                ways[1].insert((*key).to_owned(), (*value).into());
            }
        }
        let lines = &mut self.terminals[index].lines;
        ensure!(
            lines.last().is_none_or(|last| last.t <= t),
            "time goes backwards"
        );
        lines.push(Line { t, ways });
        Ok(())
    }

    /// Place of the terminal of that name; a new one comes last.
    fn terminal(&mut self, name: String) -> Result<usize> {
        let known = self
            .terminals
            .iter()
            .position(|terminal| terminal.name == name);
        if let Some(index) = known {
            return Ok(index);
        }
        ensure!(
            self.terminals.len() < MOST_TERMINALS,
            "`{name}` is one terminal too many; {MOST_TERMINALS} can be drawn"
        );
        self.terminals.push(Terminal {
            name,
            lines: Vec::new(),
        });
        Ok(self.terminals.len() - 1)
    }

    fn note(&mut self, event: &Map<String, Value>) {
        let terminal = event.get("terminal").and_then(Value::as_u64).unwrap_or(0);
        if terminal >= MOST_TERMINALS as u64 {
            return;
        }
        let rate = |key: &str| event.get(key)?.as_str()?.parse::<BitRate>().ok();
        let figures = [
            ("requested_bps", rate("rbdc")),
            ("granted_bps", rate("bit_rate")),
        ];
        for (key, rate) in figures {
            if let Some(rate) = rate {
                self.standing.insert((terminal, key), rate.as_u64() as f64);
            }
        }
    }

    /// True if no line was a snapshot.
    pub(super) fn is_empty(&self) -> bool {
        self.terminals.is_empty()
    }

    /// Both directions of each terminal.
    pub(super) fn totals(&self) -> impl Iterator<Item = Total<'_>> {
        self.terminals.iter().flat_map(Terminal::totals)
    }

    pub(super) fn curves(&self) -> Vec<Curves<'_>> {
        self.terminals.iter().map(Terminal::curves).collect()
    }
}

impl Terminal {
    fn totals(&self) -> impl Iterator<Item = Total<'_>> {
        let last = self.lines.last();
        let lines = last
            .into_iter()
            .flat_map(|line| line.ways.iter().map(|way| (line.t, way)));
        DIRECTIONS
            .into_iter()
            .zip(lines)
            .map(|(direction, (time, way))| {
                let count = |key: &str| way.get(key).and_then(Value::as_u64).unwrap_or_default();
                let causes = way.get("dropped").and_then(Value::as_object);
                let dropped = causes
                    .into_iter()
                    .flat_map(Map::values)
                    .filter_map(Value::as_u64);
                Total {
                    terminal: &self.name,
                    direction,
                    goodput: 8.0 * count("delivered_bytes") as f64 / time.max(f64::MIN_POSITIVE),
                    delivered: count("delivered"),
                    dropped: dropped.fold(0, u64::saturating_add),
                }
            })
    }

    /// Names of the MODCODs that were in use, by number; empty where lines have no names.
    fn modcod_names(&self, way: usize) -> BTreeMap<u64, String> {
        let named = self.lines.iter().filter_map(|line| {
            let way = &line.ways[way];
            let name = way.get("modcod_name")?.as_str()?;
            Some((way.get("modcod")?.as_u64()?, name.to_owned()))
        });
        named.take(MOST).collect()
    }

    /// The MODCODs that were in use, whose numbers have their names in curves and in words below.
    fn modcods(&self, lines: &[&Line]) -> Panel {
        let mut panel = panel(
            "MODCOD",
            "",
            lines,
            [("", |lines, way| gauge(lines, way, "modcod", 1.0))],
        );
        let mut parts = Vec::new();
        for (way, direction) in DIRECTIONS.into_iter().enumerate() {
            let names = self.modcod_names(way);
            let words: Vec<_> = names
                .iter()
                .map(|(id, name)| format!("{id} is {name}"))
                .collect();
            if !words.is_empty() {
                parts.push(format!("{direction}: {}", words.join("; ")));
            }
            let mut curves = panel.curves.iter_mut();
            if let Some(curve) = curves.find(|curve| curve.name == direction) {
                curve.names = names;
            }
        }
        panel.note = (!parts.is_empty()).then(|| parts.join(" · "));
        panel
    }

    fn curves(&self) -> Curves<'_> {
        let stride = self.lines.len().div_ceil(MOST).max(1);
        let lines: Vec<_> = self.lines.iter().step_by(stride).collect();
        let panels = [
            panel(
                "Goodput (IP packets delivered) and capacity",
                "Mbit/s",
                &lines,
                [(" goodput", rate), (" capacity", capacity)],
            )
            .with_zero(),
            panel(
                "Queue",
                "kB",
                &lines,
                [("", |lines, way| gauge(lines, way, "queue_bytes", 1e-3))],
            )
            .with_zero(),
            panel(
                "C/N",
                "dB",
                &lines,
                [("", |lines, way| gauge(lines, way, "cn_db", 1.0))],
            ),
            self.modcods(&lines),
            panel(
                "One-way delay",
                "ms",
                &lines,
                [("", |lines, way| gauge(lines, way, "one_way_delay_ms", 1.0))],
            ),
            panel(
                "Requested and granted",
                "Mbit/s",
                &lines,
                [
                    (" requested", |lines, way| {
                        gauge(lines, way, "requested_bps", 1e-6)
                    }),
                    (" granted", |lines, way| {
                        gauge(lines, way, "granted_bps", 1e-6)
                    }),
                ],
            )
            .with_zero(),
            drops(&lines),
        ];
        Curves {
            name: &self.name,
            t: lines.iter().map(|line| line.t).collect(),
            panels: panels
                .into_iter()
                .filter(|panel| !panel.curves.is_empty())
                .collect(),
        }
    }
}
