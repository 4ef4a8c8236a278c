//! A new process takes up a path where the last one left it; what it knows has been on disk meanwhile.

use bentpipe_tunnel::engine::Profile;
use std::time::Duration;

use bentpipe_congestion::paths::{PathKey, Paths};
use bentpipe_congestion::{Kind, Saved};
use bentpipe_link::{LinkConfig, Scenario};
use bentpipe_testbed::world::{World, preset};
use bentpipe_units::BitRate;

/// Nearly three BDP.
const BYTES: u64 = 50_000_000;

const SOON: Duration = Duration::from_secs(60);
const YEAR_2026: Duration = Duration::from_secs(1_790_000_000);

/// Round trips that a new process may take longer than one that has been there all the time: it sends at nine tenths of
/// the rate until that has been seen to arrive.
const LATER: f64 = 0.25;

/// 250 Mbit/s from the gateway to the terminal, an RTT of 600 ms.
fn down() -> LinkConfig {
    let rate = BitRate::megabits_per_second;
    let link = Scenario::constant("far", Duration::from_millis(300), rate(250), rate(3));
    link.link_config().expect("a link")
}

/// The same the other way.
fn up() -> LinkConfig {
    let LinkConfig {
        forward_link,
        return_link,
    } = down();
    LinkConfig {
        forward_link: return_link,
        return_link: forward_link,
    }
}

fn world(link: &LinkConfig) -> World {
    let mut world = World::with_controller(link, 1, Profile::Geo, Kind::Satellite);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

/// What a new process knows an hour after the old one wrote `saved` down.
fn through_the_file(saved: &Saved) -> Saved {
    let key = PathKey::new("peer", "192.0.2.77".parse().expect("an address"));
    let mut paths = Paths::default();
    assert!(paths.learn(key.clone(), saved, YEAR_2026));
    let paths = Paths::decode(&paths.encode()).expect("our own file");
    let later = YEAR_2026 + Duration::from_secs(3600);
    let known = paths.choose(&key, later).expect("an hour is not old");
    assert_eq!(known.rate, saved.rate);
    known
}

/// Fresh, used before, and of a new process that knows the path.
fn assert_back_at_rate([cold, warm, resumed]: [Duration; 3]) {
    println!("cold {cold:?}, warm {warm:?}, resumed {resumed:?}");
    let rtt = 0.6;
    let later = resumed.as_secs_f64() - warm.as_secs_f64();
    assert!(later <= LATER * rtt, "{later} s later than warm");
    assert!(
        resumed.as_secs_f64() + rtt / 10.0 <= cold.as_secs_f64(),
        "no faster"
    );
}

#[test]
fn a_restarted_server_is_back_at_rate() {
    let mut world = world(&down());
    let cold = world.timed_download(BYTES);
    world.run_for(Duration::from_secs(5));
    let warm = world.timed_download(BYTES);
    let (_, connection) = world.server.connections().next().expect("the tunnel");
    let saved = connection.saved(world.now).expect("it was busy");

    let terminal = world.terminals[0].address;
    world.behaviour.known_paths = [(terminal, through_the_file(&saved))].into();
    world.restart_server();
    world.run_until(SOON, "the end of the old tunnel", |world| !world.is_ready());
    world.connect(0);
    world.run_until(SOON, "the new tunnel", World::is_ready);
    assert_back_at_rate([cold, warm, world.timed_download(BYTES)]);
}

#[test]
fn a_restarted_client_is_back_at_rate() {
    let mut old = world(&up());
    let cold = old.timed_upload(BYTES);
    old.run_for(Duration::from_secs(5));
    let warm = old.timed_upload(BYTES);
    let tunnel = old.terminals[0].engine.peek(old.tunnel());
    let saved = tunnel.and_then(|tunnel| tunnel.saved(old.now));
    let known = through_the_file(&saved.expect("it was busy"));

    let mut new = World::with_controller(&up(), 2, Profile::Geo, Kind::Satellite);
    let (now, tunnel) = (new.now, new.terminals[0].tunnels[0]);
    let connection = new.terminals[0].engine.connection(tunnel);
    assert!(connection.expect("it was begun").resume(now, known));
    new.run_until(SOON, "the handshake", World::is_ready);
    assert_back_at_rate([cold, warm, new.timed_upload(BYTES)]);
}

/// An end that has only received until now is not held to the little that it said meanwhile.
#[test]
fn an_upload_after_a_download_has_the_whole_link() {
    let preset = preset("geo").expect("a preset");
    let mut world = world(&preset.link_config().expect("a link"));
    world.timed_download(8_000_000);
    world.run_for(Duration::from_secs(5));
    let took = world.timed_upload(8_000_000);
    println!("{took:?}");
    assert!(took <= Duration::from_secs(9), "{took:?}");
}
