//! A tunnel that nothing was sent through yet: the first transfer comes close to the limit all the same, because a train
//! of packets has shown what the path carries.

use bentpipe_tunnel::engine::Profile;
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::{LinkConfig, Scenario};
use bentpipe_testbed::world::World;
use bentpipe_units::BitRate;

const SOON: Duration = Duration::from_secs(60);
/// IP packets of the trains at the packet size that every path carries, and what else precedes the first request, three times.
const FORWARD_TRAIN: u64 = 24 * 1228;
const RETURN_TRAIN: u64 = 12 * 1228;
const HANDSHAKE: u64 = 18_000;

/// 250/3 Mbit/s, an RTT of 600 ms.
fn link() -> LinkConfig {
    let rate = BitRate::megabits_per_second;
    let link = Scenario::constant("far", Duration::from_millis(300), rate(250), rate(3));
    link.link_config().expect("a link")
}

fn world(link: &LinkConfig, kind: Kind) -> World {
    let mut world = World::with_controller(link, 1, Profile::Geo, kind);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

fn swapped(link: LinkConfig) -> LinkConfig {
    LinkConfig {
        forward_link: link.return_link,
        return_link: link.forward_link,
    }
}

/// A hundred megabytes the moment the tunnel is ready: one round trip and 3.4 s at the link's rate, of which a quarter of
/// a round trip is not used.
#[test]
fn the_first_download_starts_near_the_rate() {
    let mut world = world(&link(), Kind::Satellite);
    let took = world.timed_download(100_000_000);
    println!("{took:?}");
    assert!(took <= Duration::from_millis(4250), "{took:?}");
    let stats = world.link.forward_link.stats();
    assert_eq!(stats.dropped_queue, 0);
    // A twelfth of a round trip at most waited in the queue.
    assert!(
        stats.queue_bytes_max.as_u64() <= 18_750_000 / 12,
        "{stats:?}"
    );
}

/// The same the other way: there the server's first credit, given in HELLO, lasts for the first round trip.
#[test]
fn the_first_upload_starts_near_the_rate() {
    let mut world = world(&swapped(link()), Kind::Satellite);
    let took = world.timed_upload(100_000_000);
    println!("{took:?}");
    assert!(took <= Duration::from_millis(4750), "{took:?}");
}

/// On a return link of half a megabit per second the train is over when the first request leaves.
#[test]
fn a_train_costs_a_thin_link_nothing() {
    let mut thin = link();
    thin.return_link.rate = BitRate::kilobits_per_second(500);
    let first = |kind| {
        let mut world = world(&thin, kind);
        let ready = world.at();
        (ready, world.timed_download(1000), world.sent)
    };
    let (plain, with_train) = (first(Kind::Cubic), first(Kind::Satellite));
    println!("{plain:?} {with_train:?}");
    let later = |a: Duration, b: Duration| a.saturating_sub(b);
    assert!(later(with_train.0, plain.0) <= Duration::from_millis(5));
    assert!(later(with_train.1, plain.1) <= Duration::from_millis(5));
    // Controllers that make no use of it do not send one.
    assert!(plain.2[0].bytes < HANDSHAKE && plain.2[1].bytes < HANDSHAKE);
    for (sent, train) in with_train.2.iter().zip([FORWARD_TRAIN, RETURN_TRAIN]) {
        assert!((train..train + HANDSHAKE).contains(&sent.bytes), "{sent:?}");
    }
}
