//! How associations end: renewal, revocation, numbers that run out.

use super::*;
use crate::les::{HeaderWriter, Toward};

#[test]
fn an_hour_renews_and_nothing_is_lost() {
    for handshake in [Handshake::Short, Handshake::Paper, Handshake::Psk] {
        let mut world = World::standing(handshake);
        let mut sent = 0_u32;
        // From 59 min 50 s on, a packet each way every 50 ms, through the change.
        world.run(REKEY - Duration::from_secs(12));
        for _ in 0..400 {
            assert!(world.a_sends(&sent.to_be_bytes()) && world.b_sends(&sent.to_be_bytes()));
            sent += 1;
            world.run(Duration::from_millis(50));
        }
        world.run(Duration::from_secs(1));
        let expected: Vec<_> = (0..sent)
            .map(|number| number.to_be_bytes().to_vec())
            .collect();
        assert_eq!((world.at('a'), world.at('b')), {
            let all: Vec<_> = expected.iter().map(|it| &it[..]).collect();
            (all.clone(), all)
        });
        assert_eq!((world.lost, world.established.len()), (0, 4));
        let names: Vec<_> = world.a.live().receives().collect();
        assert_eq!(names.len(), 2, "the old one lingers");
        world.run(LINGER);
        let left: Vec<_> = world.a.live().receives().collect();
        assert_eq!(left, names[1..]);
        assert_eq!(world.b.live().receives().count(), 1);
    }
}

#[test]
fn old_keys_are_erased_after_120_s_and_not_before() {
    let mut world = World::standing(Handshake::Short);
    world.run(REKEY - Duration::from_secs(3));
    let mut old = BytesMut::new();
    let mut late = BytesMut::new();
    world.a.live().seal(&inner(b"old"), &mut old).unwrap();
    world.a.live().seal(&inner(b"late"), &mut late).unwrap();
    let before = world.established.len();
    while world.established.len() < before + 2 {
        world.run(Duration::from_millis(10));
    }
    world.run(LINGER - Duration::from_secs(2));
    world.packet_to_b(&old);
    assert_eq!(world.at('b'), [b"old"]);
    world.run(Duration::from_secs(4));
    world.packet_to_b(&late);
    assert_eq!(world.at('b'), [b"old"]);
    world.run(HELD_TIME);
    assert_eq!(world.held.handle_timeout(world.now), 1);
}

#[test]
fn every_association_has_names_and_keys_of_its_own() {
    let mut world = World::new(Handshake::Paper);
    world.run(10 * REKEY);
    let mut names: Vec<_> = world.grants.iter().map(|(_, grant)| grant.spis).collect();
    names.dedup();
    assert_eq!(names.len(), 10);
    let mut all: Vec<_> = names.iter().flat_map(|it| [it.to_a, it.to_b]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 20);
    let mut roots: Vec<_> = world.grants.iter().map(|it| *it.1.root.bytes()).collect();
    roots.dedup();
    assert_eq!(roots.len(), 10);
}

#[test]
fn numbers_that_run_out_renew_whoever_uses_them() {
    for own in [true, false] {
        let mut world = World::standing(Handshake::Short);
        let exporter = material(0, 1).exporter;
        let spis = crate::les::Roots::short_spis(&exporter).unwrap();
        let random = material(0, 1).random;
        let roots = crate::les::Roots::derive(&exporter, 0, random.bytes(), None, spis);
        let (mut a, mut b) = (roots.end_a().0, roots.end_b().0);
        let left = super::super::super::MAX_NUMBER - RENEW_AT;
        if own {
            a.spend_all_but(left + 1, 9);
            world.a.live().send(world.now, 0, a);
            assert_eq!(world.a.due(world.now), None);
            assert!(world.a_sends(b"x"));
        } else {
            b.spend_all_but(left + 2, 9);
            let mut out = BytesMut::new();
            b.seal(&inner_back(b"x"), &mut out).unwrap();
            world.packet_to_a(&out);
            assert_eq!(world.a.due(world.now), None);
            out.clear();
            b.seal(&inner_back(b"y"), &mut out).unwrap();
            world.packet_to_a(&out);
        }
        assert_eq!(world.a.due(world.now), Some(1), "{own}");
    }
}

impl World {
    /// The first PEP resets a connection at both ends, in the association that has been taken from it.
    fn last_words(&mut self, taken: bool) {
        let grant = &self.grants[0].1;
        let (root, spis, writer) = (grant.root.clone(), grant.spis, grant.writer);
        let ways = [(Toward::B, inner(b"")), (Toward::A, inner_back(b""))];
        for (number, (toward, mut rst)) in ways.into_iter().enumerate() {
            // The flags of TCP: RST alone.
            rst[33] = 4;
            let mut out = BytesMut::new();
            let mut pep = HeaderWriter::new(&root, spis.of(toward), toward, writer);
            if !taken {
                // A number of its own.
                pep.write(&rst, None, &mut BytesMut::new()).unwrap();
            }
            pep.write(&rst, None, &mut out).unwrap();
            let (now, mut opened) = (self.now, Vec::new());
            let said = match number {
                0 => self.b.open(now, &out, &mut opened),
                _ => self.a.live().open(now, &out, &mut opened),
            };
            assert_eq!(said == Ok(Delivered::GaveUp), taken, "{toward:?}: {said:?}");
        }
    }
}

