//! Losses that cost no round trip: at the ends of flows, in handshakes, in voice. Each test has the same without repairs beside it.

use std::time::Duration;

use bentpipe_link::{LinkConfig, LossModel};
use bentpipe_proto::fec::Fec;
use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{CloseCode, ReplyCode};
use bentpipe_testbed::world::{Setup, World, preset, source};
use bentpipe_tunnel::engine::{Connection, ConnectionId, Wishes};
use bentpipe_tunnel::transport::Incoming;
use bentpipe_units::Ratio;
use bytes::Bytes;

const SOON: Duration = Duration::from_secs(60);

/// 50/10 Mbit/s, 650 ms, with independent losses in both directions.
fn link(loss: f64) -> LinkConfig {
    let mut link = preset("g5")
        .expect("a preset")
        .link_config()
        .expect("a link");
    if loss > 0.0 {
        let loss = LossModel::Iid(Ratio::new(loss).expect("a ratio"));
        (link.forward_link.loss, link.return_link.loss) = (loss, loss);
    }
    link
}

fn ready(link: &LinkConfig, fec: Fec, seed: u64) -> World {
    let wishes = Wishes {
        fec,
        ..Wishes::default()
    };
    let mut world = World::with(&Setup {
        wishes,
        ..Setup::new(link, seed)
    });
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

/// How many of 60 flows of 20 kB take longer than they would without losses, after a download.
fn late(fec: Fec) -> usize {
    let run = |loss, flows| {
        let mut world = ready(&link(loss), fec, 7);
        world.timed_download(20_000_000);
        world.run_for(Duration::from_secs(5));
        let times = (0..flows).map(|_| {
            world.run_for(Duration::from_millis(700));
            world.timed_download(20_000)
        });
        times.collect::<Vec<_>>()
    };
    let least = run(0.0, 3)[2];
    let times = run(0.02, 60);
    times.iter().filter(|time| **time > least * 23 / 20).count()
}

#[test]
fn short_flows_do_not_wait_for_what_is_lost() {
    let (with, without) = (late(Fec::Auto), late(Fec::Off));
    println!("of 60 flows {with} are late, {without} without repairs");
    assert!(with <= 2, "{with}");
    assert!(without >= 10, "{without}: the test shows nothing");
}

#[test]
fn handshakes_do_not_wait_for_what_is_lost() {
    let late = |seed: &u64| {
        let mut world = World::new(&link(0.05), *seed);
        world.run_until(SOON, "the handshake", World::is_ready);
        world.at() > Duration::from_millis(650 * 22 / 10)
    };
    let late = (0..100).filter(late).count();
    println!("of 100 handshakes at 5 % loss {late} take more than 2.2 round trips");
    assert!(late <= 2, "{late}");
}

/// Shares of a call's packets that are lost, there and back, and the latest of all.
fn call(fec: Fec, loss: f64) -> (f64, Duration) {
    let mut world = ready(&link(loss), fec, 5);
    world.timed_download(20_000_000);
    let span = Duration::from_secs(60);
    let calls = [true, false].map(|down| world.inner.call(world.now, down, span));
    world.run_for(span + Duration::from_secs(2));
    let calls = calls.map(|call| &world.inner.calls[call]);
    let sent: u64 = calls.iter().map(|call| call.sent).sum();
    let delays = || calls.iter().flat_map(|call| &call.delays);
    let latest = *delays().max().expect("some");
    let (_, server) = world.server.connections().next().expect("a tunnel");
    let copied = server.ledger().sent.repair >= calls[0].sent * 100;
    assert_eq!(copied, fec == Fec::Auto && loss > 0.0, "in the account");
    (1.0 - delays().count() as f64 / sent as f64, latest)
}

#[test]
fn voice_comes_twice_and_is_heard_once() {
    let ((lost, latest), (without, _)) = (call(Fec::Auto, 0.02), call(Fec::Off, 0.02));
    let (none, usual) = call(Fec::Auto, 0.0);
    println!("{lost:.4} of voice lost, the latest after {latest:?}; {without:.4} without copies");
    assert!(lost <= 0.002 && none == 0.0, "{lost} {none}");
    assert!(without >= 0.01, "{without}: the test shows nothing");
    assert!(latest <= usual + Duration::from_millis(40), "{latest:?}");
}

/// Memory that repairs would need is let go of when nothing is lost any more.
#[test]
fn nothing_is_kept_for_a_path_that_has_become_clean() {
    let mut world = ready(&link(0.02), Fec::Auto, 1);
    let kept = |world: &World| {
        let mut tunnels = world.terminals[0].engine.connections();
        tunnels.next().expect("a tunnel").1.lane().kept()
    };
    world.timed_download(20_000_000);
    assert!(kept(&world) > 1 << 20, "{}", kept(&world));
    let now = world.now;
    world.link.forward_link.set_loss(now, LossModel::None);
    world.link.return_link.set_loss(now, LossModel::None);
    for _ in 0..12 {
        world.timed_download(5_000_000);
        world.run_for(Duration::from_secs(4));
    }
    assert_eq!(kept(&world), 0);
}

/// Memory that other tunnels need for a moment is used for repairs again afterwards.
#[test]
fn losses_are_mended_again_after_a_moment_without_memory() {
    let mut world = ready(&link(0.03), Fec::Auto, 3);
    let server = |world: &World| {
        let (_, connection) = world.server.connections().next().expect("a tunnel");
        let lane = connection.lane();
        (lane.kept(), lane.fec().received.mended)
    };
    let uploads = |world: &mut World| {
        let before = server(world).1;
        for _ in 0..10 {
            world.timed_upload(300_000);
            world.run_for(Duration::from_secs(1));
            world.server.share_memory();
        }
        server(world).1 - before
    };
    world.timed_upload(10_000_000);
    let before = uploads(&mut world);
    let ceiling = world.server.pool().ceiling();
    world.server.pool().set_ceiling(0);
    for _ in 0..2 {
        // Each time half of what is too much.
        (0..40).for_each(|_| world.server.share_memory());
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!(server(&world).0, 0);
    world.server.pool().set_ceiling(ceiling);
    world.server.share_memory();
    let after = uploads(&mut world);
    println!("{before} bytes mended before, {after} after");
    assert!(before > 0, "the test shows nothing");
    assert!(after > before / 4, "{after} of {before}");
}

/// A host that has sent its request and reads the answer slowly gets all of it, though its tunnel ends: also if the end of the
/// request was lost, and the peer has mended it instead of acknowledging it.
#[test]
fn a_flow_whose_end_was_mended_has_crossed() {
    let fec = Fec::Fixed { repair: 1, per: 1 };
    let mut world = ready(&link(0.0), fec, 1);
    world.behaviour.opened = Some(Vec::new());
    let tunnel = world.tunnel();
    let (held, quic) = client(&mut world, tunnel).parts();
    let request = Bytes::from_static(b"GET / ");
    let flow = held.open(quic, source(0), None, request).expect("a flow");
    world.run_for(Duration::from_secs(1));
    let opened = world.behaviour.opened.iter_mut().flatten().next();
    let (id, remote, _) = *opened.expect("the server has heard of it");
    let (held, quic) = server(&mut world, id).parts();
    held.reply(quic, remote, ReplyCode::Ok, None);
    world.run_for(Duration::from_secs(2));
    // The end of the request alone is lost: repairs leave a little later.
    let (held, _) = client(&mut world, tunnel).parts();
    held.push(flow, Bytes::from_static(b"HTTP/1.0\r\n\r\n"));
    held.finish(flow);
    let lost = world.now;
    world.link.return_link.set_outage(lost, true);
    world.run_for(Duration::from_millis(10));
    let open_again = world.now;
    world.link.return_link.set_outage(open_again, false);
    world.run_for(Duration::from_millis(400));
    let (held, quic) = server(&mut world, id).parts();
    let asked: u64 = held.ready(remote).map(|chunk| chunk.len() as u64).sum();
    held.consume(remote, asked);
    assert_eq!(held.incoming(remote), Incoming::End(End::Fin), "mended");
    held.push(remote, Bytes::from_static(&[0; 10_000]));
    held.finish(remote);
    held.release(quic, remote);
    world.run_for(Duration::from_secs(2));
    let now = world.now;
    let code = CloseCode::Shutdown.code();
    server(&mut world, id).close(now, code, "the server is stopping".into());
    world.run_for(Duration::from_secs(2));
    let (held, quic) = client(&mut world, tunnel).parts();
    assert_eq!(held.incoming(flow), Incoming::Data);
    let answer: u64 = held.ready(flow).map(|chunk| chunk.len() as u64).sum();
    held.consume(flow, answer);
    assert_eq!(
        (answer, held.incoming(flow)),
        (10_000, Incoming::End(End::Fin))
    );
    held.release(quic, flow);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.terminals[0].engine.connections().count(), 0);
}

fn client(world: &mut World, tunnel: ConnectionId) -> &mut Connection {
    let engine = &mut world.terminals[0].engine;
    engine.connection(tunnel).expect("it lives")
}

fn server(world: &mut World, tunnel: ConnectionId) -> &mut Connection {
    world.server.connection(tunnel).expect("it lives")
}

/// What the operator asks for leaves whatever is lost.
#[test]
fn a_fixed_rate_is_kept() {
    for (repair, per) in [(1, 20), (1, 5)] {
        let mut world = ready(&link(0.0), Fec::Fixed { repair, per }, 1);
        for _ in 0..30 {
            world.timed_download(200_000);
            world.run_for(Duration::from_millis(300));
        }
        let (_, server) = world.server.connections().next().expect("a tunnel");
        let share = server.lane().fec().sent.bytes as f64 / (30.0 * 200_000.0);
        let asked = f64::from(repair) / f64::from(per);
        println!("{repair} for {per}: {share:.3}");
        assert!((0.9 * asked..1.3 * asked).contains(&share), "{share}");
    }
}
