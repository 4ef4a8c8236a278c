//! Sockets of this machine (sock_diag(7)): programs' own by the address that they talk to, found and ended; transparent ones by what
//! their hosts have not acknowledged, counted, whether a program has them still or the kernel alone.
//!
//! ```text
//!   end_sockets ── inet_diag: all of a protocol ──► those to `peers` ── SOCK_DESTROY ──► the program hears ECONNABORTED
//!   undelivered ── inet_diag: TCP that may owe ──► transparent, with a queue ──► how many
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use rustix::io::Errno;

use crate::netlink::Netlink;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// States of sockets that have a peer and a program, as bits: all but waiting for the end of time (6), closed (7) and listening
/// (10).
const WITH_PEER: u32 = 0xfff & !(1 << 6) & !(1 << 7) & !(1 << 10);

/// States of TCP sockets whose other end may have bytes or FIN to acknowledge, as bits: established (1), and all in which this end or
/// the other one closes but nothing is acknowledged for good (4, 8, 9, 11).
const OWING: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;

/// Attribute with options of the socket (`INET_DIAG_SOCKOPT`), and IP_TRANSPARENT in its first byte, of C's bit fields.
const OPTIONS: u16 = 22;
const TRANSPARENT: u8 = if cfg!(target_endian = "big") {
    1 << 2
} else {
    1 << 5
};

/// Length of `struct inet_diag_msg`, behind which the attributes are, and in it the place of what waits to be acknowledged, bytes.
const MESSAGE: usize = 72;
const UNACKNOWLEDGED_AT: usize = 60;

/// Length of `struct inet_diag_sockid`, bytes: ports, addresses, interface, cookie.
const IDENTITY: usize = 48;

/// Place of the identity in `struct inet_diag_msg`, and in it of the peer's address.
const IDENTITY_AT: usize = 4;
const PEER_AT: usize = 20;

