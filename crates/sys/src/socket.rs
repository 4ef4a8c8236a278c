//! Socket options that need Linux or a privilege: transparent listeners, marks, queue lengths.
//!
//! Set-up of the relay's LAN side and of the tunnel's own sockets, plus one query on the data path
//! ([`unsent_bytes`]) and one beside it ([`dropped_datagrams`]). It never reads or writes data.
#![expect(
    unsafe_code,
    reason = "SIOCOUTQ, SO_MEMINFO and SO_ATTACH_REUSEPORT_CBPF have no safe wrappers"
)]

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr;

use rustix::ioctl::{Getter, Opcode, ioctl};
use socket2::{Domain, SockRef, Socket, Type};

/// `SIOCOUTQ`, the same number on every architecture we support.
const SIOCOUTQ: Opcode = 0x5411;
/// Connections that wait for `accept`; the kernel caps it at net.core.somaxconn (4096).
const BACKLOG: i32 = 4096;

/// A non-blocking listener for TPROXY: it accepts connections to any address, and the local address of
/// an accepted socket is the destination that the peer dialled. `mark` (0: none) goes to the listener
/// and from there to every accepted socket; pass the mark that is exempt from interception.
/// An IPv6 listener takes IPv6 alone: make one of each family.
///
/// # Errors
/// CAP_NET_ADMIN is missing or the address is taken; the text says which.
pub fn transparent_listener(addr: SocketAddr, mark: u32) -> io::Result<TcpListener> {
    make_listener(addr, mark).map_err(|error| {
        let mend = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; needs CAP_NET_ADMIN (run as root or in a user namespace)"
            }
            io::ErrorKind::AddrInUse => "; another process (a second client?) has it",
            _ => "",
        };
        io::Error::new(
            error.kind(),
            format!("cannot listen transparently on {addr}: {error}{mend}"),
        )
    })
}

fn make_listener(addr: SocketAddr, mark: u32) -> io::Result<TcpListener> {
    let socket = transparent(addr, mark, Type::STREAM)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A non-blocking socket bound to any address, also one that is not this machine's.
fn transparent(addr: SocketAddr, mark: u32, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), kind, None)?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_ip_transparent_v6(true)?;
    } else {
        socket.set_ip_transparent_v4(true)?;
    }
    // Not set when 0, so that a socket without a mark needs no privilege for one.
    if mark != 0 {
        socket.set_mark(mark)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// A non-blocking UDP socket that may have any address, also one that is not this machine's: what is sent from it seems to come
/// from there, and TPROXY may deliver to it. It shares the address with others that permit it. `mark` as for
/// [`transparent_listener`]; an IPv6 socket is for IPv6 alone.
///
/// # Errors
/// CAP_NET_ADMIN is missing, or CAP_NET_BIND_SERVICE for a port below 1024, or the address is taken; the text says which.
pub fn transparent_udp(addr: SocketAddr, mark: u32) -> io::Result<UdpSocket> {
    transparent(addr, mark, Type::DGRAM)
        .map(UdpSocket::from)
        .map_err(|error| {
            let mend = match error.kind() {
                io::ErrorKind::PermissionDenied if addr.port() < 1024 => {
                    "; needs CAP_NET_ADMIN and CAP_NET_BIND_SERVICE"
                }
                io::ErrorKind::PermissionDenied => "; needs CAP_NET_ADMIN",
                io::ErrorKind::AddrInUse => "; another process has it",
                _ => "",
            };
            let text = format!("cannot use {addr} transparently: {error}{mend}");
            io::Error::new(error.kind(), text)
        })
}

/// Sets the firewall mark of everything the socket sends.
///
/// # Errors
/// CAP_NET_ADMIN is missing.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    SockRef::from(socket).set_mark(mark).map_err(|error| {
        let text = format!("cannot set socket mark {mark:#x}: {error}; needs CAP_NET_ADMIN");
        io::Error::new(error.kind(), text)
    })
}

