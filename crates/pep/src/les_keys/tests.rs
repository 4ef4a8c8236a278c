//! The door over loopback: who gets in, and what becomes of keys.

use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_sealed::les::sa::{Grant, Word};
use bentpipe_sealed::les::{HeaderRoot, Spi, SpiPair, Writer};
use bentpipe_units::Seed;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;
use zeroize::Zeroizing;

use super::*;
use crate::keys::{PrivateKey, PublicKey};
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::lines::{LineCode, LineEnd};

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn grant(number: u32, writer: u8) -> Word {
    Word::Grant(Box::new(Grant {
        spis: SpiPair {
            to_b: Spi::new(number).unwrap(),
            to_a: Spi::new(number + 1).unwrap(),
        },
        ends: ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()],
        selectors: Vec::new(),
        writer: Writer::new(writer),
        root: HeaderRoot::new(Zeroizing::new([number as u8; 32])),
        lifetime: Duration::from_secs(3780),
        renewed: false,
    }))
}

/// A door, clients of it, and what has happened there.
struct Scene {
    door: Rc<KeyDoor>,
    address: SocketAddr,
    pep: PublicKey,
    listed: Arc<Mutex<Vec<PublicKey>>>,
    events: Rc<RefCell<Vec<KeyEvent>>>,
}

impl Scene {
    fn new() -> Self {
        let (key, listed) = (PrivateKey::generate().unwrap(), Arc::default());
        let known: Arc<Mutex<Vec<PublicKey>>> = Arc::clone(&listed);
        let accepts = Arc::new(move |key: &PublicKey| known.lock().unwrap().contains(key));
        let socket = socket();
        let address = socket.local_addr().unwrap();
        let door = Rc::new(KeyDoor::open(socket, &key, accepts, false).unwrap());
        let events = Rc::<RefCell<Vec<KeyEvent>>>::default();
        let (serving, told) = (door.clone(), events.clone());
        spawn_local(async move {
            let served = serving.serve(|event| told.borrow_mut().push(event));
            panic!("{:?}", served.await);
        });
        Self {
            door,
            address,
            pep: key.public(),
            listed,
            events,
        }
    }

    /// Lines of a client with this key, the line to the door, and how that ends.
    fn client(&self, key: &PrivateKey) -> (Rc<KeyLines>, ConnectionId, Rc<RefCell<Vec<LineEnd>>>) {
        let lines = Lines::new(identity::reset_key(key), None, Seed::new(1));
        let lines = Rc::new(KeyLines::new(socket(), lines).unwrap());
        let crypto = identity::les_client_crypto(key, self.pep, false).unwrap();
        let line = lines.with(|lines, now| lines.connect(now, crypto, self.address).unwrap());
        let (driven, ends) = (lines.clone(), Rc::<RefCell<Vec<LineEnd>>>::default());
        let told = ends.clone();
        spawn_local(async move {
            let driven = driven.drive(|_, notice| {
                if let LineNotice::Down(end) = notice {
                    told.borrow_mut().push(end);
                }
            });
            panic!("{:?}", driven.await);
        });
        (lines, line, ends)
    }

