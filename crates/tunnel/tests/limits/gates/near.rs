//! Paths without a satellite: round trips of 0.1 to 30 ms, from one LAN to the other side of a country.
//!
//! Their windows are small beside what QUIC's acknowledgement delay holds back, and their queues short beside what
//! controllers of long paths aim at. A backup link, a port's fibre or two machines on one switch have to carry their rate too.

use std::time::Duration;

use bentpipe_link::{Change, Outage, Schedule};
use bentpipe_testbed::limit::DOWN;
use bentpipe_tunnel::engine::Profile;

use super::probe::{ENDLESS, alone, dropped, read, tunnel_rate};
use crate::row::Goal::{AtLeast, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::{Loss, Queue, Scenario};

/// Round trips in microseconds.
const ROUND_TRIPS: [u64; 7] = [100, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000];
const RATES: [f64; 3] = [20.0, 100.0, 1000.0];

/// Until a new tunnel has found its rate.
const SETTLE: Duration = Duration::from_secs(1);
/// For so long the rate is looked at; less where much is carried.
const SPAN: Duration = Duration::from_secs(4);
const SHORT_SPAN: Duration = Duration::from_millis(1500);
/// How long a machine that is busy with something else forwards nothing.
const HICCUP: Duration = Duration::from_millis(20);

/// One experiment on a short path.
#[derive(Debug, Clone, Copy)]
struct Near {
    /// Microseconds.
    rtt: u64,
    rate: f64,
    queue: Queue,
    loss: Loss,
    flows: u32,
    warm: bool,
    hiccup: bool,
}

impl Near {
    const fn new(rtt: u64, rate: f64) -> Self {
        Self {
            rtt,
            rate,
            queue: Queue::Bdp(1.0),
            loss: Loss::None,
            flows: 1,
            warm: false,
            hiccup: false,
        }
    }

    fn scenario(&self) -> Scenario {
        Scenario {
            delay: Duration::from_micros(self.rtt / 2),
            queue: self.queue,
            loss: self.loss,
            profile: Profile::Auto,
            ..Scenario::geo("near", [self.rate, self.rate], 0)
        }
    }

    fn name(&self) -> String {
        let queue = match self.queue {
            Queue::Bdp(bdp) => format!("{bdp} BDP"),
            Queue::Packets(packets) => format!("{packets} packets"),
        };
        let loss = match self.loss {
            Loss::None => "",
            _ => ", 0.1 %",
        };
        let flows = match self.flows {
            1 => String::new(),
            flows => format!(", {flows} flows"),
        };
        let warm = if self.warm { ", warm" } else { "" };
        let hiccup = if self.hiccup { ", hiccup" } else { "" };
        let rtt = self.rtt as f64 / 1e3;
        format!(
            "{rtt} ms {} M {queue}{loss}{flows}{warm}{hiccup}",
            self.rate
        )
    }

    fn row(self) -> Row {
        let goal = match self.queue {
            // 25 packets hold 0.3 ms of a gigabit: less than a timer's granularity.
            Queue::Packets(_) if self.rate >= 1000.0 => Shown,
            // A BDP is eight packets here, which one burst of ten fills: a window of the pacer, not of the path.
            Queue::Bdp(_) if self.rate >= 1000.0 && self.rtt < 1_000 => AtLeast(0.85),
            _ => AtLeast(0.95),
        };
        let figures = vec![
            Figure::new("utilisation", goal),
            Figure::new("dropped by queue, %", Shown),
        ];
        let row = Row::new("near", self.name(), figures, move |kind, seed| {
            self.run(kind, seed)
        });
        match self.loss {
            Loss::None => row,
            _ => row.random(),
        }
    }

    fn run(&self, kind: bentpipe_congestion::Kind, seed: u64) -> Sample {
        let scenario = self.scenario();
        let mut world = alone(&scenario, kind, seed);
        if self.warm {
            world.timed_download(3 * scenario.bdp(DOWN).max(100_000));
            world.run_for(Duration::from_secs(5));
        }
        for _ in 0..self.flows {
            world.download(ENDLESS, None);
        }
        world.run_for(SETTLE);
        if self.hiccup {
            let now = world.now;
            let outage = Outage {
                start: Duration::ZERO,
                length: HICCUP,
            };
            let none = Schedule::new(Vec::<(Duration, Change)>::new());
            let pipe = &mut world.link.forward_link;
            pipe.plan(now, &none, vec![outage]);
            world.run_for(HICCUP + SETTLE);
        }
        let span = if self.rate > 500.0 { SHORT_SPAN } else { SPAN };
        let before = (world.link.forward_link.stats(), read(&world)[0]);
        world.run_for(span);
        let got = read(&world)[0] - before.1;
        Sample {
            values: vec![
                tunnel_rate(got, span) / self.rate,
                dropped(&before.0, &world.link.forward_link.stats()),
            ],
            note: String::new(),
        }
    }
}

/// Every round trip with every rate, and what else may happen to some of them.
pub(super) fn rows() -> Vec<Row> {
    let mut cases = Vec::new();
    for rtt in ROUND_TRIPS {
        for rate in RATES {
            let clean = Near::new(rtt, rate);
            let lossy = Near {
                loss: Loss::Iid(0.001),
                ..clean
            };
            cases.extend([
                clean,
                lossy,
                Near {
                    queue: Queue::Packets(25),
                    ..clean
                },
                Near { flows: 8, ..clean },
                Near {
                    warm: true,
                    ..clean
                },
                Near {
                    hiccup: true,
                    ..clean
                },
                Near {
                    queue: Queue::Packets(25),
                    flows: 8,
                    warm: true,
                    ..lossy
                },
            ]);
        }
    }
    let steps = RATES[..2].iter().flat_map(|&rate| {
        [[FAR, FIBRE], [FIBRE, FAR]].map(|[from, to]| Step { from, to, rate }.row())
    });
    cases.into_iter().map(Near::row).chain(steps).collect()
}

/// Round trips, in microseconds, of a satellite and of the fibre that takes its place.
const FAR: u64 = 600_000;
const FIBRE: u64 = 5_000;

/// Until a tunnel has found the rate of a path that is another one now: a start takes so many of its round trips.
const REGAIN: u32 = 20;

/// A failover in mid-transfer: everything goes another way from one packet to the next.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Round trips in microseconds.
    from: u64,
    to: u64,
    rate: f64,
}

