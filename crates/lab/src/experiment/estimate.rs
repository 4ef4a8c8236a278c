//! How long an experiment takes: from what its links can do, roughly, and rather too long than too short.

use std::time::{Duration, Instant};

use bentpipe_link::Link;
use bentpipe_units::Seed;

use super::{Experiment, HandshakeEnd, NamedScenario, Run, Task};
use crate::workload::{ECHO_INTERVAL, LinkLimit, Page};

/// Namespaces, link, contender and their end, and Chromium's start.
const AROUND_A_RUN: Duration = Duration::from_secs(5);
/// Round trips that whoever starts slowly needs besides.
const ROUND_TRIPS: u32 = 8;
/// Round trips of a handshake with a host, TCP's included, and one to spare: TLS 1.2 over TCP takes three.
const HANDSHAKE_ROUND_TRIPS: u32 = 4;
/// Round trips that a page needs besides in a session that has connections, whose objects are asked for two after another; and a
/// transaction of an application, which may have to connect.
const LATER_ROUND_TRIPS: u32 = 4;
/// Between page loads, and what the machine computes for one: Chromium, and the fetcher, which draws nothing.
const AROUND_A_PAGE: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(300)];
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
            Task::Handshake {
                count,
                to: HandshakeEnd::Tls,
                ..
            } => self.rtt * HANDSHAKE_ROUND_TRIPS * count,
            Task::Handshake { count, .. } => figure(self.rtt) * count,
            Task::Session {
                count,
                request,
                response,
                every,
                ..
            } => {
                // Few packets each, of which losses hit fewer.
                let least = self.up.object(request.as_u64()) + self.down.object(response.as_u64());
                let one = least * STRETCH[0] / 100 + self.rtt * LATER_ROUND_TRIPS;
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
            Task::Page { .. } => self.pages(task),
        };
        first + own
    }

    /// Time for the pages of a task: one session after another, or all at once, when what the others carry comes on top of the first.
    fn pages(&self, task: &Task) -> Duration {
        let (pages, in_session) = (task.pages(), task.in_session());
        let page = |(place, page): (usize, &Page)| {
            let least = match task.direction() {
                super::Direction::Down => self.down.page(page, task.handshakes(place)),
                super::Direction::Up => self.up.object(page.bytes()),
            };
            // Later in a session connections stand, and have met the link.
            let slow = match place.is_multiple_of(in_session) {
                true => ROUND_TRIPS,
                false => LATER_ROUND_TRIPS,
            };
            least * self.stretch / 100
                + self.rtt * slow
                + AROUND_A_PAGE[usize::from(!task.needs_chromium())]
        };
        let each = pages.iter().enumerate().map(page);
        match task {
            Task::Page { at_once: true, .. } => {
                let others = pages.iter().skip(in_session);
                let others = self.down.stream(others.map(Page::bytes).sum());
                each.take(in_session).sum::<Duration>() + others * self.stretch / 100
            }
            _ => each.sum(),
        }
    }
}
