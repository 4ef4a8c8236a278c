//! Lines to a PEP over loopback: closed with the client's tunnel at the cap of `[metering]`, and there again with its next.

use std::net::UdpSocket;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use super::*;
use crate::config::ServerAddress;
use crate::keys::PublicKey;
use crate::les_keys::KeyDoor;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A PEP that lists every client.
fn pep() -> LesPep {
    let (key, socket) = (PrivateKey::generate().unwrap(), socket());
    let address = ServerAddress::Ip(socket.local_addr().unwrap());
    let door = KeyDoor::open(socket, &key, Arc::new(|_: &PublicKey| true), false).unwrap();
    spawn_local(async move {
        let served = door.serve(|_| {}).await;
        panic!("{served:?}");
    });
    LesPep {
        name: "gateway".into(),
        address,
        public_key: key.public(),
    }
}

fn is_connected(peps: &Peps) -> bool {
    peps.report(|_| false)[0].connected
}

async fn until_connected(peps: &Peps) {
    for _ in 0..500 {
        peps.tick();
        if is_connected(peps) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("there is no line");
}

#[test]
fn lines_that_were_closed_come_back_when_they_are_wanted_and_not_before() {
    let runtime = process::runtime().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let directory = tempfile::tempdir().unwrap();
        let own = (&PrivateKey::generate().unwrap(), false);
        let place = (directory.path(), Lookups::marked(None));
        let peps = Rc::new(Peps::new(&[pep()], own, socket(), place).unwrap());
        let kept = peps.clone();
        spawn_local(async move {
            let kept = kept.keep(|_| {}).await;
            panic!("{kept:?}");
        });
        until_connected(&peps).await;
        for _ in 0..2 {
            peps.close();
            assert!(!is_connected(&peps));
            for _ in 0..10 {
                peps.tick();
                sleep(Duration::from_millis(20)).await;
            }
            assert!(!is_connected(&peps), "nobody wants it");
            assert_eq!(peps.list.borrow()[0].line, None);
            peps.reopen();
            until_connected(&peps).await;
        }
    });
}
