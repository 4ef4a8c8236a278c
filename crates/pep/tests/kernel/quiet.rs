//! The server's table against the real kernel: nobody hears that a port is closed, and only that port's.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use bentpipe_pep::server::forwarding::ServerTable;
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;

/// What a sender to a closed port hears.
fn hears(host: &str, port: u16) -> io::ErrorKind {
    let socket = UdpSocket::bind((host, 0)).unwrap();
    socket.connect((host, port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    socket.send(b"datagram").unwrap();
    socket.recv(&mut [0; 8]).unwrap_err().kind()
}

#[test]
fn a_killed_servers_port_stays_silent() {
    if !privileged("a_killed_servers_port_stays_silent") {
        return;
    }
    let namespace = namespace("quiet");
    namespace.run("ip", &["link", "set", "lo", "up"]).unwrap();
    namespace
        .enter(|| {
            let quiet = ServerTable::install(&[4433]).unwrap();
            for host in ["127.0.0.1", "::1"] {
                assert_eq!(hears(host, 4433), io::ErrorKind::WouldBlock, "{host}");
                assert_eq!(
                    hears(host, 4434),
                    io::ErrorKind::ConnectionRefused,
                    "{host}"
                );
            }
            drop(quiet);
            assert_eq!(hears("127.0.0.1", 4433), io::ErrorKind::ConnectionRefused);
        })
        .unwrap();
}