impl Step {
    fn row(self) -> Row {
        let name = format!(
            "{} to {} ms {} M",
            self.from / 1000,
            self.to / 1000,
            self.rate
        );
        let figures = vec![
            Figure::new("utilisation", AtLeast(0.95)),
            Figure::new("dropped by queue, %", Shown),
        ];
        Row::new("near", name, figures, move |kind, seed| {
            self.run(kind, seed)
        })
    }

    fn run(&self, kind: bentpipe_congestion::Kind, seed: u64) -> Sample {
        // The queue is the modem's own and does not change with the path: 100 ms.
        let scenario = Scenario {
            queue: Queue::Packets((self.rate * 1e6 * 0.1 / 8.0 / 1500.0) as usize),
            ..Near::new(self.from, self.rate).scenario()
        };
        let mut world = alone(&scenario, kind, seed);
        world.download(ENDLESS, None);
        world.run_for(Duration::from_secs(15));
        let delay = Duration::from_micros(self.to / 2);
        let step = Schedule::new([(Duration::ZERO, Change::OneWayDelay(delay))]);
        let now = world.now;
        world.link.forward_link.plan(now, &step, Vec::new());
        world.link.return_link.plan(now, &step, Vec::new());
        world.run_for(SETTLE.max(Duration::from_micros(self.to) * REGAIN));
        let before = (world.link.forward_link.stats(), read(&world)[0]);
        world.run_for(SPAN);
        let got = read(&world)[0] - before.1;
        Sample {
            values: vec![
                tunnel_rate(got, SPAN) / self.rate,
                dropped(&before.0, &world.link.forward_link.stats()),
            ],
            note: String::new(),
        }
    }
}
