//! What a tunnel agrees on for flows that are sealed beside it: a name, random bytes, a secret that both ends have.

use std::time::Duration;

use bentpipe_proto::tunnel::EpochRandom;
use bentpipe_testbed::world::{World, preset};
use bentpipe_tunnel::engine::Connection;
use zeroize::Zeroizing;

use crate::inbound::{client, server};

/// One of a world's ends.
type End = fn(&mut World) -> &mut Connection;

const SOON: Duration = Duration::from_secs(60);

const NAME: (u32, u16) = (0x0102_0304, 4434);

/// A world whose client asks for sealed flows, and whose server offers some if it is `offered`.
fn world(offered: bool) -> World {
    let link = preset("geo").expect("a preset");
    let mut world = World::new(&link.link_config().expect("a link"), 3);
    let terminal = &mut world.terminals[0];
    let (id, _) = terminal.engine.connections().next().expect("an attempt");
    let attempt = terminal.engine.connection(id).expect("it is there");
    let random = EpochRandom::new(Zeroizing::new([7; 32]));
    attempt.tunnel.agreement_mut().ask_for_sle(random);
    let begun = |world: &World| world.server.connections().next().is_some();
    world.run_until(SOON, "the first datagram", begun);
    if offered {
        server(&mut world)
            .tunnel
            .agreement_mut()
            .offer_sle(NAME.0, NAME.1, &[]);
    }
    world.run_until(SOON, "the handshake", World::is_ready);
    world.run_for(Duration::from_secs(1));
    world
}

#[test]
fn both_ends_have_the_random_bytes_once_and_a_secret_that_keys_do_not_change() {
    let mut world = world(true);
    assert_eq!(
        client(&mut world).tunnel.agreement().sle_offered(),
        Some(NAME)
    );
    let take = |end: &mut Connection| {
        let random = end.tunnel.agreement_mut().take_sle_random();
        (
            random.map(EpochRandom::into_bytes),
            end.exporter(b"a label", b""),
        )
    };
    let (random, secret) = take(client(&mut world));
    assert_eq!(random, Some(Zeroizing::new([7; 32])));
    assert_eq!(take(server(&mut world)), (random, secret.clone()));
    assert!(secret.is_some());
    assert_eq!(take(client(&mut world)), (None, secret.clone()));
    assert_eq!(take(server(&mut world)), (None, secret.clone()));
    assert_ne!(client(&mut world).exporter(b"another", b""), secret);

    client(&mut world).renew_keys();
    world.timed_download(2_000_000);
    world.timed_upload(200_000);
    assert_eq!(take(server(&mut world)), (None, secret));
}

#[test]
fn a_server_that_offers_nothing_is_asked_for_nothing() {
    let mut world = world(false);
    for end in [client as End, server] {
        let tunnel = &mut end(&mut world).tunnel;
        assert_eq!(tunnel.agreement().sle_offered(), None);
        assert_eq!(tunnel.agreement_mut().take_sle_random(), None);
    }
}

#[test]
fn an_epoch_out_of_place_ends_the_tunnel() {
    // One that nobody agreed on, and one that a server begins.
    for (offered, begins) in [(false, false), (true, true)] {
        let mut world = world(offered);
        world.terminals[0].expects_fault = true;
        let tunnel = &mut server(&mut world).tunnel;
        match begins {
            true => tunnel.begin_sle_epoch(1, EpochRandom::new(Zeroizing::new([9; 32]))),
            false => tunnel.confirm_sle_epoch(1),
        }
        world.run_for(Duration::from_secs(2));
        let said = world.terminals[0].notices.first();
        let (_, said) = said.expect("a fault");
        assert!(said.contains("an epoch of SLE out of place"), "{said}");
    }
}
