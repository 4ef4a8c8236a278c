//! UDP and ping sockets that need no privilege, for somebody else's datagrams: with the hop limit and traffic class of each, and
//! with what routers and hosts say about those that did not arrive.
//!
//! A ping socket sends ICMP echo requests and gets the replies to them; net.ipv4.ping_group_range says who may have one, also for
//! IPv6. A datagram's whole life is decided by the caller; this reads, writes and sets options.
#![expect(
    unsafe_code,
    reason = "recvmsg with the control messages of errors has no safe wrapper"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr;

use libc::{c_int, c_void};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Bytes that may wait at one socket while a busy machine runs something else: a second of 1000 datagrams, as the kernel counts
/// them. It gives as much of that as net.core.rmem_max and wmem_max permit.
const ROOM: usize = 1 << 20;

/// Control messages of one datagram: class, hop limit, and an error with the address that it came from.
const CONTROL: usize = 256;

/// A non-blocking UDP socket of one family, on a port that the kernel chooses.
///
/// # Errors
/// Too many files are open.
pub fn open_udp(ipv6: bool) -> io::Result<UdpSocket> {
    let socket = open(ipv6, Protocol::UDP)?;
    let any: IpAddr = match ipv6 {
        false => Ipv4Addr::UNSPECIFIED.into(),
        true => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, 0).into())?;
    Ok(socket.into())
}

/// A non-blocking ping socket of one family; its port is the identifier that its requests bear.
///
/// # Errors
/// This process's group is not in net.ipv4.ping_group_range; the text says so.
pub fn open_echo(ipv6: bool) -> io::Result<UdpSocket> {
    let protocol = match ipv6 {
        false => Protocol::ICMPV4,
        true => Protocol::ICMPV6,
    };
    match open(ipv6, protocol) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = format!(
                "cannot ping: {error}; needs the server's group in net.ipv4.ping_group_range \
                 (`sysctl net.ipv4.ping_group_range=\"0 2147483647\"` as root)"
            );
            Err(io::Error::new(error.kind(), text))
        }
        other => other.map(UdpSocket::from),
    }
}

fn open(ipv6: bool, protocol: Protocol) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(ROOM)?;
    socket.set_send_buffer_size(ROOM)?;
    let (level, options) = match ipv6 {
        false => (libc::IPPROTO_IP, [libc::IP_RECVERR, libc::IP_RECVTTL]),
        true => (
            libc::IPPROTO_IPV6,
            [libc::IPV6_RECVERR, libc::IPV6_RECVHOPLIMIT],
        ),
    };
    options
        .into_iter()
        .try_for_each(|option| switch_on(&socket, level, option))?;
    match ipv6 {
        false => socket.set_recv_tos_v4(true)?,
        true => {
            socket.set_only_v6(true)?;
            socket.set_recv_tclass_v6(true)?;
        }
    }
    Ok(socket)
}

fn switch_on(socket: &Socket, level: c_int, option: c_int) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the option's value is one `int`, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(&on).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Head of a datagram: its ends and its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Hop limit.
    pub hops: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Not to be cut on its way; always so with IPv6.
    pub whole: bool,
}

/// Sets the head of what the socket sends from now on. What is not whole is cut here if it has to be.
///
/// # Errors
/// The descriptor is no socket of this family.
pub fn set_head(socket: &impl AsFd, ipv6: bool, head: Head) -> io::Result<()> {
    let options = SockRef::from(socket);
    if ipv6 {
        options.set_unicast_hops_v6(head.hops.into())?;
        options.set_tclass_v6(head.traffic_class.into())?;
        return Ok(set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?);
    }
    options.set_ttl_v4(head.hops.into())?;
    options.set_tos_v4(head.traffic_class.into())?;
    let cut = match head.whole {
        true => Ipv4PathMtuDiscovery::DO,
        false => Ipv4PathMtuDiscovery::WANT,
    };
    Ok(set_ip_mtu_discover(socket, cut)?)
}

