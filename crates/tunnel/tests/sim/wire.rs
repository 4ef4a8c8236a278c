//! Tunnels whose datagrams travel inside TCP connections: they wait for room there, and move there and back.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_testbed::world::{Ending, Setup, TcpPath, World, preset};
use bentpipe_tunnel::engine::is_over_tcp;
use bentpipe_units::{BitRate, ByteCount};

const SOON: Duration = Duration::from_secs(60);

/// TCP over the `geo` preset.
pub(crate) const GEO: TcpPath = TcpPath {
    rate: BitRate::megabits_per_second(10),
    one_way_delay: Duration::from_millis(250),
    loss: 0.0,
    buffer: ByteCount::new(1 << 20),
};

/// Terminals on the `geo` preset, with their tunnels up.
fn world(terminals: usize) -> World {
    let link = preset("geo").expect("a preset");
    let link = link.link_config().expect("a link");
    let mut world = World::with(&Setup {
        access: vec![Duration::ZERO; terminals],
        ..Setup::new(&link, 7)
    });
    world.run_until(SOON, "the handshakes", World::is_ready);
    world
}

fn got(world: &World, terminal: usize) -> u64 {
    world.terminals[terminal].apps.readers[0].got
}

#[test]
fn a_full_wire_holds_its_own_tunnel_alone() {
    let mut world = world(2);
    let now = world.now;
    for terminal in &mut world.terminals {
        terminal.download(now, 1 << 30, None);
    }
    world.run_for(Duration::from_secs(6));
    let first = world.terminals[0].address;
    world.server.set_waiting(first, Some(1 << 20));
    // What was under way arrives.
    world.run_for(Duration::from_secs(1));
    let before = [got(&world, 0), got(&world, 1)];
    world.run_for(Duration::from_secs(2));
    assert_eq!(got(&world, 0), before[0], "the wire took nothing");
    assert!(got(&world, 1) > before[1] + 500_000, "the other goes on");
    let (waiting, held) = (got(&world, 0), world.now);
    world.server.set_waiting(first, Some(0));
    world.run_until(SOON, "new bytes", |world| got(world, 0) > waiting);
    let took = world.now - held;
    assert!(
        took < Duration::from_millis(600),
        "{took:?} after there was room"
    );
}

/// Both ends know of the wire: what sends, and where to.
fn is_over_tls(world: &World) -> [bool; 2] {
    let (_, server) = world.server.connections().next().expect("a tunnel");
    let terminal = &world.terminals[0];
    let client = terminal.engine.peek(terminal.tunnel()).expect("a tunnel");
    assert_eq!(is_over_tcp(server.remote()), server.is_on_reliable_wire());
    for connection in [server, client] {
        let expected = match connection.is_on_reliable_wire() {
            true => Kind::Bbr3,
            false => Kind::Satellite,
        };
        assert_eq!(connection.controller(), expected);
    }
    [server, client].map(|connection| connection.is_on_reliable_wire())
}

#[test]
fn a_download_goes_on_from_wire_to_wire() {
    let mut world = world(1);
    let index = world.download(20_000_000, None);
    world.run_for(Duration::from_secs(4));
    assert_eq!(is_over_tls(&world), [false; 2]);
    for tcp in [true, false] {
        let before = world.reader(index).got;
        world.change_wire(0, tcp.then_some(GEO));
        world.run_for(Duration::from_secs(3));
        assert_eq!(is_over_tls(&world), [tcp; 2]);
        assert!(
            world.reader(index).got > before + 1_000_000,
            "over TCP {tcp}"
        );
    }
    world.run_until(SOON, "the end", |world| world.reader(index).end.is_some());
    assert_eq!(world.reader(index).end.map(|end| end.1), Some(Ending::Fin));
    assert_eq!(world.reader(index).got, 20_000_000);
    assert!(world.terminals[0].notices.is_empty(), "no tunnel was lost");
}

/// Nothing leaves twice where nothing is lost.
#[test]
fn nothing_is_repaired_on_a_reliable_wire() {
    let mut world = world(1);
    world.change_wire(0, Some(GEO));
    world.run_for(Duration::from_secs(2));
    let repair = |world: &World| {
        let (_, server) = world.server.connections().next().expect("a tunnel");
        let sent = server.ledger().sent;
        sent.repair + sent.probes
    };
    let before = repair(&world);
    world.download(3_000_000, None);
    world.run_for(Duration::from_secs(8));
    assert_eq!(world.reader(0).got, 3_000_000);
    let probes = repair(&world) - before;
    assert!(probes < 5_000, "{probes} bytes of repairs and trains");
}
