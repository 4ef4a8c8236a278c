//! What the bytes on the link were for, against the link's own count.

use std::time::Duration;

use bentpipe_testbed::world::World;
use bentpipe_tunnel::engine::Ledger;

use super::satellite::link;

const DOWNLOAD: u64 = 3_000_000;

/// Client's and server's books after a download and an upload, with everything that was on its way.
fn books(loss: f64) -> (World, Ledger, Ledger) {
    let mut world = World::new(&link("geo", loss), 1);
    world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
    world.timed_download(DOWNLOAD);
    world.timed_upload(200_000);
    world.run_for(Duration::from_secs(60));
    let client = world.terminals[0].engine.peek(world.tunnel());
    let mut client = client.expect("the tunnel").ledger();
    client += world.terminals[0].engine.strays();
    let (_, server) = world.server.connections().next().expect("the tunnel");
    let mut server = server.ledger();
    server += world.server.strays();
    (world, client, server)
}

#[test]
fn every_byte_on_the_link_is_accounted_for() {
    for loss in [0.0, 0.02] {
        let (world, client, server) = books(loss);
        let offered = world.sent.map(|sent| sent.bytes);
        let counted = [server.sent.total(), client.sent.total()];
        assert_eq!(counted, offered, "loss {loss}");
        // Queues lose packets, too.
        let lost = counted[0] - client.received.total();
        assert!(lost <= counted[0] / 20, "{lost} bytes never came");
        // Payload is counted once, however often it crossed; OPEN, REPLY and a request are a few bytes.
        for (name, bytes, expected) in [
            ("sent by the server", server.sent.streams, DOWNLOAD),
            ("received by the client", client.received.streams, DOWNLOAD),
            ("sent by the client", client.sent.streams, 200_000),
            ("received by the server", server.received.streams, 200_000),
        ] {
            let more = bytes.checked_sub(expected).expect("all of it");
            assert!(more < 300, "{more} bytes more {name}, loss {loss}");
        }
        let share = server.sent.retransmissions as f64 / DOWNLOAD as f64;
        let expected = loss * 0.5..=loss * 2.0;
        assert!(expected.contains(&share), "{share} sent again, loss {loss}");
        let strays = [client.sent.stateless, server.sent.stateless];
        assert!(
            strays[0] == 0 && strays[1] < 1200,
            "{strays:?} bytes of resets"
        );
        assert!(client.sent.acks > 1000 && server.sent.handshake > 1000);
        let headers = server.sent.headers as f64 / DOWNLOAD as f64;
        assert!((0.01..0.05).contains(&headers), "headers are {headers}");
        println!("loss {loss}: {:?}", server.sent);
    }
}

/// Largest batch of a slow path, and a datagram with its headers, bytes.
const BATCH: u64 = 10 * DATAGRAM;
const DATAGRAM: u64 = 1500;

/// The batch that reaches the end of what may cross is the last one with data, however much waits; then connections end in a few datagrams.
#[test]
fn what_may_cross_is_exceeded_by_one_batch_and_the_last_words() {
    let mut world = World::new(&link("geo", 0.0), 1);
    world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
    world.terminals[0].upload(world.now, 30_000_000);
    world.run_for(Duration::from_secs(10));
    let client = &mut world.terminals[0].engine;
    client.allow(Some(200_000));
    let most = client.crossed() + 200_000;
    let limit = Duration::from_secs(60);
    let crossed = |world: &World| world.terminals[0].engine.crossed();
    world.run_until(limit, "what may cross", |world| crossed(world) >= most);
    let more = crossed(&world) - most;
    assert!(more < BATCH, "{more} bytes more");
    assert!(world.terminals[0].engine.take_spent());
    let sent = |world: &World| world.sent[1].bytes;
    let before = sent(&world);
    world.run_for(Duration::from_secs(5));
    assert_eq!(sent(&world), before, "data left after the end");
    let tunnel = world.tunnel();
    let now = world.now;
    let connection = world.terminals[0].engine.connection(tunnel);
    let connection = connection.expect("the tunnel");
    connection.close(now, 6, "no bytes are left".to_owned());
    world.run_for(Duration::from_secs(30));
    let last = sent(&world) - before;
    assert!((1..=4 * DATAGRAM).contains(&last), "{last} bytes");
}
