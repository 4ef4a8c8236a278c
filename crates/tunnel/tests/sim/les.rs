//! Messages of LES on the control stream: where both sides have offered it they cross, each from the side that it comes from.

use std::time::Duration;

use bentpipe_proto::tunnel::{LesBody, LesKind};
use bentpipe_testbed::world::{World, preset};
use bentpipe_tunnel::engine::Connection;
use zeroize::Zeroizing;

use crate::inbound::{client, server};

const SOON: Duration = Duration::from_secs(60);

/// A world whose client offers LES, and whose server does if it is `offered`.
fn world(offered: bool) -> World {
    let link = preset("geo").expect("a preset");
    let mut world = World::new(&link.link_config().expect("a link"), 3);
    let terminal = &mut world.terminals[0];
    let (id, _) = terminal.engine.connections().next().expect("an attempt");
    let attempt = terminal.engine.connection(id).expect("it is there");
    attempt.tunnel.agreement_mut().offer_les();
    let begun = |world: &World| world.server.connections().next().is_some();
    world.run_until(SOON, "the first datagram", begun);
    if offered {
        server(&mut world).tunnel.agreement_mut().offer_les();
    }
    world.run_until(SOON, "the handshake", World::is_ready);
    world.run_for(Duration::from_secs(1));
    world
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
    let mut both = world(true);
    assert!(
        client(&mut both).tunnel.agreement().agrees_on_les()
            && server(&mut both).tunnel.agreement().agrees_on_les()
    );
    for kind in [LesKind::Q1, LesKind::Q3] {
        assert_eq!(fault(world(true), client, kind), None);
        let said = fault(world(true), server, kind).expect("a fault");
        assert!(said.contains("a message of LES out of place"), "{said}");
    }
    assert_eq!(fault(world(true), server, LesKind::Q2), None);
    let said = fault(world(true), client, LesKind::Q2).expect("a fault");
    assert!(said.contains("a message of LES out of place"), "{said}");
}

#[test]
fn a_message_that_nobody_agreed_on_ends_the_tunnel() {
    let mut one = world(false);
    assert!(!client(&mut one).tunnel.agreement().agrees_on_les());
    assert!(fault(one, server, LesKind::Q2).is_some());
    assert!(fault(world(false), client, LesKind::Q1).is_some());
}

#[test]
fn every_association_has_a_secret_of_its_own_that_both_ends_have() {
    let mut world = world(true);
    let secret = |end: &mut Connection, count: u32| end.exporter(b"a label", &count.to_be_bytes());
    let first = secret(client(&mut world), 0);
    assert!(first.is_some());
    assert_eq!(secret(server(&mut world), 0), first);
    assert_ne!(secret(client(&mut world), 1), first);
    assert_ne!(client(&mut world).exporter(b"a label", b""), first);
}
