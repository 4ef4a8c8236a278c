//! How a run went: rates and round trip of the link over time, in few points.

use bentpipe_emulator::Snapshot;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Points that are kept; when there are more, two become one.
const MOST: usize = 64;

/// Rates and round trip of the link during a run, from one point to the next; all lists are as long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Ends of the intervals, in seconds since the link was up.
    pub t_s: Vec<f64>,
    /// IP packets delivered from gateway to terminal in each interval, in bit/s.
    pub forward_bps: Vec<u64>,
    /// IP packets delivered from terminal to gateway in each interval, in bit/s.
    pub return_bps: Vec<u64>,
    /// Longest round trip of each interval, in milliseconds: propagation, and what waited in the queues of both directions.
    pub rtt_ms: Vec<f64>,
}

/// Key of the timeline in the account of a run's link.
const KEY: &str = "timeline";

impl Timeline {
    /// Reads the timeline in the account of a run's link; none of results that were written before there was one.
    pub(super) fn of(link: &Value) -> Option<Self> {
        serde_json::from_value(link.get(KEY)?.clone()).ok()
    }

    /// Writes the timeline into the account of its run's link, a JSON object.
    ///
    /// # Errors
    /// The timeline has no form as JSON.
    pub fn put_into(&self, link: &mut Value) -> serde_json::Result<()> {
        link[KEY] = serde_json::to_value(self)?;
        Ok(())
    }
}

/// Recorder of a timeline, which takes as little room however long the run is.
#[derive(Debug, Default)]
pub struct TimelineRecorder {
    points: Vec<LinkState>,
    /// Snapshots that one point stands for, and those that the last one has so far.
    stride: usize,
    taken: usize,
}

/// State of the first terminal's link.
#[derive(Debug, Clone, Copy, Default)]
struct LinkState {
    t_s: f64,
    /// Delivered so far, forward and return.
    bytes: [u64; 2],
    /// Longest of the snapshots that the point stands for.
    rtt_ms: f64,
}

impl TimelineRecorder {
    /// Takes a snapshot, unless it was the last one already.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let Some(terminal) = snapshot.probe.terminals.first() else {
            return;
        };
        let ways = [&terminal.forward_link, &terminal.return_link];
        let rtt = ways.map(|way| {
            let waits = way.queues.iter().map(|queue| queue.sojourn.get());
            way.one_way_delay.get() + waits.max().unwrap_or_default()
        });
        self.add(LinkState {
            t_s: snapshot.at.as_secs_f64(),
            bytes: ways.map(|way| way.counters.delivered_bytes.as_u64()),
            rtt_ms: 1e3
                * rtt
                    .iter()
                    .map(std::time::Duration::as_secs_f64)
                    .sum::<f64>(),
        });
    }

    fn add(&mut self, point: LinkState) {
        if self.points.last().is_some_and(|last| last.t_s >= point.t_s) {
            return;
        }
        self.stride = self.stride.max(1);
        match self.points.last_mut() {
            Some(last) if self.taken < self.stride => *last = last.until(point),
            _ => {
                self.halve();
                self.points.push(point);
                self.taken = 0;
            }
        }
        self.taken += 1;
    }

    /// Makes room for one more: two points become one.
    fn halve(&mut self) {
        if self.points.len() < MOST {
            return;
        }
        let pairs = self.points.chunks(2);
        self.points = pairs
            .map(|pair| pair[0].until(pair[pair.len() - 1]))
            .collect();
        self.stride *= 2;
    }

    /// Timeline of what was recorded; none of a run that was over before the first snapshot.
    #[must_use]
    pub fn finish(self) -> Option<Timeline> {
        let mut timeline = Timeline::default();
        let mut before = LinkState::default();
        for now in self.points {
            let time = (now.t_s - before.t_s).max(f64::MIN_POSITIVE);
            let rate = |way: usize| {
                let bytes = now.bytes[way].saturating_sub(before.bytes[way]);
                (8.0 * bytes as f64 / time).round() as u64
            };
            timeline.t_s.push((1e3 * now.t_s).round() / 1e3);
            timeline.forward_bps.push(rate(0));
            timeline.return_bps.push(rate(1));
            timeline.rtt_ms.push((10.0 * now.rtt_ms).round() / 10.0);
            before = now;
        }
        (!timeline.t_s.is_empty()).then_some(timeline)
    }
}

impl LinkState {
    /// The point that stands for this one and a later one.
    fn until(self, later: Self) -> Self {
        Self {
            rtt_ms: self.rtt_ms.max(later.rtt_ms),
            ..later
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A megabit per second down and half of it up for so many tenths of a second, with one long round trip.
    fn recorded(tenths: u64) -> Timeline {
        let mut recorder = TimelineRecorder::default();
        for tenth in 1..=tenths {
            let bytes = [12_500 * tenth, 6_250 * tenth];
            let rtt_ms = if tenth == tenths / 2 { 900.0 } else { 500.0 };
            let point = LinkState {
                t_s: tenth as f64 / 10.0,
                bytes,
                rtt_ms,
            };
            recorder.add(point);
            // The same snapshot, seen again.
            recorder.add(point);
        }
        recorder.finish().unwrap()
    }

    #[test]
    fn a_run_has_few_points_however_long_it_is() {
        for tenths in [1, 2, 3, 63, 64, 65, 100, 1000, 36_001] {
            let line = recorded(tenths);
            let count = line.t_s.len();
            assert!((1..=MOST).contains(&count), "{tenths}: {count}");
            assert!(tenths < 64 || count > MOST / 2 - 2, "{tenths}: {count}");
            assert_eq!(line.t_s[count - 1], tenths as f64 / 10.0);
            for rates in [&line.forward_bps, &line.return_bps] {
                assert_eq!(rates.len(), count);
            }
            assert!(
                line.forward_bps.iter().all(|rate| *rate == 1_000_000),
                "{line:?}"
            );
            assert!(
                line.return_bps.iter().all(|rate| *rate == 500_000),
                "{line:?}"
            );
            let longest = line.rtt_ms.iter().copied().fold(0.0, f64::max);
            assert!(tenths < 2 || longest == 900.0, "{tenths}: {longest}");
        }
        assert_eq!(TimelineRecorder::default().finish(), None);
        let mut link = serde_json::json!({ "verdict": "VALID" });
        assert_eq!(Timeline::of(&link), None);
        recorded(3).put_into(&mut link).unwrap();
        assert_eq!(Timeline::of(&link), Some(recorded(3)));
    }
}
