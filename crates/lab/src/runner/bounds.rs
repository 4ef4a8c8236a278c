//! Best that the link could do during a run, and how the run went: from its own probes, so for links that change too.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_link::Counters;
use bentpipe_units::BitRate;

use crate::experiment::Direction;
use crate::results::{Timeline, TimelineRecorder};
use crate::workload::LinkLimit;
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::Behind;
use bentpipe_emulator::{EmulatorStats, Live, Snapshot};

/// At least as often as the emulator shows something new.
const PERIOD: Duration = Duration::from_millis(50);

/// The best that was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Best {
    rtt: Duration,
    /// Forward and return.
    rates: [BitRate; 2],
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
    let seen = Best {
        rtt: forward.one_way_delay.get() + back.one_way_delay.get(),
        rates: [forward.capacity, back.capacity],
    };
    Some(match best {
        None => seen,
        Some(best) => Best {
            rtt: best.rtt.min(seen.rtt),
            rates: [0, 1].map(|way| best.rates[way].max(seen.rates[way])),
        },
    })
}

impl Best {
    #[cfg(test)]
    pub(super) fn new(rtt: Duration, rates: [BitRate; 2]) -> Self {
        Self { rtt, rates }
    }

    /// Bounds where content also crosses what is `behind` the gateway.
    pub(super) fn behind(self, behind: &Behind) -> Self {
        let [forward, back] = self.rates;
        let least =
            |rate: BitRate, other: Option<BitRate>| other.map_or(rate, |other| rate.min(other));
        Self {
            rates: [least(forward, behind.uplink), least(back, behind.downlink)],
            ..self
        }
    }

    /// The smallest round-trip time.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The bounds of content in `direction`: what the link lost of all packets in that direction had to be sent again.
    pub(super) fn limit(&self, direction: Direction, stats: &EmulatorStats) -> LinkLimit {
        let (rate, counters) = self.way(direction, stats);
        let lost = (counters.dropped_channel + counters.dropped_outage) as f64;
        let sent = lost + counters.delivered as f64;
        LinkLimit::of(self.rtt, rate, if sent > 0.0 { lost / sent } else { 0.0 })
    }

    /// Best time if by luck nothing was lost: what beats this is impossible.
    pub(super) fn lucky(&self, direction: Direction, stats: &EmulatorStats) -> LinkLimit {
        LinkLimit::of(self.rtt, self.way(direction, stats).0, 0.0)
    }

    fn way<'a>(&self, direction: Direction, stats: &'a EmulatorStats) -> (BitRate, &'a Counters) {
        match direction {
            Direction::Down => (self.rates[0], &stats.forward_link),
            Direction::Up => (self.rates[1], &stats.return_link),
        }
    }
}