    async fn until(&self, reached: impl Fn() -> bool) {
        for _ in 0..1000 {
            if reached() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {:?}", self.events.borrow());
    }
}

fn on_scene<F: Future<Output = ()>>(case: impl FnOnce(Scene) -> F) {
    let runtime = process::runtime().unwrap();
    LocalSet::new().block_on(&runtime, async { case(Scene::new()).await });
}

#[test]
fn keys_of_a_listed_client_are_held_until_it_ends_or_revokes_them() {
    on_scene(|scene| async move {
        let key = PrivateKey::generate().unwrap();
        scene.listed.lock().unwrap().push(key.public());
        let (lines, line, ends) = scene.client(&key);
        let say = |word: &Word| lines.with(|lines, now| lines.send(now, line, &word.encode()));
        say(&grant(300, 2));
        say(&grant(400, 2));
        let count = || scene.door.grants().len();
        scene.until(|| count() == 2).await;
        assert_eq!(scene.door.clients().len(), 1);
        let spis = |number: u32| SpiPair {
            to_b: Spi::new(number).unwrap(),
            to_a: Spi::new(number + 1).unwrap(),
        };
        say(&Word::Ended(spis(300)));
        scene.until(|| count() == 1).await;
        lines.with(|lines, now| lines.close(now, line, LineCode::Revoked, ""));
        scene.until(|| count() == 0).await;
        let events = scene.events.borrow();
        assert!(matches!(events[0], KeyEvent::Connected(_)));
        assert!(matches!(events[4], KeyEvent::Withdrawn(_)), "{events:?}");
        assert!(ends.borrow().is_empty() && scene.door.clients().is_empty());
    });
}

#[test]
fn a_pair_whose_last_key_is_ended_is_to_be_reset() {
    on_scene(|scene| async move {
        let key = PrivateKey::generate().unwrap();
        scene.listed.lock().unwrap().push(key.public());
        let (lines, line, _) = scene.client(&key);
        let say = |word: &Word| lines.with(|lines, now| lines.send(now, line, &word.encode()));
        say(&grant(300, 2));
        let spis = SpiPair {
            to_b: Spi::new(300).unwrap(),
            to_a: Spi::new(301).unwrap(),
        };
        say(&Word::Ended(spis));
        let withdrawn = |event: &KeyEvent| matches!(event, KeyEvent::Withdrawn(_));
        scene
            .until(|| scene.events.borrow().iter().any(withdrawn))
            .await;
        let told = scene.events.borrow().iter().copied().find(withdrawn);
        let Some(KeyEvent::Withdrawn(pair)) = told else {
            unreachable!("it was found");
        };
        // Its ends can still be told.
        let scope = pair.scope();
        assert!(scene.door.grants().holds(&scope) && !scene.door.grants().stays(&scope));
    });
}

#[test]
fn a_client_that_breaks_the_protocol_or_leaves_the_list_is_put_out_with_its_keys() {
    on_scene(|scene| async move {
        let keys = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let public = keys.iter().map(PrivateKey::public);
        scene.listed.lock().unwrap().extend(public);
        let clients = keys.each_ref().map(|key| scene.client(key));
        for (index, (lines, line, _)) in clients.iter().enumerate() {
            let word = grant(300 + 10 * index as u32, 2).encode();
            lines.with(|lines, now| lines.send(now, *line, &word));
        }
        let count = || scene.door.grants().len();
        scene.until(|| count() == 2).await;
        // The number of a writer again: its counters would begin anew.
        let (lines, line, ends) = &clients[0];
        lines.with(|lines, now| lines.send(now, *line, &grant(300, 2).encode()));
        scene.until(|| !ends.borrow().is_empty()).await;
        assert_eq!(ends.borrow()[0], LineEnd::Closed(LineCode::Violation));
        assert_eq!(count(), 1);
        scene.listed.lock().unwrap().clear();
        scene.door.recheck(|_| {});
        assert_eq!(count(), 0);
        let ends = &clients[1].2;
        scene.until(|| !ends.borrow().is_empty()).await;
        assert_eq!(ends.borrow()[0], LineEnd::Closed(LineCode::Delisted));
    });
}

#[test]
fn whoever_is_not_listed_is_told_so() {
    on_scene(|scene| async move {
        let key = PrivateKey::generate().unwrap();
        let (lines, line, ends) = scene.client(&key);
        lines.with(|lines, now| lines.send(now, line, &grant(300, 2).encode()));
        scene.until(|| !ends.borrow().is_empty()).await;
        assert_eq!(ends.borrow()[0], LineEnd::NotListed);
        assert!(scene.events.borrow().is_empty() && scene.door.grants().is_empty());
    });
}
