//! Report of a measurement: a row for each kind of transfer, in plain words or as JSON.

use std::fmt::{self, Write as _};
use std::time::Duration;

use bentpipe_units::ByteCount;
use jiff::Timestamp;
use serde::Serialize;

use super::Fault;
use super::plan::{Plan, TaskKind, Way};
use super::statistics::{Comparison, Conclusion, Pair};
use crate::status::Measured;

/// Result of a measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of bentpipe.
    pub version: &'static str,
    /// Beginning of the measurement, RFC 3339, UTC.
    pub began: String,
    /// Host or URL that was transferred with.
    pub target: String,
    /// Part of the client that led into the tunnel.
    pub through: String,
    /// Rounds that were planned.
    pub rounds: u32,
    /// Rounds that were asked for, if there was no room for them.
    pub rounds_asked: Option<u32>,
    /// Bytes of all bodies, at most.
    pub bytes: u64,
    /// One for each kind of transfer.
    pub rows: Vec<Row>,
}

/// Result of one kind of transfer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Kind of the transfers.
    pub kind: TaskKind,
    /// Bytes of one transfer, at most.
    pub bytes: u64,
    /// Comparison of the pairs; none if no pair is complete.
    pub result: Option<Comparison>,
    /// Pairs, in order.
    pub pairs: Vec<Pair>,
    /// Transfers that failed.
    pub failures: Failures,
}

/// Transfers of one kind that failed. Their pairs do not count.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Failures {
    /// Past the tunnel.
    pub direct: u32,
    /// Through the tunnel.
    pub tunnel: u32,
    /// Last reason.
    pub last: Option<String>,
}

impl Report {
    /// Empty report of a measurement that begins at `began`, since 1970.
    pub(super) fn new(target: String, through: String, began: Duration, plan: &Plan) -> Self {
        let seconds = i64::try_from(began.as_secs()).unwrap_or_default();
        let row = |kind: &TaskKind| Row {
            kind: *kind,
            bytes: plan.bytes_of(*kind),
            result: None,
            pairs: Vec::new(),
            failures: Failures::default(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            began: Timestamp::from_second(seconds)
                .unwrap_or_default()
                .to_string(),
            target,
            through,
            rounds: plan.rounds(),
            rounds_asked: plan.curtailed(),
            bytes: plan.bytes().as_u64(),
            rows: plan.kinds().iter().map(row).collect(),
        }
    }

    /// Line that says what is about to be done, and what it costs.
    pub(super) fn heading(&self) -> String {
        format!("measuring with {}", self.extent())
    }

    /// Target, way into the tunnel, rounds and bytes, in words.
    pub(super) fn extent(&self) -> String {
        let Self {
            target,
            through,
            rounds,
            ..
        } = self;
        let bytes = self.bytes as f64 / 1e6;
        let plural = if *rounds == 1 { "" } else { "s" };
        let mut text = format!(
            "{target}, through {through}: {rounds} round{plural}, at most {bytes:.2} MB of payload"
        );
        if let Some(asked) = self.rounds_asked {
            let _ = write!(text, "; --max-bytes has no room for {asked} rounds");
        }
        text
    }

    /// The whole report, or why it is empty.
    pub(super) fn conclude(mut self) -> Result<Self, Fault> {
        for row in &mut self.rows {
            row.result = Comparison::of(&row.pairs);
        }
        if self.rows.iter().any(|row| row.result.is_some()) {
            return Ok(self);
        }
        let mut reasons = self.rows.into_iter().filter_map(|row| row.failures.last);
        let reason = reasons.next();
        Err(Fault::Nothing(reason.unwrap_or_else(|| "no reason".into())))
    }

    /// Medians of which `status` and the page of the client tell; none if too little was measured for any.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        let ratio = |kind| {
            let row = self.rows.iter().find(|row| row.kind == kind)?;
            let result = row.result.as_ref()?;
            (result.verdict != Conclusion::TooFew).then_some(result.ratio)
        };
        let measured = Measured {
            began: self.began.clone(),
            request_ratio: ratio(TaskKind::Request),
            page_ratio: ratio(TaskKind::Page),
            download_ratio: ratio(TaskKind::Down),
            upload_ratio: ratio(TaskKind::Up),
        };
        let Measured {
            request_ratio,
            page_ratio,
            download_ratio,
            upload_ratio,
            ..
        } = &measured;
        let all = [request_ratio, page_ratio, download_ratio, upload_ratio];
        all.iter().any(|ratio| ratio.is_some()).then_some(measured)
    }

    /// The report for programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl Row {
    pub(super) fn add(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    pub(super) fn failed(&mut self, way: Way, fault: &Fault) {
        let (count, name) = match way {
            Way::Direct => (&mut self.failures.direct, "direct"),
            Way::Tunnel => (&mut self.failures.tunnel, "tunnel"),
        };
        *count += 1;
        self.failures.last = Some(format!("{name}: {fault}"));
    }

    /// Medians, ratio, interval and number of pairs, as tables show them.
    pub(super) fn cells(&self) -> [String; 5] {
        let Some(result) = &self.result else {
            return ["-", "-", "-", "-", "0"].map(String::from);
        };
        let interval = result.interval;
        [
            duration(result.direct_s),
            duration(result.tunnel_s),
            format!("{:.3}", result.ratio),
            interval.map_or("-".into(), |[low, high]| format!("{low:.3} to {high:.3}")),
            result.n.to_string(),
        ]
    }

    /// Failures in words; none if there are none.
    pub(super) fn failed_words(&self) -> Option<String> {
        let Failures {
            direct,
            tunnel,
            last,
        } = &self.failures;
        let last = last.as_ref()?;
        Some(format!(
            "{direct} direct, {tunnel} through the tunnel; last, {last}"
        ))
    }

    /// The result in words.
    #[must_use]
    pub fn words(&self) -> String {
        let Some(result) = &self.result else {
            return "nothing to say: no pair is complete".into();
        };
        let ratio = result.ratio;
        match result.verdict {
            Conclusion::Gain => format!("gain: {ratio:.2} times as fast through the tunnel"),
            Conclusion::Slower => {
                format!("no gain: the tunnel takes {:.2} times as long", 1.0 / ratio)
            }
            Conclusion::NoDifference => "no gain: no difference is shown".into(),
            Conclusion::TooFew => format!("too few pairs to say: {}, 6 are needed", result.n),
        }
    }
}

