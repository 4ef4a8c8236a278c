//! Messages of LES on the control stream: where both sides have offered it they cross, each from the side that it comes from.

use std::time::Duration;

use bentpipe_proto::tunnel::{LesBody, LesKind};
use bentpipe_testbed::world::{World, preset};
use bentpipe_tunnel::engine::Connection;
use bentpipe_tunnel::transport::LesAccord;
use zeroize::Zeroizing;

use crate::inbound::{client, server};

const SOON: Duration = Duration::from_secs(60);

/// A world whose client offers LES, and whose server does if it is `offered`, with a pre-shared key or without.
fn world(offered: Option<bool>) -> World {
    let link = preset("geo").expect("a preset");
    let mut world = World::new(&link.link_config().expect("a link"), 3);
    let terminal = &mut world.terminals[0];
    let (id, _) = terminal.engine.connections().next().expect("an attempt");
    let attempt = terminal.engine.connection(id).expect("it is there");
    attempt.tunnel.agreement_mut().offer_les(false);
    let begun = |world: &World| world.server.connections().next().is_some();
    world.run_until(SOON, "the first datagram", begun);
    if let Some(pre_shared) = offered {
        let agreement = server(&mut world).tunnel.agreement_mut();
        agreement.offer_les(pre_shared);
    }
    world.run_until(SOON, "the handshake", World::is_ready);
    world.run_for(Duration::from_secs(1));
    world
}

/// Outcome of the offers at client and server.
fn accords(world: &mut World) -> [LesAccord; 2] {
    let client = client(world).tunnel.agreement().les();
    [client, server(world).tunnel.agreement().les()]
}

fn body(text: &str) -> LesBody {
    LesBody::new(Zeroizing::new(text.as_bytes().to_vec()))
}

/// Reason why the tunnel ends after `end` has sent `kind`, if it does.
fn fault(
    mut world: World,
    end: fn(&mut World) -> &mut Connection,
    kind: LesKind,
) -> Option<String> {
    world.terminals[0].expects_fault = true;
    world.behaviour.expects_fault = true;
    end(&mut world).tunnel.send_les(kind, body("message"));
    world.run_for(Duration::from_secs(2));
    let said = world.terminals[0].notices.first();
    said.map(|(_, said)| said.clone())
}

#[test]
fn messages_cross_from_the_side_that_they_come_from() {
    let mut both = world(Some(false));
    assert_eq!(accords(&mut both), [LesAccord::Agreed; 2]);
    for kind in [LesKind::Q1, LesKind::Q3] {
        assert_eq!(fault(world(Some(false)), client, kind), None);
        let said = fault(world(Some(false)), server, kind).expect("a fault");
        assert!(said.contains("a message of LES out of place"), "{said}");
    }
    assert_eq!(fault(world(Some(false)), server, LesKind::Q2), None);
    let said = fault(world(Some(false)), client, LesKind::Q2).expect("a fault");
    assert!(said.contains("a message of LES out of place"), "{said}");
}

/// Client and server are not agreed, and the client asks all the same, for it cannot know.
fn skipped(offered: Option<bool>, accord: LesAccord) {
    let mut one = world(offered);
    assert_eq!(accords(&mut one), [accord; 2]);
    for kind in [LesKind::Q1, LesKind::Q3] {
        assert_eq!(fault(world(offered), client, kind), None, "{kind:?}");
    }
    let said = fault(one, server, LesKind::Q2).expect("a fault");
    assert!(said.contains("a message of LES out of place"), "{said}");
}

#[test]
fn what_a_client_asks_a_server_without_les_is_skipped() {
    skipped(None, LesAccord::Lacking);
}

#[test]
fn what_a_client_asks_a_server_with_other_keys_is_skipped() {
    skipped(Some(true), LesAccord::OtherKeys);
}

#[test]
fn every_association_has_a_secret_of_its_own_that_both_ends_have() {
    let mut world = world(Some(false));
    let secret = |end: &mut Connection, count: u32| end.exporter(b"a label", &count.to_be_bytes());
    let first = secret(client(&mut world), 0);
    assert!(first.is_some());
    assert_eq!(secret(server(&mut world), 0), first);
    assert_ne!(secret(client(&mut world), 1), first);
    assert_ne!(client(&mut world).exporter(b"a label", b""), first);
}
