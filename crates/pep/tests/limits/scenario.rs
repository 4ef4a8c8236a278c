//! The links of the table, as data. Rates are Mbit/s, delays one-way milliseconds.

use std::time::Duration;

use bentpipe_link::{
    Change, GilbertElliott, LinkConfig, LossModel, Outage, PipeConfig, QueueLimit, Schedule,
};
use bentpipe_pep::engine::Profile;
use bentpipe_units::{BitRate, ByteCount, Ratio, Seed};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// One link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Forward and return link.
    pub(crate) rates: [f64; 2],
    pub(crate) delay: u64,
    pub(crate) loss: Loss,
    pub(crate) queue: Queue,
    pub(crate) profile: Profile,
    pub(crate) variation: Variation,
}

/// Losses of both directions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    None,
    /// Independent.
    Iid(f64),
    /// Gilbert–Elliott: share, mean burst.
    Bursts(f64, f64),
    /// One packet in so many.
    Periodic(u32),
}

/// The queue of each direction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Queue {
    /// In BDP of the direction's own rate.
    Bdp(f64),
    Packets(usize),
    /// In milliseconds of the direction's own rate.
    Millis(u64),
}

/// What does not stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variation {
    None,
    /// Delay varies by up to so many milliseconds, every 20 ms.
    Jitter(u64),
    /// 5 s after the transfer's beginning both directions have this rate (Mbit/s).
    Step(u64),
    /// Rain: a ladder of rates from the transfer's beginning on, losses at each step; the flag adds a 10 s outage.
    Fade(bool),
    /// Every 15 s another rate, another delay and a gap between.
    Handovers,
    /// Every 5 s another one-way delay between these.
    Delays(u64, u64),
}

/// The rungs of a rain fade in Mbit/s, 10 s each.
const FADE: [f64; 8] = [50.0, 35.0, 20.0, 10.0, 5.0, 10.0, 20.0, 50.0];
const RUNG: Duration = Duration::from_secs(10);
/// Outage in the fade, from the transfer's beginning.
pub(crate) const FADE_OUTAGE: Outage = Outage {
    start: Duration::from_secs(33),
    length: Duration::from_secs(10),
};
/// For how long traces are drawn: longer than any run on them.
const TRACE: Duration = Duration::from_secs(900);

/// What a scenario plans for the transfer itself, for both directions.
pub(crate) struct Plan {
    pub(crate) schedules: [Schedule; 2],
    pub(crate) outages: Vec<Outage>,
}

pub(crate) fn mbit(rate: f64) -> BitRate {
    BitRate::bits_per_second((rate * 1e6).round() as u64)
}

impl Scenario {
    pub(crate) const fn geo(name: &'static str, rates: [f64; 2], delay: u64) -> Self {
        Self {
            name,
            rates,
            delay,
            loss: Loss::None,
            queue: Queue::Bdp(1.0),
            profile: Profile::Geo,
            variation: Variation::None,
        }
    }

