//! The PSK flow: messages that may be lost or replayed, and an end that begins anew.

use super::*;

#[test]
fn messages_are_true_or_nothing() {
    let (own, other) = (Psk::new(b"secret"), Psk::new(b"secreT"));
    let sealed = own.seal(Q1, b"body");
    assert_eq!(own.open(&sealed), Some((Q1, &b"body"[..])));
    assert_eq!(other.open(&sealed), None);
    for bit in 0..sealed.len() * 8 {
        let mut forged = sealed.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(own.open(&forged), None);
    }
    for cut in 0..sealed.len() {
        assert_eq!(own.open(&sealed[..cut]), None);
    }
    assert!(crate::les::spi_of(&sealed).is_none(), "no packet");
    let exporters = [own.exporter(0), own.exporter(1), other.exporter(0)];
    let names: BTreeSet<_> = exporters
        .iter()
        .map(|exporter| crate::les::Roots::short_spis(exporter).unwrap().to_b)
        .collect();
    assert_eq!((names.len(), format!("{own:?}")), (3, "Psk(…)".to_owned()));
}

#[test]
fn what_is_lost_is_sent_again() {
    // Q1, then Q2, then nothing.
    let mut world = World::new(Handshake::Psk);
    world.settle();
    world.to_b.clear();
    world.run(Duration::from_millis(1300));
    assert_eq!(
        (world.frames.clone(), world.to_a.len()),
        (vec![Q1, Q1, Q2], 1)
    );
    world.to_a.clear();
    world.run(Duration::from_secs(2));
    assert_eq!(world.frames, [Q1, Q1, Q2, Q1, Q2], "the same answer");
    assert!(world.a_sends(b"x"));
    world.run(Duration::from_secs(1));
    assert_eq!((world.at('b'), world.lost), (vec![&b"x"[..]], 0));
    assert_eq!(world.established, [('a', 0), ('b', 0)]);
}

#[test]
fn a_replayed_q1_ends_nothing() {
    let mut world = World::new(Handshake::Psk);
    world.settle();
    let Some((_, Sent::Frame(_, q1))) = world.to_b.front() else {
        unreachable!("Q1")
    };
    let q1 = q1.clone();
    world.run(Duration::from_secs(1));
    assert!(world.a_sends(b"one"));
    world.run(Duration::from_secs(1));
    for _ in 0..2 {
        world.frame_to_b(Q1, &q1).unwrap();
        world.run(Duration::from_secs(1));
        assert!(world.a_sends(b"on") && world.b_sends(b"down"));
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.at('b'), [&b"one"[..], b"on", b"on"]);
    assert_eq!((world.at('a').len(), world.lost), (2, 0));
    assert_eq!(world.established, [('a', 0), ('b', 0)]);
}

#[test]
fn an_end_that_begins_anew_replaces_what_it_had() {
    let mut world = World::standing(Handshake::Psk);
    let mut old = BytesMut::new();
    world.a.live().seal(&inner(b"old"), &mut old).unwrap();
    world.a = Initiator::new(plan(Handshake::Psk));
    // Names and random bytes are others each time.
    let mut again = material(0, 8);
    again.exporter = material(0, 1).exporter;
    world.a.begin(world.now, again);
    world.steps();
    let (_, Sent::Frame(_, q1)) = world.to_b.pop_back().unwrap() else {
        unreachable!("Q1")
    };
    let proposal = Proposal::parse(&q1).unwrap();
    let rules = Rules {
        prefixes: &world.prefixes,
        peps: &world.known,
        taken: &|_| false,
        psk: true,
    };
    let mut other = material(0, 9);
    other.exporter = material(0, 1).exporter;
    world.b.on_q1(world.now, &proposal, &other, &rules).unwrap();
    world.run(Duration::from_secs(1));
    world.packet_to_b(&old);
    assert_eq!(
        world.at('b'),
        [b"old"],
        "until the new one has shown its keys"
    );
    assert!(world.a_sends(b"new"));
    world.run(Duration::from_secs(1));
    assert_eq!(world.at('b'), [b"old", b"new"]);
    assert_eq!(world.b.live().receives().count(), 1);
    assert!(world.b_sends(b"down"));
    world.run(Duration::from_secs(1));
    assert_eq!(world.at('a'), [b"down"]);
}

#[test]
fn each_flow_stays_where_it_belongs() {
    let proposal = |handshake: Handshake| Proposal {
        count: 0,
        handshake,
        at_once: false,
        random: material(0, 1).random,
        to_a: (handshake != Handshake::Short).then_some(material(0, 1).spi),
        selectors: vec![prefix("192.0.2.0/24")],
        peps: vec![],
    };
    for handshake in [Handshake::Short, Handshake::Paper, Handshake::Psk] {
        for psk in [false, true] {
            let rules = Rules {
                prefixes: &[prefix("0.0.0.0/0")],
                peps: &[],
                taken: &|_| false,
                psk,
            };
            let mut b = Responder::default();
            let done = b.on_q1(origin(), &proposal(handshake), &material(0, 2), &rules);
            let belongs = psk == (handshake == Handshake::Psk);
            assert_eq!(
                done,
                if belongs {
                    Ok(())
                } else {
                    Err(Violation::Flow)
                }
            );
        }
    }
}
