//! The TCP model against what is known of TCP: it fills a link, shares it, and suffers from losses as formulas say.

use std::time::{Duration, Instant};

use bentpipe_link::sim::next_wakeup;
use bentpipe_link::{Law, LossModel, Marking, Pipe, PipeConfig, QueueLimit, Schedule};
use bentpipe_testbed::tcp::{ACK, Ack, Algorithm, Config, Receiver, SEGMENT, Segment, Sender};
use bentpipe_units::{BitRate, ByteCount, Ratio, Seed};

const SECOND: Duration = Duration::from_secs(1);
const CUBIC: Algorithm = Algorithm::Cubic { hystart: true };

/// A link without losses and with a large queue.
fn clean(rate: BitRate, one_way_delay: Duration) -> PipeConfig {
    PipeConfig {
        rate,
        one_way_delay,
        queue: QueueLimit::Packets(usize::MAX),
        loss: LossModel::None,
        outages: Vec::new(),
        schedule: Schedule::none(),
        policer: None,
    }
}

/// The origin of a test's virtual time; nothing reads the clock after it.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant can be had in no other way"
)]
fn origin() -> Instant {
    Instant::now()
}

/// Senders behind one bottleneck, their receivers beyond it.
struct Bottleneck {
    now: Instant,
    data: Pipe<(usize, Segment)>,
    acks: Pipe<(usize, Ack)>,
    flows: Vec<(Sender, Receiver)>,
    /// (time, window) of the first sender whenever it has changed.
    windows: Vec<(Duration, f64)>,
}

impl Bottleneck {
    fn new(data: &PipeConfig, configs: &[Config]) -> Self {
        let (start, seed) = (origin(), Seed::new(1));
        let acks = clean(BitRate::megabits_per_second(100), data.one_way_delay);
        Self {
            now: start,
            data: Pipe::new(data, seed, start),
            acks: Pipe::new(&acks, seed, start),
            flows: configs
                .iter()
                .map(|config| (Sender::new(*config), Receiver::default()))
                .collect(),
            windows: Vec::new(),
        }
    }

    fn run(&mut self, span: Duration) {
        let (start, deadline) = (self.now, self.now + span);
        while self.now < deadline {
            let now = self.now;
            while let Some((_, (flow, segment))) = self.data.poll_output(now) {
                self.flows[flow].1.handle_segment(now, segment);
            }
            while let Some((_, (flow, ack))) = self.acks.poll_output(now) {
                self.flows[flow].0.handle_ack(now, &ack);
            }
            for (index, (sender, receiver)) in self.flows.iter_mut().enumerate() {
                sender.handle_timeout(now);
                while let Some(segment) = sender.poll_transmit(now) {
                    self.data.handle_packet(now, SEGMENT, (index, segment));
                }
                while let Some(ack) = receiver.poll_transmit(now) {
                    self.acks.handle_packet(now, ACK, (index, ack));
                }
            }
            self.windows.push((now - start, self.flows[0].0.window()));
            let flows = self
                .flows
                .iter()
                .flat_map(|(sender, receiver)| [sender.poll_timeout(), receiver.poll_timeout()]);
            let pipes = [self.data.poll_timeout(), self.acks.poll_timeout()];
            let next = next_wakeup(flows.chain(pipes)).unwrap_or(deadline);
            assert!(next > now, "a timer is due and nothing happens");
            self.now = next.min(deadline);
        }
    }

    /// IP-layer bit/s that each flow gets over `span`.
    fn rates(&mut self, span: Duration) -> Vec<f64> {
        let count = |flows: &[(Sender, Receiver)]| -> Vec<_> {
            flows
                .iter()
                .map(|(_, receiver)| receiver.received())
                .collect()
        };
        let before = count(&self.flows);
        self.run(span);
        let after = count(&self.flows);
        let segments = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before);
        segments
            .map(|count| (count * SEGMENT.as_u64() * 8) as f64 / span.as_secs_f64())
            .collect()
    }
}

/// A link with a queue of `bdp` times rate × RTT.
fn link(megabits: u64, rtt: Duration, bdp: f64) -> PipeConfig {
    let rate = BitRate::megabits_per_second(megabits);
    let bytes = rate.bytes_in(rtt).as_u64() as f64 * bdp;
    PipeConfig {
        queue: QueueLimit::Bytes(ByteCount::new(bytes as u64)),
        ..clean(rate, rtt / 2)
    }
}

fn lossy(megabits: u64, rtt: Duration, loss: f64) -> PipeConfig {
    PipeConfig {
        loss: LossModel::Iid(Ratio::new(loss).unwrap()),
        ..link(megabits, rtt, 1.0)
    }
}

#[test]
fn every_algorithm_fills_a_link_alone() {
    for algorithm in [
        CUBIC,
        Algorithm::Cubic { hystart: false },
        Algorithm::NewReno,
    ] {
        for (megabits, rtt, warm_up) in [(10, 50, 10), (20, 600, 120)] {
            let link = link(megabits, Duration::from_millis(rtt), 1.0);
            let mut world = Bottleneck::new(&link, &[Config::new(algorithm)]);
            world.run(SECOND * warm_up);
            let rate = world.rates(120 * SECOND)[0];
            let share = rate / (megabits * 1_000_000) as f64;
            assert!(
                (0.95..=1.0001).contains(&share),
                "{algorithm:?}, {rtt} ms: {share}"
            );
            let (sender, _) = &world.flows[0];
            assert_eq!(sender.stats().timeouts, 0, "{algorithm:?}, {rtt} ms");
        }
    }
}