    /// Whether two seeds give two different links.
    pub(crate) fn is_random(&self) -> bool {
        let varies = matches!(
            self.variation,
            Variation::Jitter(_)
                | Variation::Fade(_)
                | Variation::Handovers
                | Variation::Delays(..)
        );
        varies || !matches!(self.loss, Loss::None)
    }

    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_millis(2 * self.delay)
    }

    /// Rate × RTT of the forward (0) or the return link (1), in bytes.
    pub(crate) fn bdp(&self, direction: usize) -> u64 {
        mbit(self.rates[direction]).bytes_in(self.rtt()).as_u64()
    }

    pub(crate) fn link(&self, seed: u64) -> LinkConfig {
        let seed = Seed::new(seed).stream("trace");
        LinkConfig {
            forward_link: self.pipe(0, seed),
            return_link: self.pipe(1, seed),
        }
    }

    fn pipe(&self, direction: usize, seed: Seed) -> PipeConfig {
        let rate = mbit(self.rates[direction]);
        let bytes = |count: u64| QueueLimit::Bytes(ByteCount::new(count.max(15_000)));
        let queue = match self.queue {
            Queue::Bdp(share) => bytes((self.bdp(direction) as f64 * share) as u64),
            Queue::Packets(count) => QueueLimit::Packets(count),
            Queue::Millis(millis) => bytes(rate.bytes_in(Duration::from_millis(millis)).as_u64()),
        };
        let (schedule, outages) = self.trace(direction, seed);
        PipeConfig {
            rate,
            one_way_delay: Duration::from_millis(self.delay),
            queue,
            loss: self.loss_model(),
            outages,
            schedule,
            policer: None,
        }
    }

    fn loss_model(&self) -> LossModel {
        let ratio = |value| Ratio::new(value).expect("a ratio");
        match self.loss {
            Loss::None => LossModel::None,
            Loss::Iid(loss) => LossModel::Iid(ratio(loss)),
            Loss::Periodic(every) => LossModel::Periodic(every),
            // Bursts are so many packets of the forward link long, and pass in time on either.
            Loss::Bursts(loss, burst) => {
                let slot = mbit(self.rates[0]).transmit_time(ByteCount::new(1500));
                let chain = GilbertElliott::with_mean(ratio(loss), burst).expect("a chain");
                LossModel::GilbertElliott(chain.in_time(slot))
            }
        }
    }

    /// What changes from the link's beginning on.
    fn trace(&self, direction: usize, seed: Seed) -> (Schedule, Vec<Outage>) {
        let mut random = Pcg64Mcg::seed_from_u64(seed.as_u64());
        let mut draw = |low: f64, high: f64| {
            low + (high - low) * (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
        };
        let delay = |millis: f64| Change::OneWayDelay(Duration::from_secs_f64(millis / 1e3));
        let mut changes = Vec::new();
        let mut outages = Vec::new();
        match self.variation {
            Variation::None | Variation::Step(_) | Variation::Fade(_) => {}
            Variation::Jitter(most) => {
                for at in every(Duration::from_millis(20)) {
                    changes.push((at, delay(self.delay as f64 + draw(0.0, most as f64))));
                }
            }
            Variation::Delays(low, high) => {
                for at in every(Duration::from_secs(5)) {
                    changes.push((at, delay(draw(low as f64, high as f64))));
                }
            }
            // Both directions draw the same numbers: one satellite.
            Variation::Handovers => {
                for epoch in every(Duration::from_secs(15)) {
                    let share = draw(50.0, 250.0) / 150.0;
                    let base = draw(15.0, 40.0);
                    let gap = Duration::from_secs_f64(draw(0.05, 0.15));
                    changes.push((epoch, Change::Rate(mbit(self.rates[direction] * share))));
                    for at in every(Duration::from_millis(20)).take(750) {
                        changes.push((epoch + at, delay(base + draw(0.0, 6.7))));
                    }
                    if !epoch.is_zero() {
                        outages.push(Outage {
                            start: epoch,
                            length: gap,
                        });
                    }
                }
            }
        }
        (Schedule::new(changes), outages)
    }

    /// What is planned from the transfer's beginning on.
    pub(crate) fn plan(&self) -> Option<Plan> {
        match self.variation {
            Variation::Step(rate) => {
                let step = (Duration::from_secs(5), Change::Rate(mbit(rate as f64)));
                Some(Plan {
                    schedules: [Schedule::new([step]), Schedule::new([step])],
                    outages: Vec::new(),
                })
            }
            Variation::Fade(outage) => Some(Plan {
                schedules: [fade(), Schedule::none()],
                outages: if outage {
                    vec![FADE_OUTAGE]
                } else {
                    Vec::new()
                },
            }),
            _ => None,
        }
    }
}

/// The instants 0, `period`, 2 `period`, …
fn every(period: Duration) -> impl Iterator<Item = Duration> {
    (0u32..)
        .map(move |count| period * count)
        .take_while(|at| *at < TRACE)
}

/// Rates of a fade, and 5 % loss for a second at each step.
fn fade() -> Schedule {
    let lossy = LossModel::Iid(Ratio::new(0.05).expect("a ratio"));
    let steps = FADE.iter().zip(0u32..).flat_map(|(rate, rung)| {
        let at = RUNG * rung;
        let loss = if rung == 0 { LossModel::None } else { lossy };
        [
            (at, Change::Rate(mbit(*rate))),
            (at, Change::Loss(loss)),
            (at + Duration::from_secs(1), Change::Loss(LossModel::None)),
        ]
    });
    Schedule::new(steps)
}
