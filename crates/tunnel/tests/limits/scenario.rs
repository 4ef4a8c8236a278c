//! The links of the table, as data: those that are built in, and some of its own. Rates are Mbit/s.

use std::time::Duration;

use bentpipe_link::{
    Change, Direction, Errors, GilbertElliott, LinkConfig, LossModel, Orbit, Outage, PipeConfig,
    PlannedChange, QueueLimit, Queues, Schedule, Standard, preset,
};
use bentpipe_tunnel::engine::Profile;
use bentpipe_units::{BitRate, ByteCount, Ratio, Seed};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// One link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Forward and return link.
    pub(crate) rates: [f64; 2],
    pub(crate) delay: Duration,
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
}

/// What does not stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variation {
    None,
    /// Delay varies by up to so many milliseconds, every 20 ms.
    Jitter(u64),
    /// What the preset of this name plans, from the transfer's beginning on.
    Planned(&'static str),
    /// Every 15 s another rate, another delay and a gap between.
    Handovers,
    /// Every 5 s another one-way delay between these.
    Delays(u64, u64),
}

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
            delay: Duration::from_millis(delay),
            loss: Loss::None,
            queue: Queue::Bdp(1.0),
            profile: Profile::Geo,
            variation: Variation::None,
        }
    }

    /// The link that everybody has by the name `preset`. What chance draws in the course of time (jitter, epochs, delays) is
    /// drawn here, for a transfer to meet other values with each seed.
    pub(crate) fn built_in(name: &'static str, preset: &'static str) -> Self {
        let link = read(preset);
        let rates = [&link.forward_link, &link.return_link].map(|standard| match standard {
            Standard::Cbr { bit_rate } => bit_rate.as_u64() as f64 / 1e6,
            _ => panic!("{preset} has a constant bit rate"),
        });
        let (delay, variation) = match &link.orbit {
            Orbit::Constant {
                one_way_delay,
                jitter,
            } => {
                let jitter = millis(jitter.get());
                let variation = match jitter {
                    0 if link.changes.is_empty() => Variation::None,
                    0 => Variation::Planned(preset),
                    _ => Variation::Jitter(jitter),
                };
                (millis(one_way_delay.get()), variation)
            }
            Orbit::Starlink(epochs) => {
                let [low, high] =
                    [epochs.minimum_delay, epochs.maximum_delay].map(|delay| millis(delay.get()));
                let held = epochs.maximum_hold.get() > Duration::ZERO;
                let variation = if held {
                    Variation::Handovers
                } else {
                    Variation::Delays(low, high)
                };
                (high, variation)
            }
            _ => panic!("{preset} has a delay that the table knows"),
        };
        let mut scenario = Self {
            loss: loss(&link.errors),
            variation,
            ..Self::geo(name, rates, delay)
        };
        scenario.queue = scenario.queue_of(&link.queues);
        scenario
    }

    fn queue_of(&self, queues: &Queues) -> Queue {
        // Where each direction has its own, both have as much of their own BDP.
        let (limit, packets) = match queues {
            Queues::One(queue) => (queue.limit, queue.packets),
            Queues::Classes(classes) => (classes[0].limit, classes[0].packets),
        };
        match (limit, packets) {
            (Some(limit), _) => Queue::Bdp(limit.as_u64() as f64 / self.bdp(0) as f64),
            (_, Some(packets)) => Queue::Packets(packets as usize),
            (None, None) => Queue::Bdp(1.0),
        }
    }

    /// Whether two seeds give two different links.
    pub(crate) fn is_random(&self) -> bool {
        let varies = matches!(
            self.variation,
            Variation::Jitter(_) | Variation::Handovers | Variation::Delays(..)
        );
        let loses = |name| {
            read(name)
                .changes
                .iter()
                .any(|change| change.loss.is_some())
        };
        let planned = matches!(self.variation, Variation::Planned(name) if loses(name));
        varies || planned || !matches!(self.loss, Loss::None)
    }

    pub(crate) fn rtt(&self) -> Duration {
        self.delay * 2
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
        };
        let (schedule, outages) = self.trace(direction, seed);
        PipeConfig {
            rate,
            one_way_delay: self.delay,
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
            Variation::None | Variation::Planned(_) => {}
            Variation::Jitter(most) => {
                for at in every(Duration::from_millis(20)) {
                    changes.push((
                        at,
                        delay(millis(self.delay) as f64 + draw(0.0, most as f64)),
                    ));
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
        let Variation::Planned(name) = self.variation else {
            return None;
        };
        let changes = read(name).changes;
        Some(Plan {
            schedules: [Direction::Forward, Direction::Return].map(|way| schedule(&changes, way)),
            outages: outages(&changes),
        })
    }
}

/// The scenario that is built in by this name.
fn read(name: &str) -> bentpipe_link::Scenario {
    let text = preset(name).unwrap_or_else(|| panic!("no link is called {name}"));
    toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a delay")
}

fn loss(errors: &Errors) -> Loss {
    match errors {
        Errors::Iid { rate, .. } => Loss::Iid(rate.as_f64()),
        Errors::GilbertElliott {
            rate, mean_burst, ..
        } => Loss::Bursts(rate.as_f64(), *mean_burst),
        Errors::Periodic { every, .. } => Loss::Periodic(*every),
        // Without a link budget noise is no matter.
        _ => Loss::None,
    }
}

/// Whether all is lost from here on.
fn is_outage(change: &PlannedChange) -> bool {
    change.loss.is_some_and(|loss| loss.as_f64() >= 1.0)
}

/// Rates and losses of one direction, without outages.
fn schedule(changes: &[PlannedChange], way: Direction) -> Schedule {
    let own = changes
        .iter()
        .filter(|change| change.direction == way || change.direction == Direction::Both);
    let steps = own.flat_map(|change| {
        let rate = change.bit_rate.map(Change::Rate);
        let loss = change.loss.filter(|_| !is_outage(change));
        let loss = loss.map(|loss| match loss.as_f64() {
            0.0 => Change::Loss(LossModel::None),
            _ => Change::Loss(LossModel::Iid(loss)),
        });
        let at = change.at.get();
        rate.into_iter().chain(loss).map(move |what| (at, what))
    });
    Schedule::new(steps)
}

/// The times at which everything is lost: the physical limit has to know them.
fn outages(changes: &[PlannedChange]) -> Vec<Outage> {
    let begins = changes.iter().filter(|change| is_outage(change));
    let outage = |begin: &PlannedChange| {
        let start = begin.at.get();
        let later = |change: &&PlannedChange| change.at.get() > start && change.loss.is_some();
        let end = changes.iter().find(later).expect("an outage ends").at.get();
        Outage {
            start,
            length: end - start,
        }
    };
    begins.map(outage).collect()
}

/// The instants 0, `period`, 2 `period`, …
fn every(period: Duration) -> impl Iterator<Item = Duration> {
    (0u32..)
        .map(move |count| period * count)
        .take_while(|at| *at < TRACE)
}