/// Sends one datagram. What was heard of earlier ones does not keep it back.
///
/// # Errors
/// The kernel's: no room now, no route, too large for the link.
pub fn send(socket: &impl AsFd, content: &[u8], to: SocketAddr) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let to = SockAddr::from(to);
    // An error of an earlier datagram is reported once, in place of sending; it waits in the queue of errors as well.
    let sent = match socket.send_to(content, &to) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => socket.send_to(content, &to),
        other => other,
    };
    sent.map(drop)
}

/// A datagram that came, or one that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer; of a failure, those of the datagram that it is about.
    pub length: usize,
    /// Address of its sender; of a failure, address that the datagram was sent to.
    pub peer: SocketAddr,
    /// Hop limit that was left.
    pub hops: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Reason, if this is about a datagram that did not arrive.
    pub failure: Option<Failure>,
}

/// Reason for which a datagram did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Address of the host that says so; `None`: this machine, because the datagram is too large for the link.
    pub from: Option<IpAddr>,
    /// Type and code of the ICMP message; nothing from this machine.
    pub said: (u8, u8),
    /// The largest packet that would pass, where it is said.
    pub mtu: u32,
}

/// One of a socket's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Datagrams that came.
    Datagrams,
    /// Reports of datagrams that did not arrive.
    Failures,
}

/// Reads the next of a queue. One that is longer than `buffer` is cut.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]: there is none. Others are failures, once each; what waits can be read after them.
pub fn receive(socket: &impl AsFd, queue: Queue, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let flags = match queue {
        Queue::Datagrams => 0,
        Queue::Failures => libc::MSG_ERRQUEUE,
    };
    // SAFETY: all zeros is a message without address, parts and control messages.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: the address's storage lives as long as the call; the buffers and the message do too, and have the lengths they say.
    let ((), peer) = unsafe {
        SockAddr::try_init(|storage, length| {
            message.msg_name = storage.cast::<c_void>();
            message.msg_namelen = *length;
            let read = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags);
            *length = message.msg_namelen;
            match usize::try_from(read) {
                Ok(read) => {
                    part.iov_len = read;
                    Ok(())
                }
                Err(_) => Err(io::Error::last_os_error()),
            }
        })
    }?;
    let nobody = || io::Error::other("a datagram without an address");
    let mut received = Received {
        length: part.iov_len,
        peer: peer.as_socket().ok_or_else(nobody)?,
        hops: 0,
        traffic_class: 0,
        failure: None,
    };
    // SAFETY: `message` is as recvmsg has left it, and `control` is still there.
    unsafe { each_control(&message, &mut received) };
    Ok(received)
}

/// Room for control messages, aligned as they must be.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// Takes what the control messages say.
///
/// # Safety
/// `message` was filled by `recvmsg`, and its buffer of control messages is alive.
unsafe fn each_control(message: &libc::msghdr, received: &mut Received) {
    // SAFETY: these macros stay within the control messages that `message` names.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: `next` points to a control message of this length, of which CMSG_DATA is the content.
        let (head, content) = unsafe {
            let head = ptr::read_unaligned(next);
            let empty = libc::CMSG_LEN(0) as usize;
            let length = (head.cmsg_len as usize).saturating_sub(empty);
            let content = std::slice::from_raw_parts(libc::CMSG_DATA(next), length);
            (head, content)
        };
        match (head.cmsg_level, head.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                received.traffic_class = number(content);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                received.hops = number(content);
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                received.failure = failure(content);
            }
            _ => {}
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
}

/// A byte, or the `int` that most control messages are.
fn number(content: &[u8]) -> u8 {
    let int = content.first_chunk().map(|int| i32::from_ne_bytes(*int));
    let byte = content.first().copied().unwrap_or(0);
    int.map_or(byte, |int| u8::try_from(int).unwrap_or(0))
}