/// Ends all TCP connections and connected UDP sockets of this network namespace whose peer is in `peers`; returns how many.
///
/// # Errors
/// The privilege (CAP_NET_ADMIN) is missing, or the kernel cannot do it: it needs `CONFIG_INET_DIAG_DESTROY`.
pub fn end_sockets(peers: &[IpNet]) -> io::Result<usize> {
    let mut ended = 0;
    for family in [AF_INET, AF_INET6] {
        for protocol in [TCP, UDP] {
            match end_some((family, protocol), peers) {
                Ok(some) => ended += some,
                // A machine without IPv6 has no socket of it.
                Err(error) if family == AF_INET6 && is(&error, Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(ended)
}

/// Number of transparent TCP connections (TPROXY's) of this network namespace whose other end has not acknowledged all that it was
/// sent, FIN included. Kernels before 5.10 do not tell which are transparent: then it is 0.
///
/// # Errors
/// The kernel has no `CONFIG_INET_DIAG`.
pub fn undelivered() -> io::Result<usize> {
    let mut netlink = Netlink::open(NETLINK_SOCK_DIAG)?;
    let mut count = 0;
    for family in [AF_INET, AF_INET6] {
        let all = request((family, TCP), OWING, &[0; IDENTITY]);
        match netlink.dump_some(SOCK_DIAG_BY_FAMILY, &all, owes_as_transparent) {
            Ok(some) => count += some.len(),
            // A machine without IPv6 has no socket of it.
            Err(error) if family == AF_INET6 && is(&error, Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// True if `message` is about a transparent socket with something to deliver.
fn owes_as_transparent(message: &[u8]) -> bool {
    let owes = message
        .get(UNACKNOWLEDGED_AT..UNACKNOWLEDGED_AT + 4)
        .is_some_and(|bytes| bytes != [0; 4]);
    owes && options(message).is_some_and(|options| options & TRANSPARENT != 0)
}

/// First byte of the socket's options; `None` if the kernel does not tell them.
fn options(message: &[u8]) -> Option<u8> {
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let [a, b, c, d, ..] = *attributes else {
            return None;
        };
        let (length, kind) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        if kind == OPTIONS {
            return attributes.get(4).copied();
        }
        // Of no length at all there would be no end.
        let length = usize::from(length.max(4)).next_multiple_of(4);
        attributes = attributes.get(length..)?;
    }
}

fn end_some((family, protocol): (u8, u8), peers: &[IpNet]) -> io::Result<usize> {
    let mut netlink = Netlink::open(NETLINK_SOCK_DIAG)?;
    let all = request((family, protocol), WITH_PEER, &[0; IDENTITY]);
    let sockets = netlink.dump(SOCK_DIAG_BY_FAMILY, &all)?;
    let mut ended = 0;
    for socket in &sockets {
        let Some(identity) = identity(&socket.body) else {
            continue;
        };
        let peer = peer(family, identity);
        if !peers.iter().any(|own| own.contains(&peer)) {
            continue;
        }
        let one = request((family, protocol), WITH_PEER, identity);
        match netlink.request(SOCK_DESTROY, 0, &one) {
            Ok(()) => ended += 1,
            // It has ended meanwhile, or no program has it any more: older kernels end none of those.
            Err(error) if is(&error, Errno::NOENT) || is(&error, Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ended)
}

fn is(error: &io::Error, code: Errno) -> bool {
    error.raw_os_error() == Some(code.raw_os_error())
}

/// `struct inet_diag_req_v2`.
fn request((family, protocol): (u8, u8), states: u32, identity: &[u8; IDENTITY]) -> Vec<u8> {
    let mut bytes = vec![family, protocol, 0, 0];
    bytes.extend_from_slice(&states.to_ne_bytes());
    bytes.extend_from_slice(identity);
    bytes
}

/// Identity in `struct inet_diag_msg`; `None` if that is cut off.
fn identity(message: &[u8]) -> Option<&[u8; IDENTITY]> {
    message.get(IDENTITY_AT..)?.first_chunk()
}

/// Address of the peer; that of an IPv4 peer in its own form.
fn peer(family: u8, identity: &[u8; IDENTITY]) -> IpAddr {
    let address: [u8; 16] = std::array::from_fn(|at| identity[PEER_AT + at]);
    match family {
        AF_INET => {
            let [a, b, c, d, ..] = address;
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => Ipv6Addr::from(address).to_canonical(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::netns::NetNs;

    /// Both ends of a connection to `listening`, reached at `address`.
    fn pair(listening: &str, address: &str) -> [TcpStream; 2] {
        let listener = TcpListener::bind((listening, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let to: SocketAddr = (address.parse::<IpAddr>().unwrap(), port).into();
        let near = TcpStream::connect(to).unwrap();
        [near, listener.accept().unwrap().0]
    }

    fn is_ended(stream: &mut TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => error.kind() == ErrorKind::ConnectionAborted,
            Ok(_) => false,
        }
    }

    #[test]
    fn what_a_transparent_socket_has_to_deliver_is_seen_after_its_program_has_closed_it() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = NetNs::temporary("undelivered").unwrap();
        place.run("ip", &["link", "set", "lo", "up"]).unwrap();
        place.enter(deliver).unwrap();
    }

    fn deliver() {
        for loopback in ["127.0.0.1", "::1"] {
            let address = (loopback.parse::<IpAddr>().unwrap(), 0).into();
            let listener = crate::socket::transparent_listener(address, 0).unwrap();
            listener.set_nonblocking(false).unwrap();
            let mut host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (near, _) = listener.accept().unwrap();
            assert_eq!(undelivered().unwrap(), 0);
            near.set_nonblocking(true).unwrap();
            while (&near).write(&[7; 65_536]).is_ok() {}
            // What an ordinary socket has to deliver does not count.
            let [ordinary, _other] = pair(loopback, loopback);
            ordinary.set_nonblocking(true).unwrap();
            while (&ordinary).write(&[7; 65_536]).is_ok() {}
            assert_eq!(undelivered().unwrap(), 1);
            drop(near);
            assert_eq!(undelivered().unwrap(), 1, "the kernel has it");
            host.read_to_end(&mut Vec::new()).unwrap();
            drop(host);
            // The kernel may take a moment on a busy machine.
            let mut looks = (0..1000).map(|_| {
                thread::sleep(Duration::from_millis(10));
                undelivered().unwrap()
            });
            assert!(looks.any(|undelivered| undelivered == 0), "for 10 s");
        }
    }

    #[test]
    fn sockets_to_the_peers_end_and_no_others() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = NetNs::temporary("live-sockets").unwrap();
        place.run("ip", &["link", "set", "lo", "up"]).unwrap();
        place.enter(check).unwrap();
    }

    fn check() {
        let end = |peer: &str| end_sockets(&[peer.parse().unwrap()]).unwrap();
        let mut six = pair("::1", "::1");
        // The second has a socket for both families, whose peer is an IPv4 address.
        let mut four = [pair("127.0.0.1", "127.0.0.1"), pair("::", "127.0.0.1")];
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect("127.2.0.1:9").unwrap();
        assert_eq!(end("192.0.2.0/24"), 0);
        assert!(end("::1/128") >= 1);
        assert!(six.iter_mut().any(is_ended));
        assert!(!four.iter_mut().flatten().any(is_ended), "others stay");
        assert!(end("127.0.0.1/32") >= 2);
        assert!(four.iter_mut().all(|pair| pair.iter_mut().any(is_ended)));
        udp.send(b"x").expect("its peer is another");
        assert_eq!(end("127.2.0.0/16"), 1);
        let error = udp.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
}