/// Bytes written to a TCP socket that the peer has not acknowledged yet, whether sent or not; a FIN
/// that was sent but not acknowledged counts as one.
///
/// # Errors
/// The descriptor is no connected TCP socket.
pub fn unsent_bytes(socket: &impl AsFd) -> io::Result<u32> {
    // SAFETY: SIOCOUTQ writes one `int` and nothing else.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Datagrams that have come since the socket was opened and that it had no room for, or whose checksum was wrong.
///
/// # Errors
/// The descriptor is no socket.
pub fn dropped_datagrams(socket: &impl AsFd) -> io::Result<u32> {
    // As many numbers as there have been since Linux 4.12; this is the last.
    const DROPS: usize = 8;
    let mut info = [0_u32; DROPS + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` has room for `length` bytes, of which the kernel writes no more.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match done {
        0 => Ok(info[DROPS]),
        _ => Err(io::Error::last_os_error()),
    }
}

/// QUIC connection IDs by which the kernel chooses among UDP sockets on one address.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    /// Length of an ID that names a socket by its first byte, in bytes.
    pub id_length: u8,
    /// Value of that byte for the socket that was bound first; the others follow in the order in which they were bound.
    pub first: u8,
}

/// Has the kernel give each datagram to the socket that its connection ID names (RFC 9000 §17), of all that share the address
/// of `socket` by SO_REUSEPORT. Datagrams that name none are spread by address, as without this.
///
/// # Errors
/// The socket does not share its address, or the kernel takes no such program.
pub fn steer(socket: &impl AsFd, steering: Steering) -> io::Result<()> {
    let mut program = steering_program(steering);
    let filter = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` names `program.len()` instructions that outlive the call, which copies them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            ptr::from_ref(&filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Classic BPF over a datagram's payload; what it returns is the number of a socket, or too large, which means none.
fn steering_program(Steering { id_length, first }: Steering) -> [libc::sock_filter; 14] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const LOAD_SIZE: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const IF_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    const SUBTRACT: u32 = libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K;
    const GO: u32 = libc::BPF_JMP | libc::BPF_JA;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const RETURN_VALUE: u32 = libc::BPF_RET | libc::BPF_A;
    let step = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    [
        // Shorter than any that names a socket.
        step(LOAD_SIZE, 0, 0, 0),
        step(IF_GREATER, id_length.into(), 0, 11),
        step(LOAD_BYTE, 0, 0, 0),
        step(IF_SET, 0x80, 2, 0),
        // A short header: the ID comes next.
        step(LOAD_BYTE, 1, 0, 0),
        step(GO, 5, 0, 0),
        // A long one: version 1, the ID's length, the ID.
        step(LOAD_WORD, 1, 0, 0),
        step(IF_EQUAL, 1, 0, 5),
        step(LOAD_BYTE, 5, 0, 0),
        step(IF_EQUAL, id_length.into(), 0, 3),
        step(LOAD_BYTE, 6, 0, 0),
        // What is less than `first` becomes larger than any number of sockets.
        step(SUBTRACT, first.into(), 0, 0),
        step(RETURN_VALUE, 0, 0, 0),
        step(RETURN, u32::MAX, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn unsent_bytes_counts_what_the_peer_has_not_taken() {
        let (mut client, _server) = pair();
        client.set_nonblocking(true).unwrap();
        let chunk = vec![0; 1 << 20];
        // Until both buffers are full; what then remains is unacknowledged.
        while client.write(&chunk).is_ok() {}
        assert!(unsent_bytes(&client).unwrap() > 0);
    }

    #[test]
    fn what_found_no_room_is_known() {
        let receiver = crate::datagram::open_udp(false).unwrap();
        let to = ("127.0.0.1", receiver.local_addr().unwrap().port());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(dropped_datagrams(&receiver).unwrap(), 0);
        for _ in 0..20_000 {
            sender.send_to(&[0; 200], to).unwrap();
        }
        let held = std::iter::from_fn(|| receiver.recv(&mut [0; 200]).ok()).count();
        // More than sockets have that ask for nothing.
        assert!(held > 300, "{held}");
        let lost = dropped_datagrams(&receiver).unwrap();
        assert_eq!(held + lost as usize, 20_000);
    }

    #[test]
    fn a_taken_address_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        let error = transparent_listener(addr, 0).unwrap_err();
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
    }

    #[test]
    fn the_kernel_gives_datagrams_to_whom_they_name() {
        let share = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket
        };
        let first = share();
        first
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        let second = share();
        second.bind(&first.local_addr().unwrap()).unwrap();
        let sockets: [UdpSocket; 2] = [first.into(), second.into()];
        let steering = Steering {
            id_length: 8,
            first: 4,
        };
        steer(&sockets[1], steering).unwrap();
        let got = |datagram: &[u8]| {
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            sender
                .send_to(datagram, sockets[0].local_addr().unwrap())
                .unwrap();
            let has = |socket: &UdpSocket| {
                let patience = Some(Duration::from_millis(20));
                socket.set_read_timeout(patience).unwrap();
                socket.recv(&mut [0; 100]).is_ok()
            };
            [has(&sockets[0]), has(&sockets[1])]
        };
        let short = |shard| [&[0x40, shard][..], &[0; 30]].concat();
        let long = |shard| [&[0xe0, 0, 0, 0, 1, 8, shard][..], &[0; 30]].concat();
        for _ in 0..8 {
            // From another port each time, which would share them out by chance.
            assert_eq!(got(&short(4)), [true, false]);
            assert_eq!(got(&short(5)), [false, true]);
            assert_eq!(got(&long(4)), [true, false]);
            assert_eq!(got(&long(5)), [false, true]);
        }
        let first = [&[0xc0, 0, 0, 0, 1, 12, 5][..], &[0; 30]].concat();
        let others: [&[u8]; 5] = [&first, &short(3), &short(6), &[0x40, 5], &[]];
        for named_by_none in others {
            let spread: Vec<_> = (0..24).map(|_| got(named_by_none)).collect();
            assert!(spread.contains(&[true, false]), "{named_by_none:?}");
            assert!(spread.contains(&[false, true]), "{named_by_none:?}");
        }
    }
}