/// Time in seconds, or in milliseconds where that is short.
fn duration(seconds: f64) -> String {
    match seconds < 0.1 {
        true => format!("{:.2} ms", seconds * 1e3),
        false => format!("{seconds:.3} s"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<9}{:>10}{:>10}{:>10}{:>8}  {:<17}{:>3}",
            "", "size", "direct", "tunnel", "ratio", "95 % interval", "n"
        )?;
        for row in &self.rows {
            let (name, size) = (row.kind.name(), ByteCount::new(row.bytes).to_string());
            let [direct, tunnel, ratio, interval, n] = row.cells();
            writeln!(
                f,
                "{name:<9}{size:>10}{direct:>10}{tunnel:>10}{ratio:>8}  {interval:<17}{n:>3}"
            )?;
        }
        writeln!(f)?;
        for row in &self.rows {
            writeln!(f, "{:<9} {}", row.kind.name(), row.words())?;
            if let Some(failed) = row.failed_words() {
                writeln!(f, "          failed: {failed}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Wishes;
    use super::*;

    fn report(ratio: f64, pairs: usize) -> Report {
        let wishes = Wishes {
            size: ByteCount::new(1000),
            rounds: 8,
            max_bytes: ByteCount::new(10_000),
        };
        let plan = Plan::new(TaskKind::OF_URL, &wishes).unwrap();
        let mut report = Report::new("http://a/".into(), "SOCKS5".into(), Duration::ZERO, &plan);
        for row in &mut report.rows {
            for _ in 0..pairs {
                row.add(Pair {
                    direct_s: ratio,
                    tunnel_s: 1.0,
                });
            }
        }
        report
    }

    #[test]
    fn what_it_costs_is_said_first() {
        let heading = report(1.0, 0).heading();
        for wanted in [
            "2 rounds",
            "0.01 MB",
            "--max-bytes has no room for 8 rounds",
        ] {
            assert!(heading.contains(wanted), "{heading}");
        }
    }

    #[test]
    fn a_tunnel_that_is_not_faster_is_told_so() {
        for (ratio, pairs, wanted) in [
            (2.0, 8, "gain: 2.00 times as fast"),
            (0.5, 8, "no gain: the tunnel takes 2.00 times as long"),
            (1.0, 8, "no gain: no difference is shown"),
            (9.0, 5, "too few pairs to say: 5, 6 are needed"),
        ] {
            let report = report(ratio, pairs).conclude().unwrap();
            let text = report.to_string();
            assert!(text.contains(wanted), "{text}");
            assert!(report.to_json().contains("\"verdict\""));
        }
        let mut nothing = report(1.0, 0);
        nothing.rows[0].failed(Way::Tunnel, &Fault::Status(500));
        let fault = nothing.conclude().unwrap_err().to_string();
        assert!(
            fault.contains("tunnel: answered with status 500"),
            "{fault}"
        );
    }
}