/// Reads a `sock_extended_err`, which the address of the machine that sent the error follows. `None`: it is none about a datagram's way.
fn failure(content: &[u8]) -> Option<Failure> {
    let head: &[u8; size_of::<libc::sock_extended_err>()] = content.first_chunk()?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (number, origin, said, info) = (word(0), head[4], (head[5], head[6]), word(8));
    let v6 = match origin {
        libc::SO_EE_ORIGIN_ICMP => false,
        libc::SO_EE_ORIGIN_ICMP6 => true,
        // Too large for our own link; which message says so depends on the family.
        libc::SO_EE_ORIGIN_LOCAL if number == libc::EMSGSIZE.cast_unsigned() => {
            return Some(Failure {
                from: None,
                said: (0, 0),
                mtu: info,
            });
        }
        _ => return None,
    };
    let address = &content[head.len()..];
    // A socket of both families hears of IPv4 in the form of IPv6.
    let family = u16::from_ne_bytes(*address.first_chunk::<2>()?);
    let v6 = v6 || i32::from(family) == libc::AF_INET6;
    let from: IpAddr = match v6 {
        false => Ipv4Addr::from(*address.get(4..)?.first_chunk::<4>()?).into(),
        true => Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?).into(),
    };
    Some(Failure {
        from: Some(from.to_canonical()),
        said,
        mtu: info,
    })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    const LOOPBACKS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];

    fn next(socket: &UdpSocket, queue: Queue, buffer: &mut [u8]) -> Received {
        for _ in 0..200 {
            match receive(socket, queue, buffer) {
                Ok(received) => return received,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("nothing came");
    }

    #[test]
    fn heads_go_out_and_come_in() {
        for loopback in LOOPBACKS {
            let ipv6 = loopback.is_ipv6();
            let sockets = [open_udp(ipv6).unwrap(), open_udp(ipv6).unwrap()];
            let port = sockets[1].local_addr().unwrap().port();
            let head = Head {
                hops: 9,
                traffic_class: 0xb8,
                whole: true,
            };
            set_head(&sockets[0], ipv6, head).unwrap();
            send(&sockets[0], b"hello", SocketAddr::new(loopback, port)).unwrap();
            let mut buffer = [0; 100];
            let received = next(&sockets[1], Queue::Datagrams, &mut buffer);
            assert_eq!(&buffer[..received.length], b"hello");
            assert_eq!((received.hops, received.traffic_class), (9, 0xb8));
            assert_eq!(received.peer.ip(), loopback);
            assert_eq!(received.failure, None);
        }
    }

    #[test]
    fn a_closed_port_is_heard_of_and_the_next_datagram_leaves() {
        for loopback in LOOPBACKS {
            let ipv6 = loopback.is_ipv6();
            let nobody = UdpSocket::bind((loopback, 0)).unwrap();
            let closed = nobody.local_addr().unwrap();
            drop(nobody);
            let socket = open_udp(ipv6).unwrap();
            send(&socket, b"is anybody there?", closed).unwrap();
            let mut buffer = [0; 100];
            let received = next(&socket, Queue::Failures, &mut buffer);
            assert_eq!(&buffer[..received.length], b"is anybody there?");
            assert_eq!(received.peer, closed);
            let failure = received.failure.unwrap();
            let said = if ipv6 { (1, 4) } else { (3, 3) };
            assert_eq!((failure.from, failure.said), (Some(loopback), said));
            let listener = UdpSocket::bind((loopback, 0)).unwrap();
            listener
                .set_read_timeout(Some(Duration::from_secs(2)))
                .unwrap();
            for _ in 0..3 {
                send(&socket, b"to somebody else", listener.local_addr().unwrap()).unwrap();
                send(&socket, b"to nobody", closed).unwrap();
                thread::sleep(Duration::from_millis(10));
                assert_eq!(listener.recv(&mut buffer).unwrap(), 16);
            }
        }
    }
}
