//! What a tunnel agrees on for flows that are sealed beside it: a name, random bytes, a secret that both ends have.

use std::time::Duration;

use bentpipe_proto::tunnel::EpochRandom;
use bentpipe_testbed::memory::memory;
use bentpipe_testbed::world::{World, preset};
use bentpipe_tunnel::engine::{Connection, random};
use zeroize::Zeroize as _;

use crate::inbound::{client, server};

/// One of a world's ends.
type End = fn(&mut World) -> &mut Connection;

const SOON: Duration = Duration::from_secs(60);

const NAME: (u32, u16) = (0x0102_0304, 4434);

/// Random bytes that are all the same.
fn plain(byte: u8) -> EpochRandom {
    EpochRandom::new(|bytes| bytes.fill(byte))
}

/// A world whose client asks for sealed flows with these random bytes, and whose server offers some if it is `offered`.
fn world(offered: bool, random: EpochRandom) -> World {
    let link = preset("geo").expect("a preset");
    let mut world = World::new(&link.link_config().expect("a link"), 3);
    let terminal = &mut world.terminals[0];
    let (id, _) = terminal.engine.connections().next().expect("an attempt");
    let attempt = terminal.engine.connection(id).expect("it is there");
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
    let mut world = world(true, plain(7));
    assert_eq!(
        client(&mut world).tunnel.agreement().sle_offered(),
        Some(NAME)
    );
    let take = |end: &mut Connection| {
        let random = end.tunnel.agreement_mut().take_sle_random();
        (random, end.exporter(b"a label", b""))
    };
    let (random, secret) = take(client(&mut world));
    assert_eq!(random, Some(plain(7)));
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
    let mut world = world(false, plain(7));
    for end in [client as End, server] {
        let tunnel = &mut end(&mut world).tunnel;
        assert_eq!(tunnel.agreement().sle_offered(), None);
        assert_eq!(tunnel.agreement_mut().take_sle_random(), None);
    }
}

/// The client asks for an epoch, the server confirms it, and both use new keys of the tunnel; no end finds a fault.
#[test]
fn epochs_begin_at_both_ends_one_after_the_other() {
    let mut world = world(true, plain(7));
    for epoch in 1..=3 {
        let random = plain(7 + epoch as u8);
        let tunnel = &mut client(&mut world).tunnel;
        tunnel.begin_sle_epoch(epoch, random.clone());
        world.run_for(Duration::from_secs(2));
        let begun = std::mem::take(&mut world.behaviour.sle_epochs);
        assert_eq!(begun, [(epoch, Some(random))]);
        assert!(world.terminals[0].sle_epochs.is_empty());
        server(&mut world).tunnel.confirm_sle_epoch(epoch);
        world.run_for(Duration::from_secs(2));
        let confirmed = std::mem::take(&mut world.terminals[0].sle_epochs);
        assert_eq!(confirmed, [epoch]);
        client(&mut world).renew_keys();
        world.timed_download(500_000);
        world.timed_upload(100_000);
    }
    assert!(world.terminals[0].notices.is_empty());
    assert!(world.is_ready());
}

/// Random bytes to be looked for in the memory of this process, of which the test itself holds none: each is masked.
struct Sought([u8; 32]);

impl Sought {
    const MASK: u8 = 0x5a;

    fn draw() -> Self {
        let mut masked = [0; 32];
        random(&mut masked);
        Self(masked)
    }

    /// The bytes as they are.
    fn random(&self) -> EpochRandom {
        EpochRandom::new(|bytes| {
            for (byte, masked) in bytes.iter_mut().zip(self.0) {
                *byte = masked ^ Self::MASK;
            }
        })
    }

    /// Copies of the second half: what manages freed memory writes over the beginning of it.
    fn copies(&self) -> usize {
        let masked = &self.0[16..];
        let is_it = |piece: &&[u8]| {
            let mut pairs = piece.iter().zip(masked);
            pairs.all(|(byte, masked)| byte ^ Self::MASK == *masked)
        };
        let mut memory = memory(std::process::id()).expect("memory of this process");
        let count = memory.windows(masked.len()).filter(is_it).count();
        // The next search would find what this one has freed.
        memory.zeroize();
        count
    }
}

/// Who seizes a process has the exporter, and must not have what makes old secrets of it (PROTOCOL.md §18.1).
#[test]
fn random_bytes_are_nowhere_once_both_ends_have_made_their_secrets() {
    let [first, next] = [Sought::draw(), Sought::draw()];
    let mut world = world(true, first.random());
    assert!(first.copies() > 0, "the search finds what is there");
    for end in [client as End, server] {
        let random = end(&mut world).tunnel.agreement_mut().take_sle_random();
        assert_eq!(random, Some(first.random()));
    }
    let tunnel = &mut client(&mut world).tunnel;
    tunnel.begin_sle_epoch(1, next.random());
    world.run_for(Duration::from_secs(2));
    assert!(next.copies() > 0, "the search finds what is there");
    let begun = std::mem::take(&mut world.behaviour.sle_epochs);
    assert_eq!(begun, [(1, Some(next.random()))]);
    drop(begun);
    // Acknowledgements cross, and what the QUIC library has freed is used for other datagrams.
    world.timed_download(2_000_000);
    world.timed_upload(2_000_000);
    assert_eq!([first.copies(), next.copies()], [0, 0]);
}

#[test]
fn an_epoch_out_of_place_ends_the_tunnel() {
    // One that nobody agreed on, and one that a server begins.
    for (offered, begins) in [(false, false), (true, true)] {
        let mut world = world(offered, plain(7));
        world.terminals[0].expects_fault = true;
        let tunnel = &mut server(&mut world).tunnel;
        match begins {
            true => tunnel.begin_sle_epoch(1, plain(9)),
            false => tunnel.confirm_sle_epoch(1),
        }
        world.run_for(Duration::from_secs(2));
        let said = world.terminals[0].notices.first();
        let (_, said) = said.expect("a fault");
        assert!(said.contains("an epoch of SLE out of place"), "{said}");
    }
}
