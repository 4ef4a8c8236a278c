//! How long an experiment takes: from what its links can do, roughly, and rather too long than too short.

use std::time::{Duration, Instant};

use bentpipe_link::Link;
use bentpipe_units::Seed;

use super::{Experiment, NamedScenario, Run, Task};
use crate::workload::{ECHO_INTERVAL, LinkLimit};

/// Namespaces, link, contender and their end, and Chromium's start.
const AROUND_A_RUN: Duration = Duration::from_secs(6);
/// Round trips that whoever starts slowly needs besides.
const ROUND_TRIPS: u32 = 8;
/// Between page loads, and what the machine computes for one.
const AROUND_A_PAGE: Duration = Duration::from_millis(1500);
/// Average time of a task, in hundredths of what the link needs, without and with losses.
const STRETCH: [u32; 2] = [130, 500];

impl Experiment {
    /// About how long these runs take.
    #[must_use]
    pub fn estimate(&self, runs: &[Run]) -> Duration {
        self.estimates(runs).iter().sum()
    }

    /// Estimate of each run.
    #[must_use]
    pub fn estimates(&self, runs: &[Run]) -> Vec<Duration> {
        let links: Vec<_> = self.scenarios.iter().map(Pace::of).collect();
        let time = |run: &Run| {
            let task = &self.tasks[run.task].task;
            let work = links[run.scenario].as_ref().map(|pace| pace.time(task));
            AROUND_A_RUN + work.unwrap_or(self.patience).min(self.patience)
        };
        runs.iter().map(time).collect()
    }
}

/// Pace of a link when it starts.
struct Pace {
    rtt: Duration,
    down: LinkLimit,
    up: LinkLimit,
    stretch: u32,
}

impl Pace {
    fn of(named: &NamedScenario) -> Option<Self> {
        let model = named.scenario.build(&named.files).ok()?;
        let now = Instant::now();
        let probe = Link::<()>::new(&model, now).probe(now);
        let (forward, back) = {
            let terminal = probe.terminals.first()?;
            (&terminal.forward_link, &terminal.return_link)
        };
        let rtt = forward.one_way_delay.get() + back.one_way_delay.get();
        let lossy = named.scenario.errors != Default::default();
        Some(Self {
            rtt,
            down: LinkLimit::of(rtt, forward.capacity, 0.0),
            up: LinkLimit::of(rtt, back.capacity, 0.0),
            stretch: STRETCH[usize::from(lossy)],
        })
    }

    fn time(&self, task: &Task) -> Duration {
        let of = |direction| match direction {
            super::Direction::Down => &self.down,
            super::Direction::Up => &self.up,
        };
        let figure = |least: Duration| least * self.stretch / 100 + self.rtt * ROUND_TRIPS;
        let first = task.warm_up().map_or(Duration::ZERO, |(direction, size)| {
            figure(of(direction).object(size.as_u64()))
        });
        let own = match *task {
            Task::Transfer {
                size, direction, ..
            }
            | Task::Iperf {
                size, direction, ..
            } => figure(of(direction).object(size.as_u64())),
            Task::Request { count, size, .. } | Task::Loaded { count, size, .. } => {
                figure(self.down.object(size.as_u64())) * count
            }
            Task::Handshake { count, .. } => figure(self.rtt) * count,
            Task::Session {
                count,
                request,
                response,
                every,
                ..
            } => {
                let one = figure(self.up.object(request.as_u64()))
                    + figure(self.down.object(response.as_u64()));
                every.map_or(one, |every| every.get().max(one)) * count
            }
            Task::Parallel {
                count,
                size,
                direction,
                ..
            } => figure(of(direction).object(size.as_u64() * u64::from(count))),
            Task::Objects { count, size, .. } => figure(self.down.object(size.as_u64()) * count),
            Task::Ftp { direction, .. } => {
                // Three round trips a file between hosts; only how long files are together matters, not which.
                let files = task.files(Seed::new(1));
                let each = files
                    .iter()
                    .map(|length| figure(of(direction).object(*length)));
                each.sum()
            }
            Task::Voice { length, .. } => length.get() + self.rtt * ROUND_TRIPS,
            Task::Echo { count, .. } => ECHO_INTERVAL * count + self.rtt * ROUND_TRIPS,
            Task::Page { .. } => {
                let pages = task.pages();
                let each = pages
                    .iter()
                    .map(|page| match task.direction() {
                        super::Direction::Down => self.down.page(page, task.handshakes()),
                        super::Direction::Up => self.up.object(page.bytes()),
                    })
                    .map(|least| figure(least) + AROUND_A_PAGE);
                each.sum()
            }
        };
        first + own
    }
}
