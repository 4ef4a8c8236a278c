//! How associations begin: messages, round trips, refusals.

use super::*;
use crate::les::{HeaderReader, Toward, Writer};

/// Messages between A and B, and when the first packet arrives at the other end, in half round
/// trips after the tunnel stands.
fn first_data(handshake: Handshake) -> (Vec<LesKind>, u32, u32) {
    let mut world = World::new(handshake);
    world.settle();
    while !world.a_sends(b"up") {
        world.run(Duration::from_millis(10));
    }
    let mut back = false;
    while world.at('a').is_empty() {
        back = back || (!world.at('b').is_empty() && world.b_sends(b"down"));
        world.run(Duration::from_millis(10));
    }
    world.run(Duration::from_secs(2));
    let halves = |end| {
        let first = world.arrived.iter().find(|it| it.0 == end);
        let time = first.expect("arrived").2;
        ((time.as_millis() + 130) / HALF.as_millis()) as u32
    };
    assert_eq!((world.lost, world.grants.len()), (0, PEPS.len()));
    (world.frames.clone(), halves('b'), halves('a'))
}

#[test]
fn the_short_flow_has_two_messages_and_data_leaves_at_once() {
    assert_eq!(first_data(Handshake::Short), (vec![Q1, Q2], 1, 2));
}

#[test]
fn the_flow_of_the_paper_has_three_messages_and_data_leaves_after_a_round_trip() {
    assert_eq!(first_data(Handshake::Paper), (vec![Q1, Q2, Q3], 3, 4));
}

#[test]
fn the_psk_flow_has_two_messages_and_data_leaves_after_a_round_trip() {
    assert_eq!(first_data(Handshake::Psk), (vec![Q1, Q2], 3, 4));
}

#[test]
fn both_flows_establish_both_ends_and_grant_k2_with_numbers_of_their_own() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let world = World::standing(handshake);
        let mut established = world.established.clone();
        established.sort_unstable();
        assert_eq!(established, [('a', 0), ('b', 0)]);
        let writers: Vec<_> = world
            .grants
            .iter()
            .map(|it| (it.0, it.1.writer.get()))
            .collect();
        assert_eq!(writers, [(PEPS[0], 2), (PEPS[1], 3)]);
        let (_, grant) = &world.grants[0];
        assert!(!grant.renewed);
        assert_eq!(grant.selectors, plan(handshake).selectors);
        assert_eq!(grant.lifetime, Duration::from_secs(3690));
    }
}

#[test]
fn a_pep_that_b_has_accepted_has_k2_with_q1_and_a_new_one_after_q2() {
    let mut own = plan(Handshake::Short);
    own.accepted = [PEPS[1]].into();
    let mut world = World::new(Handshake::Short);
    world.a = Initiator::new(own);
    world.settle();
    let granted = |world: &World| world.grants.iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(granted(&world), [PEPS[1]]);
    world.a.introduce(PEPS[0]);
    world.settle();
    assert_eq!(granted(&world), [PEPS[1]], "B may not want it");
    world.run(Duration::from_secs(1));
    assert_eq!(granted(&world), [PEPS[1], PEPS[0]]);
}

/// K2 in a grant opens the packets of that association.
#[test]
fn a_pep_reads_what_it_was_granted() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::standing(handshake);
        let grant = &world.grants[1].1;
        let mut reader = HeaderReader::new(grant.root.clone(), grant.spis.to_b, Toward::B);
        let mut out = BytesMut::new();
        world.a.live().seal(&inner(b"x"), &mut out).unwrap();
        let opened = reader.open(&out).unwrap();
        assert_eq!((opened.writer(), opened.payload()), (Writer::A, 1));
    }
}

#[test]
fn packets_that_are_faster_than_q1_are_held_for_it() {
    let mut world = World::new(Handshake::Short);
    world.settle();
    assert!(world.a_sends(b"fast"));
    let (_, packet) = world.to_b.pop_back().unwrap();
    let Sent::Packet(packet) = packet else {
        unreachable!("the last is the packet")
    };
    world.packet_to_b(&packet);
    assert!(world.at('b').is_empty());
    world.run(Duration::from_secs(1));
    assert_eq!((world.at('b'), world.lost), (vec![&b"fast"[..]], 0));
}

#[test]
fn b_refuses_by_name_and_a_leaves_out_peps_that_b_does_not_know() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::new(handshake);
        world.known = vec![PEPS[1]];
        world.run(Duration::from_secs(3));
        assert_eq!(world.refused, [AnswerCode::PepUnknown]);
        assert_eq!(world.a.plan().peps, [PEPS[1]]);
        let granted: BTreeSet<_> = world.grants.iter().map(|it| it.0).collect();
        assert_eq!(granted, [PEPS[1]].into(), "K2 of nothing for the other");
        assert!(world.established.contains(&('a', 1)));
        assert!(world.a_sends(b"x"));
        world.run(Duration::from_secs(1));
        assert_eq!(world.at('b'), [b"x"]);
    }
}

#[test]
fn nothing_is_sealed_while_b_refuses_and_a_asks_again_in_a_minute() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::new(handshake);
        world.prefixes.pop();
        world.run(Duration::from_secs(59));
        assert_eq!(world.refused, [AnswerCode::SelectorRefused]);
        assert_eq!(world.a.live().receives().count(), 0);
        assert!(!world.a_sends(b"x"));
        world.prefixes.push(prefix("::/0"));
        world.run(Duration::from_secs(3));
        assert!(world.a_sends(b"x"));
    }
}