#[test]
fn a_revoked_pep_reads_nothing_more() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::standing(handshake);
        world.a.revoke(world.now, PepKey([9; 32]));
        assert!(world.a.live().stands(), "it was nobody's");
        world.a.revoke(world.now, PEPS[0]);
        assert!(!world.a_sends(b"x"), "it still has K2");
        world.run(Duration::from_secs(2));
        assert_eq!(world.withdrawn, [PEPS[0]]);
        let now: Vec<_> = world.grants[2..].iter().map(|it| it.0).collect();
        assert_eq!(now, [PEPS[1]]);
        assert!(world.grants[2].1.renewed, "it may have acknowledged bytes");
        world.last_words(true);
        world.run(LAST_WORDS);
        world.last_words(false);
        assert_eq!(world.a.live().receives().count(), 1);
        assert_eq!(world.b.live().receives().count(), 1);
        assert!(world.a_sends(b"up") && world.b_sends(b"down"));
        world.run(Duration::from_secs(1));
        assert_eq!(
            (world.at('b'), world.at('a')),
            (vec![&b"up"[..]], vec![&b"down"[..]])
        );
    }
}

#[test]
fn a_revocation_overtakes_an_association_that_is_being_made() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::new(handshake);
        world.settle();
        world.a.revoke(world.now, PEPS[1]);
        world.run(Duration::from_secs(2));
        assert!(world.established.contains(&('a', 1)));
        assert!(!world.established.contains(&('a', 0)));
        let last = &world.grants.last().unwrap();
        assert_eq!(last.0, PEPS[0]);
        assert!(world.a_sends(b"x"));
        world.run(Duration::from_secs(1));
        assert_eq!(world.at('b'), [b"x"]);
    }
}

#[test]
fn a_pep_that_comes_again_has_another_number_and_is_told() {
    let mut world = World::standing(Handshake::Short);
    world.a.introduce(PEPS[0]);
    world.a.introduce(PepKey([9; 32]));
    world.settle();
    let (pep, grant) = world.grants.last().unwrap();
    assert_eq!(
        (*pep, grant.writer.get(), grant.renewed),
        (PEPS[0], 4, true)
    );
    for _ in 5..=255 {
        world.a.introduce(PEPS[0]);
        assert_eq!(world.a.due(world.now), None);
    }
    world.a.introduce(PEPS[0]);
    assert_eq!(world.a.due(world.now), Some(1), "no number is left");
    world.settle();
    let mut numbers: Vec<_> = world
        .grants
        .iter()
        .map(|it| (it.1.spis.to_b, it.1.writer))
        .collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "none twice");
}

#[test]
fn a_pep_that_was_known_before_the_tunnel_is_told() {
    let mut own = plan(Handshake::Short);
    own.introduced = [PEPS[1]].into();
    own.accepted = PEPS.into();
    let mut a = Initiator::new(own);
    a.begin(origin(), material(0, 1));
    let grants: Vec<_> = std::iter::from_fn(|| a.poll_step())
        .filter_map(|step| match step {
            Step::Grant(_, grant) => Some(grant.renewed),
            _ => None,
        })
        .collect();
    assert_eq!(grants, [false, true]);
    assert_eq!(a.plan().introduced.len(), 2);
}

#[test]
fn packets_are_held_within_bounds() {
    let (mut held, now) = (Held::default(), origin());
    let packet = |spi: u32| [&spi.to_be_bytes()[..], &[0; 40]].concat();
    for _ in 0..HELD_PACKETS - 1 {
        assert!(held.hold(now, &packet(300), 1));
    }
    assert!(held.hold(now + Duration::from_secs(1), &packet(301), 2));
    assert!(!held.hold(now, &packet(302), 3), "no room");
    assert_eq!(held.deadline(), Some(now + HELD_TIME));
    let spi = Spi::new(301).unwrap();
    let late = now + HELD_TIME;
    assert_eq!(held.take(late, spi), [(2, packet(301))]);
    assert!(held.take(late, Spi::new(300).unwrap()).is_empty(), "over");
    assert_eq!((held.deadline(), held.handle_timeout(late)), (None, 0));
    assert!(!held.hold(late, &packet(255), 4) && !held.hold(late, &[0; 3], 4));
    assert!(!held.hold(late, &[9; 1500], 4), "no packet is so long");
}

#[test]
fn a_pep_that_is_added_is_in_the_next_association_and_the_one_before_goes_on() {
    for handshake in [Handshake::Short, Handshake::Paper] {
        let mut world = World::standing(handshake);
        let third = PepKey([3; 32]);
        world.known.push(third);
        world.a.admit(third);
        world.a.introduce(third);
        world.settle();
        assert!(world.a_sends(b"x") && world.grants.len() < 5);
        world.run(Duration::from_secs(2));
        let count = world.grants.iter().filter(|it| it.0 == third).count();
        assert_eq!((count, world.at('b').len(), world.lost), (1, 1, 0));
        let names: BTreeSet<_> = world.grants.iter().map(|it| it.1.spis.to_b).collect();
        assert_eq!(names.len(), 2);
    }
}
