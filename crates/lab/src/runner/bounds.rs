//! Best that the link could do during a run, and how the run went: from its own probes, so for links that change too.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_link::{Counters, Scenario, Standard};
use bentpipe_units::BitRate;

use crate::experiment::Direction;
use crate::results::{Timeline, TimelineRecorder};
use crate::workload::LinkLimit;
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::Behind;
use bentpipe_emulator::{EmulatorStats, Live, Snapshot};

/// At least as often as the emulator shows something new.
const PERIOD: Duration = Duration::from_millis(50);

/// No bound on a rate.
const UNBOUNDED: BitRate = BitRate::bits_per_second(u64::MAX);

/// The best that was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Best {
    rtt: Duration,
    /// Forward and return.
    rates: [BitRate; 2],
    /// Rates that no stretch of the run, however short, had more of: above `rates`, which are means, where a trace says when packets
    /// leave.
    peaks: [BitRate; 2],
}

/// Best of a run, and its course.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The best that was seen; none if the run was too short for that.
    pub(super) best: Option<Best>,
    /// Rates and round trip over time, likewise.
    pub(super) timeline: Option<Timeline>,
}

/// A thread that looks.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Stop,
    thread: Option<JoinHandle<Seen>>,
}

impl Watch {
    pub(super) fn start(live: Live) -> Result<Self> {
        let stop = Stop::new().context("cannot make a switch")?;
        let watched = stop.clone();
        let thread = thread::Builder::new().name("bounds".into());
        let thread = thread
            .spawn(move || {
                let (mut best, mut timeline) = (None, TimelineRecorder::default());
                loop {
                    let stopped = watched.wait(PERIOD);
                    if let Some(latest) = live.latest() {
                        best = better(best, &latest);
                        timeline.take(&latest);
                    }
                    if stopped {
                        let timeline = timeline.finish();
                        return Seen { best, timeline };
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Bounds and timeline that were seen.
    pub(super) fn finish(mut self) -> Seen {
        self.stop.stop();
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn better(best: Option<Best>, latest: &Snapshot) -> Option<Best> {
    let Some(terminal) = latest.probe.terminals.first() else {
        return best;
    };
    let (forward, back) = (&terminal.forward_link, &terminal.return_link);
    let rtt = forward.one_way_delay.get() + back.one_way_delay.get();
    let rates = [forward.capacity, back.capacity];
    Some(match best {
        None => Best::new(rtt, rates),
        Some(best) => Best::new(
            best.rtt.min(rtt),
            [0, 1].map(|way| best.rates[way].max(rates[way])),
        ),
    })
}

impl Best {
    pub(super) fn new(rtt: Duration, rates: [BitRate; 2]) -> Self {
        Self {
            rtt,
            rates,
            peaks: rates,
        }
    }

    /// Bounds of `scenario`, whose recorded rates have stretches that are faster than their mean.
    pub(super) fn over(self, scenario: &Scenario) -> Self {
        let standards = [&scenario.forward_link, &scenario.return_link];
        let peak = |way: usize| match standards[way] {
            Standard::Mahimahi { .. } => UNBOUNDED,
            _ => self.peaks[way],
        };
        Self {
            peaks: [0, 1].map(peak),
            ..self
        }
    }

    /// Bounds where content also crosses what is `behind` the gateway.
    pub(super) fn behind(self, behind: &Behind) -> Self {
        let others = [behind.uplink, behind.downlink];
        let least = |rates: [BitRate; 2]| {
            [0, 1].map(|way| others[way].map_or(rates[way], |other| rates[way].min(other)))
        };
        Self {
            rates: least(self.rates),
            peaks: least(self.peaks),
            ..self
        }
    }

    /// The smallest round-trip time.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The bounds of content in `direction`: what the link lost of all packets in that direction had to be sent again.
    pub(super) fn limit(&self, direction: Direction, stats: &EmulatorStats) -> LinkLimit {
        let (way, counters) = way(direction, stats);
        let lost = (counters.dropped_channel + counters.dropped_outage) as f64;
        let sent = lost + counters.delivered as f64;
        let lost = if sent > 0.0 { lost / sent } else { 0.0 };
        LinkLimit::of(self.rtt, self.rates[way], lost)
    }

    /// Best time if by luck nothing was lost: what beats this is impossible.
    pub(super) fn lucky(&self, direction: Direction, stats: &EmulatorStats) -> LinkLimit {
        LinkLimit::of(self.rtt, self.peaks[way(direction, stats).0], 0.0)
    }
}

/// Place of the direction's bounds, and its counters.
fn way(direction: Direction, stats: &EmulatorStats) -> (usize, &Counters) {
    match direction {
        Direction::Down => (0, &stats.forward_link),
        Direction::Up => (1, &stats.return_link),
    }
}
