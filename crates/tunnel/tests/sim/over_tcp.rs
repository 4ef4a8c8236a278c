//! Tunnels inside a TCP connection that loses, and inside one that an operator's PEP splits: what a request beside a download
//! waits for.

use std::time::Duration;

use bentpipe_testbed::world::{Setup, TcpPath, World, preset};
use bentpipe_units::BitRate;

use crate::wire::GEO;

const SOON: Duration = Duration::from_secs(60);

/// A request's size.
const REQUEST: u64 = 1000;

/// Requests beside one download.
const REQUESTS: usize = 40;

/// What a machine may add to a request.
const SLACK: Duration = Duration::from_millis(20);

/// A tunnel that has never seen UDP.
fn world(path: TcpPath, seed: u64) -> World {
    let link = preset("geo").expect("a preset");
    let link = link.link_config().expect("a link");
    let mut world = World::with(&Setup::new(&link, seed));
    world.change_wire(0, Some(path));
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

fn rtt(path: TcpPath) -> Duration {
    2 * path.one_way_delay
}

/// What was seen of a download that had gone on for ten seconds.
struct Seen {
    /// Times of requests beside it, sorted.
    requests: Vec<Duration>,
    /// Payload in bit/s.
    rate: f64,
    /// Share of the time in which it waited for a lost segment.
    blocked: f64,
}

impl Seen {
    fn new(world: &mut World) -> Self {
        let bulk = world.download(1 << 39, None);
        world.run_for(Duration::from_secs(10));
        let look = |world: &World| (world.now, world.reader(bulk).got, world.blocked(0));
        let before = look(world);
        let mut requests: Vec<_> = (0..REQUESTS)
            .map(|_| {
                world.run_for(Duration::from_millis(1700));
                world.timed_download(REQUEST)
            })
            .collect();
        requests.sort_unstable();
        let after = look(world);
        let seconds = (after.0 - before.0).as_secs_f64();
        Self {
            requests,
            rate: (after.1 - before.1) as f64 * 8.0 / seconds,
            blocked: (after.2 - before.2).as_secs_f64() / seconds,
        }
    }

    fn median(&self) -> Duration {
        self.requests[REQUESTS / 2]
    }

    fn longest(&self) -> Duration {
        self.requests[REQUESTS - 1]
    }

    fn within(&self, limit: Duration) -> usize {
        self.requests.partition_point(|time| *time <= limit)
    }
}

/// The PEP takes a megabyte at once, so that TCP shows nothing of the link. `bbr3` keeps that buffer short, and a request takes 1.3
/// round trips at most; but for those that meet a probe, which sends a quarter more for two round trips.
#[test]
fn a_request_passes_a_download_behind_a_pep() {
    let rtt = rtt(GEO);
    for seed in 1..=3 {
        let mut world = world(GEO, seed);
        let alone = world.timed_download(REQUEST);
        assert!(alone <= rtt + rtt / 20 + SLACK, "alone {alone:?}");
        let seen = Seen::new(&mut world);
        let short = seen.within(rtt * 13 / 10 + SLACK);
        let (median, longest) = (seen.median(), seen.longest());
        let megabits = seen.rate / 1e6;
        println!(
            "seed {seed}: {short} of {REQUESTS} in 1.3 RTT, median {median:?}, longest {longest:?}; {megabits:.2} Mbit/s"
        );
        assert!(short >= REQUESTS * 3 / 4, "{:?}", seen.requests);
        assert!(median <= rtt * 6 / 5 + SLACK, "{:?}", seen.requests);
        assert!(longest <= rtt * 7 / 4 + SLACK, "{:?}", seen.requests);
        assert!(megabits >= 9.1, "{megabits} Mbit/s");
    }
}

/// A loss holds up what is behind it for a round trip, requests with it: for 1 − e^(−pN) of the time, if N segments are under
/// way of which a share p is lost. What is lost again takes another round trip, and two that wait may meet two losses.
#[test]
fn each_loss_holds_up_what_is_behind_it() {
    for (kilobits, loss) in [
        (512, 0.005),
        (10_000, 0.0001),
        (10_000, 0.001),
        (10_000, 0.005),
    ] {
        let rate = BitRate::bits_per_second(kilobits * 1000);
        let path = TcpPath {
            rate,
            one_way_delay: Duration::from_millis(300),
            loss,
            buffer: rate.bytes_in(Duration::from_millis(600)),
        };
        let rtt = rtt(path);
        let seen = Seen::new(&mut world(path, 1));
        let segments = rate.bytes_in(rtt).as_u64() as f64 / 1476.0;
        let computed = 1.0 - (-loss * segments).exp();
        let (blocked, median, longest) = (seen.blocked, seen.median(), seen.longest());
        let share = seen.rate / 1e3 / kilobits as f64;
        println!(
            "{kilobits} kbit/s, {loss} lost: blocked {blocked:.3}, computed {computed:.3}; requests median {median:?}, \
             longest {longest:?}; {share:.3} of the rate"
        );
        assert!((blocked - computed).abs() < 0.1, "{blocked}, {computed}");
        let limit = rtt * 3 / 2 + SLACK + rtt.mul_f64(computed);
        assert!(median <= limit, "{:?}", seen.requests);
        assert!(longest <= 4 * rtt + SLACK, "{:?}", seen.requests);
        assert!(share >= 0.75, "{share} of the rate");
    }
}