/// Nothing is sent twice that arrived: every loss of the queue costs one retransmission.
#[test]
fn recovery_sends_again_what_was_lost_and_nothing_else() {
    let hystart_off = Config::new(Algorithm::Cubic { hystart: false });
    for config in [hystart_off, Config::new(Algorithm::NewReno)] {
        let mut world = Bottleneck::new(&link(20, SECOND / 2, 0.5), &[config]);
        world.run(60 * SECOND);
        let (sender, _) = &world.flows[0];
        let dropped = world.data.stats().dropped_queue;
        assert!(dropped > 100, "slow start overshoots: {dropped}");
        let again = sender.stats().retransmitted;
        assert!(
            again <= dropped && again + 200 >= dropped,
            "{again} of {dropped}"
        );
        assert_eq!(sender.stats().timeouts, 0);
    }
}

#[test]
fn two_cubics_share_the_link() {
    let configs = [Config::new(CUBIC), Config::new(CUBIC)];
    let mut world = Bottleneck::new(&link(20, SECOND / 10, 1.0), &configs);
    world.run(60 * SECOND);
    let rates = world.rates(240 * SECOND);
    let share = rates[0] / (rates[0] + rates[1]);
    println!("two CUBICs: {rates:?}");
    assert!((0.4..=0.6).contains(&share), "{rates:?}");
    assert!(rates[0] + rates[1] > 0.95 * 20e6, "{rates:?}");
}

/// One segment a round trip up, half the window down.
#[test]
fn reno_draws_its_sawtooth() {
    let rtt = SECOND / 10;
    let mut world = Bottleneck::new(&link(10, rtt, 1.0), &[Config::new(Algorithm::NewReno)]);
    world.run(60 * SECOND);
    world.windows.clear();
    world.run(120 * SECOND);
    let windows = || world.windows.iter().map(|(_, window)| *window);
    let (low, high) = (
        windows().fold(f64::INFINITY, f64::min),
        windows().fold(0.0, f64::max),
    );
    // Full pipe and full queue: twice the BDP of 83 segments.
    assert!((155.0..175.0).contains(&high), "{high}");
    assert!((high / low - 2.0).abs() < 0.1, "{low} {high}");
    let drops: Vec<_> = world
        .windows
        .windows(2)
        .filter(|pair| pair[1].1 < 0.6 * pair[0].1)
        .map(|pair| pair[1].0)
        .collect();
    // Half of 166 segments at one per RTT, which is between 0.1 and 0.2 s with its queue; delayed ACKs do not slow it,
    // for growth counts segments.
    let period = (drops[drops.len() - 1] - drops[0]) / (drops.len() as u32 - 1);
    assert!(
        (SECOND * 9..SECOND * 16).contains(&period),
        "{period:?}, {drops:?}"
    );
}

/// RFC 9438 §5.1 and RFC 3649's W = 1.22/√p for NewReno (here with an ACK for every second segment, which does not
/// slow a sender that counts segments).
#[test]
fn losses_cost_what_the_formulas_say() {
    for (rtt, loss) in [(0.5, 0.01), (0.05, 0.01), (0.5, 0.001)] {
        let link = lossy(1000, Duration::from_secs_f64(rtt), loss);
        let rate = |algorithm| {
            let mut world = Bottleneck::new(&link, &[Config::new(algorithm)]);
            world.run(60 * SECOND);
            world.rates(600 * SECOND)[0]
        };
        let of_window = |window: f64| window * SEGMENT.as_u64() as f64 * 8.0 / rtt;
        let reno = 1.22 / loss.sqrt();
        let cubic = 1.054 * (rtt / loss).powf(0.75);
        for (algorithm, window) in [(Algorithm::NewReno, reno), (CUBIC, cubic.max(reno))] {
            let ratio = rate(algorithm) / of_window(window);
            println!("{algorithm:?} at {rtt} s, {loss}: {ratio:.2} of the formula");
            assert!(
                (0.5..2.0).contains(&ratio),
                "{algorithm:?} at {rtt} s, {loss}: {ratio} of the formula"
            );
        }
    }
}

#[test]
fn marks_reduce_the_window_without_losses() {
    let config = Config {
        ecn: true,
        ..Config::new(CUBIC)
    };
    let mut world = Bottleneck::new(&link(20, SECOND / 20, 10.0), &[config]);
    world.data.set_marking(Some(Marking {
        law: Law::Threshold(Duration::from_millis(20)),
        mark: |(_, segment)| {
            segment.marked = true;
            segment.ecn
        },
    }));
    world.run(10 * SECOND);
    let share = world.rates(60 * SECOND)[0] / 20e6;
    assert!(share > 0.9, "{share}");
    let stats = world.data.stats();
    assert_eq!(stats.dropped_queue, 0);
    assert!(stats.marked > 10, "{stats:?}");
    assert_eq!(world.flows[0].0.stats().retransmitted, 0);
}

#[test]
fn an_outage_is_survived_and_a_limit_kept() {
    let config = Config {
        limit: Some(20_000),
        ..Config::new(CUBIC)
    };
    let mut world = Bottleneck::new(&link(10, SECOND / 10, 1.0), &[config]);
    world.run(5 * SECOND);
    world.data.set_outage(world.now, true);
    world.run(10 * SECOND);
    world.data.set_outage(world.now, false);
    let before = world.flows[0].1.received();
    world.run(15 * SECOND);
    assert!(world.flows[0].1.received() > before);
    assert!(world.flows[0].0.stats().timeouts > 0);
    world.run(60 * SECOND);
    assert!(world.flows[0].0.is_done());
    assert_eq!(world.flows[0].1.received(), 20_000);
}
