//! Short flows and control frames beside bulk: they pass what the bulk has buffered.

use std::time::Duration;

use bentpipe_testbed::world::{World, preset};

use crate::outage::set_outage;

const SOON: Duration = Duration::from_secs(60);

/// One RTT, a full queue of the forward link, and the request's own time on the link.
const PASSED: Duration = Duration::from_millis(500 + 500 + 50);

fn world() -> World {
    let link = preset("geo")
        .expect("a preset")
        .link_config()
        .expect("a link");
    let mut world = World::new(&link, 1);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

#[test]
fn short_flows_pass_bulk() {
    let mut world = world();
    let bulk = world.download(100_000_000, None);
    let mut times = Vec::new();
    for _ in 0..10 {
        world.run_for(Duration::from_secs(4));
        times.push(world.timed_download(1000));
    }
    assert!(world.reader(bulk).end.is_none(), "the bulk is over");
    println!("1 kB beside bulk: {times:?}");
    assert!(times.iter().all(|time| *time <= PASSED), "{times:?}");
}

/// What was lost is sent again; control frames and short flows pass that, too.
#[test]
fn short_flows_pass_what_an_outage_left() {
    let mut world = world();
    let bulk = world.download(100_000_000, None);
    world.run_for(Duration::from_secs(6));
    set_outage(&mut world, true);
    world.run_for(Duration::from_secs(20));
    set_outage(&mut world, false);
    let before = world.reader(bulk).got;
    world.run_until(SOON, "new bytes", |world| world.reader(bulk).got > before);
    let times = [(); 5].map(|()| world.timed_download(1000));
    assert!(world.reader(bulk).end.is_none(), "the bulk is over");
    println!("1 kB beside bulk after an outage: {times:?}");
    assert!(times.iter().all(|time| *time <= PASSED), "{times:?}");
}

/// Headers and tags count as well: what is written beyond what leaves would pile up in quinn, by the hour.
#[test]
fn bulk_leaves_as_it_is_written() {
    let mut world = world();
    let bulk = world.download(400_000_000, None);
    world.run_for(Duration::from_secs(120));
    let (_, server) = world.server.connections().next().expect("a tunnel");
    let (_, _, in_flight) = server.congestion();
    let (unwritten, _) = server.tunnel.memory();
    let written = server.tunnel.stats().lan_in - unwritten;
    let left = written - world.reader(bulk).got;
    println!("{left} bytes written and not read, {in_flight} in flight");
    assert!(
        left <= in_flight + 100_000,
        "{left} bytes, {in_flight} in flight"
    );
}
