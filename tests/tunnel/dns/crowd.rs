//! One host floods the resolver with names that nobody answers for: the others of its LAN are answered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bentpipe_emulator::topology::TERMINAL_LAN;
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;

use super::beside::plain;
use super::resolver::{Resolver, TRUE};
use super::{query, verdict, web};

/// Names that the other host asks for, one after the other.
const ASKED: usize = 30;

/// From one question of the flood to the next.
const FLOOD: Duration = Duration::from_millis(10);

/// Address of the other host.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 88);

#[test]
fn who_floods_the_resolver_does_not_keep_others_from_it() {
    if !privileged("dns: a crowd") {
        return;
    }
    let mut site = plain("");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let user: Place = site.topology.user().into();
    let address = format!("{OTHER}/24");
    let added = ["addr", "add", &address, "dev", "eth0"];
    site.topology.user().run("ip", &added).expect("an address");
    let bind = |from: Ipv4Addr| {
        let bound = user.at(|| {
            let socket = UdpSocket::bind((from, 0))?;
            socket.connect(SocketAddr::new(TERMINAL_LAN.into(), 53))?;
            socket.set_read_timeout(Some(Duration::from_secs(8)))?;
            Ok::<_, io::Error>(socket)
        });
        bound.expect("the place").expect("a socket")
    };
    let (greedy, other) = (bind(Ipv4Addr::UNSPECIFIED), bind(OTHER));
    let done = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let _ = greedy.send(&query(&format!("silent.n{number}.example")));
                thread::sleep(FLOOD);
            }
        });
        // Until as many are under way as may be.
        thread::sleep(Duration::from_secs(4));
        let mut buffer = [0; 1024];
        let answered = (0..ASKED).filter(|number| {
            let name = format!("n{number}.example");
            other.send(&query(&name)).is_ok()
                && other
                    .recv(&mut buffer)
                    .is_ok_and(|n| verdict(&buffer[..n]) == (0, Some(TRUE)))
        });
        let answered = answered.count();
        done.store(true, Ordering::Relaxed);
        answered
    });
    assert_eq!(answered, ASKED, "{}", site.logs());
}
