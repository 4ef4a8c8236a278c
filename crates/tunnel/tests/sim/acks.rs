//! What acknowledgements cost the return link, and that they never stay away.

use bentpipe_tunnel::engine::{Link, Profile, Wishes};
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::{LinkConfig, LossModel, Orbit, QueueLimit, Standard};
use bentpipe_testbed::world::{Setup, World, preset};
use bentpipe_units::{BitRate, ByteCount, Ratio};

const SOON: Duration = Duration::from_secs(60);

/// 50 Mbit/s forward and `back` kbit/s return, with queues of one BDP.
fn link(back: u64, rtt: u64, loss: f64) -> LinkConfig {
    let mut scenario = preset("geo").expect("a preset");
    let cbr = |kbit| Standard::Cbr {
        bit_rate: BitRate::kilobits_per_second(kbit),
    };
    (scenario.forward_link, scenario.return_link) = (cbr(50_000), cbr(back));
    scenario.orbit = Orbit::constant(Duration::from_micros(rtt * 500));
    let mut link = scenario.link_config().expect("a link");
    if loss > 0.0 {
        let loss = LossModel::Iid(Ratio::new(loss).expect("a ratio"));
        (link.forward_link.loss, link.return_link.loss) = (loss, loss);
    }
    link
}

fn ready(setup: &Setup<'_>) -> World {
    let mut world = World::with(setup);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

fn wishes(controller: Kind) -> Wishes {
    Wishes {
        controller,
        ..Wishes::default()
    }
}

/// The time that a download of `bytes` takes, the return link's load meanwhile in bit/s, and the packets that the server
/// sent for each of the client's.
fn download(world: &mut World, bytes: u64) -> (f64, f64, f64) {
    let [forward, back] = world.sent;
    let time = world.timed_download(bytes).as_secs_f64();
    let packets = (world.sent[1].packets - back.packets) as f64;
    let load = (world.sent[1].bytes - back.bytes) as f64 * 8.0 / time;
    let ratio = (world.sent[0].packets - forward.packets) as f64 / packets;
    (time, load, ratio)
}

/// 50 Mbit/s down need no more than 60 kbit/s up, so that 0.5 Mbit/s of return link are as good as 10. With losses single
/// runs differ by a round trip, whatever the return link.
#[test]
fn a_thin_return_link_carries_a_fast_download() {
    for (controller, loss, profile) in [
        (Kind::Satellite, 0.0, Profile::Geo),
        (Kind::Satellite, 0.01, Profile::Geo),
        (Kind::Satellite, 0.0, Profile::Auto),
        (Kind::Cubic, 0.0, Profile::Geo),
    ] {
        let seeds = if loss > 0.0 { 1..=5 } else { 1..=1 };
        let median = |back: u64| {
            let runs = seeds.clone().map(|seed| {
                let link = link(back, 650, loss);
                let mut world = ready(&Setup {
                    profile,
                    wishes: wishes(controller),
                    ..Setup::new(&link, seed)
                });
                let (time, load, _) = download(&mut world, 100_000_000);
                assert!(load <= 60_000.0, "{controller}, loss {loss}: {load} bit/s");
                (time, load)
            });
            let mut runs: Vec<_> = runs.collect();
            runs.sort_by(|a, b| a.0.total_cmp(&b.0));
            runs[runs.len() / 2]
        };
        let [wide, thin] = [10_000, 500].map(median);
        println!(
            "100 MB, 50 Mbit/s, 650 ms, loss {loss}, {controller}, {profile}: {:.2} s with 10 Mbit/s of return link, {:.2} s \
             with 0.5, of which {:.1} kbit/s were used",
            wide.0,
            thin.0,
            thin.1 / 1e3
        );
        assert!(
            thin.0 <= wide.0 * 1.02,
            "{controller}, loss {loss}: {wide:?} {thin:?}"
        );
    }
}

/// For experiments: exactly as many packets per ACK as configured, in either direction, whatever the rate. A handful of
/// packets are about other things: credit, and the beginning and the end.
#[test]
fn the_ratio_of_packets_to_acks_can_be_fixed() {
    for packets in [1, 2, 10, 50, 200] {
        let link = link(10_000, 650, 0.0);
        let mut world = ready(&Setup {
            known: Some(Link {
                profile: Profile::Geo,
                forward_ack_packets: Some(packets),
                ..Link::default()
            }),
            own: Some(Wishes {
                ack_packets: Some(packets),
                ..wishes(Kind::Cubic)
            }),
            ..Setup::new(&link, 1)
        });
        world.timed_download(10_000_000);
        let (time, load, ratio) = download(&mut world, 50_000_000);
        let [forward, back] = world.sent;
        world.timed_upload(10_000_000);
        let sent = world.sent[1].packets - back.packets;
        let up = sent as f64 / (world.sent[0].packets - forward.packets) as f64;
        println!(
            "{packets} packets per ACK: {ratio:.1} down ({time:.2} s, {:.0} kbit/s), {up:.1} up",
            load / 1e3
        );
        let wished = f64::from(packets);
        // FLOW_CREDIT may leave between two ACKs.
        assert!(
            (0.85..=1.05).contains(&(ratio / wished)),
            "{packets}: {ratio} down"
        );
        assert!((0.75..=1.05).contains(&(up / wished)), "{packets}: {up} up");
    }
}

/// A client that uploads in bulk, held back by its own limit, still answers what it receives.
#[test]
fn an_upload_does_not_hold_back_acks() {
    for profile in [Profile::Geo, Profile::Auto] {
        let link = link(1000, 650, 0.0);
        let world = |limit: u64| {
            ready(&Setup {
                profile,
                wishes: wishes(Kind::Satellite),
                own: Some(Wishes {
                    max_rate: Some(BitRate::kilobits_per_second(limit)),
                    ..wishes(Kind::Satellite)
                }),
                ..Setup::new(&link, 1)
            })
        };
        for limit in [50, 900] {
            let (alone, ..) = download(&mut world(limit), 50_000_000);
            let mut world = world(limit);
            let now = world.now;
            world.terminals[0].upload(now, 100_000_000);
            let (beside, load, ratio) = download(&mut world, 50_000_000);
            println!(
                "{profile}: 50 MB down in {alone:.2} s alone, in {beside:.2} s beside an upload at {limit} kbit/s: {:.0} kbit/s, \
                 {ratio:.0} packets for each of the client's",
                load / 1e3
            );
            assert!(
                beside <= alone * 1.05,
                "{profile}, {limit} kbit/s: {beside} and {alone}"
            );
        }
    }
}

/// Round trip in milliseconds and `mbit` each way, with queues of one BDP, of 25 packets at least.
fn near(rtt: u64, mbit: u64) -> LinkConfig {
    let mut scenario = preset("geo").expect("a preset");
    let cbr = || Standard::Cbr {
        bit_rate: BitRate::megabits_per_second(mbit),
    };
    (scenario.forward_link, scenario.return_link) = (cbr(), cbr());
    scenario.orbit = Orbit::constant(Duration::from_micros(rtt * 500));
    let mut link = scenario.link_config().expect("a link");
    let bytes = (mbit * rtt * 125).max(25 * 1500);
    let queue = QueueLimit::Bytes(ByteCount::new(bytes));
    (link.forward_link.queue, link.return_link.queue) = (queue, queue);
    link
}

/// Rates in Mbit/s at which an endless download and an endless upload are delivered, by a tunnel that knows nothing of the link.
fn rates(link: &LinkConfig, controller: Kind, [down, up]: [bool; 2]) -> [f64; 2] {
    const SPAN: Duration = Duration::from_secs(10);
    let mut world = ready(&Setup {
        profile: Profile::Auto,
        wishes: wishes(controller),
        ..Setup::new(link, 1)
    });
    let now = world.now;
    if up {
        world.terminals[0].upload(now, 1 << 39);
    }
    if down {
        world.download(1 << 39, None);
    }
    world.run_for(SPAN / 2);
    let delivered = |world: &World| {
        let pipes = [&world.link.forward_link, &world.link.return_link];
        pipes.map(|pipe| pipe.stats().delivered_bytes.as_u64())
    };
    let before = delivered(&world);
    world.run_for(SPAN);
    let after = delivered(&world);
    [0, 1].map(|side| (after[side] - before[side]) as f64 * 8.0 / SPAN.as_secs_f64() / 1e6)
}

/// On a short path an upload and a download at once are each as fast as alone: the packets of bulk data have no room for ACKs.
#[test]
fn both_directions_of_a_short_path_are_filled_at_once() {
    let mut short = Vec::new();
    for rtt in [1, 2, 5, 8, 10, 20, 40, 80] {
        for mbit in [20, 100] {
            let rates = rates(&near(rtt, mbit), Kind::Satellite, [true; 2]);
            let share = rates.map(|rate| rate / mbit as f64);
            let told = format!(
                "{rtt} ms, {mbit} Mbit/s: {:.2} down, {:.2} up",
                share[0], share[1]
            );
            println!("{told}");
            short.extend((share[0].min(share[1]) < 0.9).then_some(told));
        }
    }
    assert!(short.is_empty(), "{short:?}");
}

/// No controller stays at a fraction of a short path's rate, in either direction.
#[test]
fn every_controller_fills_a_short_path_either_way() {
    for controller in [Kind::Satellite, Kind::Cubic, Kind::NewReno, Kind::Bbr3] {
        for rtt in [2, 10] {
            let link = near(rtt, 100);
            let [down, _] = rates(&link, controller, [true, false]);
            let [_, up] = rates(&link, controller, [false, true]);
            println!("{controller}, {rtt} ms: {down:.1} Mbit/s down, {up:.1} up");
            assert!(
                down.min(up) >= 85.0,
                "{controller}, {rtt} ms: {down} down, {up} up"
            );
        }
    }
}
