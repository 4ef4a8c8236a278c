//! The PSK flow: messages that may be lost or replayed, and an end that begins anew.

use super::*;

#[test]
fn messages_are_true_or_nothing() {
    let (own, other) = (Psk::new(b"secret"), Psk::new(b"secreT"));
    let (asked, answer) = (own.ask(b"q1"), own.answer(b"q2", b"q1"));
    assert_eq!(own.asked(&asked), Some(&b"q1"[..]));
    assert_eq!(own.answered(&answer, b"q1"), Some(&b"q2"[..]));
    assert_eq!(own.asked(&answer), None, "another message");
    assert_eq!(own.answered(&asked, b""), None, "another message");
    assert_eq!(other.asked(&asked), None);
    assert_eq!(other.answered(&answer, b"q1"), None);
    for sealed in [&asked, &answer] {
        assert!(Psk::is_message(sealed), "no packet");
        assert!(crate::les::spi_of(sealed).is_none(), "no packet");
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(own.asked(&forged), None);
            assert_eq!(own.answered(&forged, b"q1"), None);
        }
        for cut in 0..sealed.len() {
            assert_eq!(own.asked(&sealed[..cut]), None);
            assert_eq!(own.answered(&sealed[..cut], b"q1"), None);
        }
    }
    let exporters = [own.exporter(0), own.exporter(1), other.exporter(0)];
    let names: BTreeSet<_> = exporters
        .iter()
        .map(|exporter| crate::les::Roots::short_spis(exporter).unwrap().to_b)
        .collect();
    assert_eq!((names.len(), format!("{own:?}")), (3, "Psk(…)".to_owned()));
}

/// Q1 of an end A that has just begun, whose random bytes are `random`.
fn asking(random: u8) -> (Initiator, Vec<u8>) {
    let mut a = Initiator::new(plan(Handshake::Psk));
    let mut own = material(0, random);
    own.exporter = material(0, 1).exporter;
    a.begin(origin(), own);
    let q1 = a.question().expect("asked").to_vec();
    (a, q1)
}

/// Q2 of an end B that has just begun.
fn answering(q1: &[u8]) -> Vec<u8> {
    let mut world = World::new(Handshake::Psk);
    world.frame_to_b(Q1, q1).expect("in order");
    let Some(Step::Send(Q2, body)) = world.b.poll_step() else {
        unreachable!("Q2")
    };
    body.as_ref().to_vec()
}

#[test]
fn q2_is_taken_for_the_answer_to_its_own_q1_alone() {
    let psk = Psk::new(b"secret");
    let ((_, earlier), (mut a, q1)) = (asking(1), asking(8));
    let recorded = psk.answer(&answering(&earlier), &earlier);
    assert!(psk.answered(&recorded, &earlier).is_some());
    // The count, the PEPs and the selectors are the same; A would take it, and nobody had its keys.
    assert_eq!(psk.answered(&recorded, &q1), None, "a replay");
    for bit in 0..q1.len() * 8 {
        let mut other = q1.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        let crossed = psk.answer(&answering(&q1), &other);
        assert_eq!(psk.answered(&crossed, &q1), None, "bit {bit}");
    }
    let answer = psk.answer(&answering(&q1), &q1);
    let q2 = psk.answered(&answer, &q1).expect("its own");
    a.on_q2(origin(), q2).expect("in order");
    assert!(a.live().stands());
    assert_eq!(a.question(), None, "nothing is taken any more");
}

#[test]
fn a_pep_that_is_revoked_reads_nothing_from_the_next_q1_on() {
    let mut world = World::standing(Handshake::Psk);
    assert!(world.b_sends(b"with its keys"));
    world.run(Duration::from_secs(1));
    world.a.revoke(world.now, PEPS[0]);
    assert!(!world.a_sends(b"up"), "A seals with keys that it has");
    // Half a round trip for Q1; A has nothing to say, so no packet of its own follows.
    world.run(HALF);
    assert!(!world.b_sends(b"down"), "B seals with keys that it has");
    world.run(Duration::from_secs(2));
    assert!(!world.b_sends(b"down"), "A has not shown its keys");
    assert!(world.a_sends(b"up"));
    world.run(HALF);
    assert!(world.b_sends(b"without"));
    world.run(HALF);
    let heard = (world.at('a'), world.at('b'));
    let said = (vec![&b"with its keys"[..], b"without"], vec![&b"up"[..]]);
    assert_eq!(heard, said);
    let granted: Vec<_> = world.grants.iter().map(|it| it.0).collect();
    assert_eq!(granted, [PEPS[0], PEPS[1], PEPS[1]]);
}

/// Q1 that A has sent in `world`, as B gets it.
fn q1_on_its_way(world: &World) -> Vec<u8> {
    match world.to_b.back() {
        Some((_, Sent::Frame(Q1, q1))) => q1.clone(),
        _ => unreachable!("Q1"),
    }
}

#[test]
fn what_ends_associations_is_nothing_that_can_be_made_or_repeated() {
    let mut world = World::standing(Handshake::Psk);
    world.a.revoke(world.now, PEPS[0]);
    world.settle();
    let q1 = q1_on_its_way(&world);
    world.run(Duration::from_secs(1));
    assert!(world.a_sends(b"up"));
    world.run(Duration::from_secs(1));
    world.frame_to_b(Q1, &q1).unwrap();
    assert!(world.b_sends(b"down"), "a replay ends nothing");
    let mut forged = Proposal::parse(&q1).unwrap();
    for token in [[0; 32], [1; 32]] {
        forged.count += 1;
        forged.ended = Some(crate::les::EndToken::new(Zeroizing::new(token)));
        world.frame_to_b(Q1, &forged.encode()).unwrap();
        assert!(world.b_sends(b"down"), "another token ends nothing");
    }
    // Where the association has not stood at B yet, its token ends those before all the same.
    let mut world = World::standing(Handshake::Psk);
    world.a.admit(PepKey([3; 32]));
    world.known.push(PepKey([3; 32]));
    world.run(Duration::from_secs(1));
    assert!(world.b_sends(b"down"), "with the first");
    world.a.revoke(world.now, PEPS[0]);
    world.run(HALF);
    assert!(!world.b_sends(b"down"));
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
fn a_replayed_q1_displaces_no_association_that_waits() {
    let mut world = World::new(Handshake::Psk);
    world.settle();
    let Some((_, Sent::Frame(_, first))) = world.to_b.front() else {
        unreachable!("Q1")
    };
    let first = first.clone();
    world.run(Duration::from_secs(1));
    assert!(world.a_sends(b"one"));
    world.run(Duration::from_secs(1));
    // The next association is answered, and waits for its first packet.
    world.a.admit(PepKey([3; 32]));
    world.known.push(PepKey([3; 32]));
    world.run(Duration::from_secs(1));
    let frames = world.frames.len();
    world.frame_to_b(Q1, &first).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.frames.len(), frames, "a replay has no answer");
    // Nor does one that has never come, as after a restart of B.
    let mut unseen = Proposal::parse(&first).unwrap();
    unseen.random = material(0, 9).random;
    world.frame_to_b(Q1, &unseen.encode()).unwrap();
    assert!(world.a_sends(b"two"));
    world.run(Duration::from_secs(1));
    assert_eq!((world.at('b'), world.lost), (vec![&b"one"[..], b"two"], 0));
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
        ended: None,
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