#[test]
fn a_name_in_use_takes_the_next_count() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::new(handshake);
        let derived = crate::les::Roots::short_spis(&material(0, 1).exporter).unwrap();
        world.taken = [derived.to_b, material(0, 2).spi].into();
        world.run(Duration::from_secs(3));
        assert_eq!(world.refused, [AnswerCode::SpiInUse]);
        assert!(world.established.contains(&('b', 1)) && world.a_sends(b"x"));
    }
}

#[test]
fn b_begins_so_many_in_a_minute() {
    let mut b = Responder::default();
    let (now, prefixes) = (origin(), [prefix("0.0.0.0/0")]);
    let rules = Rules {
        prefixes: &prefixes,
        peps: &[],
        taken: &|_| false,
        psk: false,
    };
    let mut ask = |now, count| {
        let proposal = Proposal {
            count,
            handshake: Handshake::Short,
            at_once: false,
            random: material(count, 1).random,
            to_a: None,
            ended: None,
            selectors: prefixes.to_vec(),
            peps: vec![],
        };
        b.on_q1(now, &proposal, &material(count, 2), &rules)?;
        let answer = std::iter::from_fn(|| b.poll_step()).find_map(|step| match step {
            Step::Send(Q2, body) => Some(Answer::parse(body.as_ref()).unwrap().code),
            _ => None,
        });
        assert!(b.live().receives().count() <= 4);
        Ok(answer.expect("Q1 has an answer"))
    };
    for count in 0..BEGUN_PER_MINUTE as u32 {
        assert_eq!(ask(now, count), Ok(AnswerCode::Accepted));
    }
    assert_eq!(ask(now, 40), Ok(AnswerCode::TooMany));
    let later = now + Duration::from_secs(60);
    assert_eq!(ask(later, 41), Ok(AnswerCode::Accepted));
    assert_eq!(ask(later, 41), Err(Violation::Count(41)));
    assert_eq!(ask(later, 12), Err(Violation::Count(12)));
    let beyond = Violation::Count(MAX_ASSOCIATIONS);
    assert_eq!(ask(later, MAX_ASSOCIATIONS), Err(beyond));
}

#[test]
fn answers_and_proofs_that_do_not_fit_are_violations() {
    let mut world = World::new(Handshake::Paper);
    world.settle();
    let unasked = |count| Violation::Unasked("Q2", count);
    let answer = |count, known: Vec<bool>, own| Answer {
        count,
        code: AnswerCode::Accepted,
        known,
        own,
    };
    let own = || Some((material(0, 2).random, material(0, 2).spi));
    let now = world.now;
    let later = world
        .a
        .on_q2(now, &answer(1, vec![true; 2], own()).encode());
    assert_eq!(later, Err(unasked(1)));
    for wrong in [
        answer(0, vec![true], own()),
        answer(0, vec![true, false], own()),
        answer(0, vec![true; 2], None),
        answer(
            0,
            vec![true; 2],
            Some((material(0, 2).random, material(0, 1).spi)),
        ),
    ] {
        let mut world = World::new(Handshake::Paper);
        world.settle();
        let refused = world.a.on_q2(now, &wrong.encode());
        assert_eq!(refused, Err(unasked(0)));
        assert!(!world.a_sends(b"x"));
    }
    let none = world.b.on_q3(
        now,
        &Proof {
            count: 0,
            code: [0; 32],
        }
        .encode(),
    );
    assert_eq!(none, Err(Violation::Unasked("Q3", 0)));
    let (_, Sent::Frame(_, q1)) = world.to_b.pop_front().unwrap() else {
        unreachable!("Q1")
    };
    world.frame_to_b(Q1, &q1).unwrap();
    let forged = Proof {
        count: 0,
        code: [9; 32],
    };
    assert_eq!(
        world.b.on_q3(now, &forged.encode()),
        Err(Violation::Proof(0))
    );
    assert!(!world.b_sends(b"x"));
}

/// An end that seals what no selector names is not believed by the other, in either direction.
#[test]
fn selectors_bound_what_is_sent_and_what_is_taken() {
    let mut world = World::standing(Handshake::Short);
    let (own, other) = ([10, 0, 0, 1], [192, 0, 3, 1]);
    let mut out = BytesMut::new();
    for (packet, back) in [
        (between(own, other, b"x"), between(other, own, b"x")),
        (inner_back(b"x"), inner(b"x")),
    ] {
        let refused = world.a.live().seal(&packet, &mut out);
        assert!(matches!(refused, Err(Unsent::Selector(_))), "{refused:?}");
        let refused = world.b.live().seal(&back, &mut out);
        assert!(matches!(refused, Err(Unsent::Selector(_))), "{refused:?}");
    }
    assert!(out.is_empty());
    let exporter = material(0, 1).exporter;
    let spis = crate::les::Roots::short_spis(&exporter).unwrap();
    let random = material(0, 1).random;
    let roots = crate::les::Roots::derive(&exporter, 0, random.bytes(), None, spis);
    let (now, mut taken) = (world.now, Vec::new());
    let (mut a, mut b) = (roots.end_a().0, roots.end_b().0);
    a.seal(&between(own, other, b"x"), &mut out).unwrap();
    let fault = world.b.open(now, &out, &mut taken).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "192.0.3.1 is in no selector of the association"
    );
    out.clear();
    b.seal(&between(other, own, b"x"), &mut out).unwrap();
    let fault = world.a.live().open(now, &out, &mut taken).unwrap_err();
    assert_eq!(fault, Unopened::Selector(other.into()));
}
