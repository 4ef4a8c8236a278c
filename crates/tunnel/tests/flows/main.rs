//! Forty thousand connections that say nothing, and two hundred that do: what they cost both engines, and what the
//! silent ones cost the others. In virtual time, in a process of its own: what is measured is the process.

use std::fs;
use std::time::Duration;

use bentpipe_link::Scenario;
use bentpipe_testbed::world::{World, source};
use bentpipe_tunnel::transport::FlowKey;
use bentpipe_units::BitRate;
use bytes::Bytes;

const IDLE: usize = 40_000;
const ACTIVE: usize = 200;

/// What each of the active ones downloads.
const BYTES: u64 = 500_000;

/// What one alone downloads.
const BULK: u64 = 50_000_000;

/// What the conversations may hold besides, in bytes: BDPs of the link on their way, in queues and in buffers.
const CEILING: u64 = 400_000_000;

/// What an idle flow may cost both engines; the daemons' sockets and tasks come on top (`tests/capacity`).
/// The heap has next to nothing in reserve when counting begins: what a start-up that overshot left there would be used
/// first and not be counted.
const EACH: u64 = 4_100;

/// Of the emulated link.
const RTT: Duration = Duration::from_millis(600);

const PATIENCE: Duration = Duration::from_secs(600);

/// Memory of this process that is in use now, or was at most.
fn memory(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with(what));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

fn world() -> World {
    let rate = BitRate::megabits_per_second;
    let link = Scenario::constant("far", Duration::from_millis(300), rate(250), rate(3));
    let mut world = World::new(&link.link_config().expect("a link"), 1);
    world.run_until(PATIENCE, "the handshake", World::is_ready);
    world
}

/// Opens flows whose ends have said one word each and then nothing.
fn open_idle(world: &mut World, count: usize) -> Vec<FlowKey> {
    let tunnel = world.tunnel();
    world.behaviour.silent = true;
    let held = world.terminals[0].engine.connection(tunnel);
    let (held, quic) = held.expect("it is ready").parts();
    let open = |_| {
        let hello = Bytes::from_static(b"hello");
        held.open(quic, source(1), None, hello).expect("a flow")
    };
    let flows: Vec<_> = (0..count).map(open).collect();
    world.run_for(Duration::from_secs(30));
    let held = world.terminals[0].engine.connection(tunnel);
    let (held, _) = held.expect("it lives").parts();
    for flow in &flows {
        held.take_notice(*flow);
        let heard: usize = held.ready(*flow).map(Bytes::len).sum();
        assert_eq!(heard, 5, "every flow was answered");
        held.consume(*flow, 5);
    }
    world.behaviour.silent = false;
    world.run_for(Duration::from_secs(5));
    flows
}

/// How long a large download takes alone, and then the active flows, all at once.
fn download(world: &mut World) -> [Duration; 2] {
    let bulk = world.timed_download(BULK);
    world.run_for(Duration::from_secs(5));
    [bulk, download_all(world)]
}

fn download_all(world: &mut World) -> Duration {
    let began = world.now;
    let first = world.terminals[0].apps.readers.len();
    for _ in 0..ACTIVE {
        world.download(BYTES, None);
    }
    world.run_until(PATIENCE, "the downloads", |world| {
        let mut readers = world.terminals[0].apps.readers[first..].iter();
        readers.all(|reader| reader.end.is_some())
    });
    for reader in &world.terminals[0].apps.readers[first..] {
        assert_eq!(reader.got, BYTES);
    }
    world.now - began
}

#[test]
fn silent_flows_cost_little_memory_and_time() {
    let alone = {
        let mut world = world();
        // The second time the rate is known.
        download(&mut world);
        download(&mut world)
    };
    let mut world = world();
    download(&mut world);
    world.run_for(Duration::from_secs(5));
    let before = memory("VmRSS:");
    let flows = open_idle(&mut world, IDLE);
    let each = memory("VmRSS:").saturating_sub(before) / flows.len() as u64;
    let beside = download(&mut world);
    let most = memory("VmHWM:");
    println!(
        "{each} B for one idle flow in both engines; {most} B in all at most; one download of {BULK} B and {ACTIVE} of \
         {BYTES} B take {beside:?} beside {IDLE} idle flows, {alone:?} without"
    );
    assert!(each <= EACH, "{each} B for one idle flow");
    assert!(most <= CEILING, "{most} B");
    // Promises to the idle leave the smallest first window, which grows to the path's in three round trips.
    assert!(
        beside[0] <= alone[0] + 3 * RTT,
        "{beside:?} instead of {alone:?}"
    );
    let ratio = beside[1].as_secs_f64() / alone[1].as_secs_f64();
    assert!(ratio <= 1.05, "{beside:?} instead of {alone:?}");
}
