//! A packet socket: every packet that enters or leaves one interface, without its link-layer header.
//!
//! It only watches. The socket belongs to the calling thread's network namespace (see
//! [`crate::netns::NetNs::enter`]) and stays there. Whoever claims that something did *not* cross must ask
//! [`PacketSocket::missed`] as well. Interception uses it too, to hear of connections before the kernel
//! answers them ([`PacketSocket::open_for_openings`]).
#![expect(
    unsafe_code,
    reason = "packet sockets have addresses and statistics that no safe wrapper knows"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

/// Bytes that the kernel may hold until they are read: seconds of a fast link.
const BUFFER: usize = 64 << 20;

/// An open packet socket. Non-blocking: nothing to read is [`io::ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    index: u32,
}

/// Packet that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Bytes in the buffer.
    pub length: usize,
    /// The link layer's protocol number, such as 0x0800 for IPv4.
    pub ether_type: u16,
    /// True if this machine sent the packet.
    pub outgoing: bool,
}

impl PacketSocket {
    /// Watches `interface`, from the return of this call on.
    ///
    /// # Errors
    /// There is no such interface, or CAP_NET_RAW is missing; the text says which.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::opened(interface, None)
    }

    /// Watches for segments that open a TCP connection; the kernel drops all others before they are copied.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for_openings(interface: &str) -> io::Result<Self> {
        Self::opened(interface, Some(&openings()))
    }

    fn opened(interface: &str, filter: Option<&[SockFilter]>) -> io::Result<Self> {
        Self::make(interface, filter).map_err(|error| {
            let mend = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; needs CAP_NET_RAW (run as root or in a user namespace)"
                }
                _ => "",
            };
            let text = format!("cannot capture on {interface}: {error}{mend}");
            io::Error::new(error.kind(), text)
        })
    }

    fn make(interface: &str, filter: Option<&[SockFilter]>) -> io::Result<Self> {
        // Protocol 0: nothing is received before it is bound to its interface.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking().cloexec(), None)?;
        if let Some(filter) = filter {
            socket.attach_filter(filter)?;
        }
        // Without CAP_NET_ADMIN of the machine itself the system's limit holds.
        if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            socket.set_recv_buffer_size(BUFFER)?;
        }
        let index = name_to_index(&socket, interface)?;
        socket.bind(&all_of(index)?)?;
        Ok(Self { socket, index })
    }

    /// Reads one packet. A buffer shorter than the packet truncates it silently: pass 64 KiB.
    ///
    /// # Errors
    /// `WouldBlock` when none waits; `NetworkDown` once when the interface went down or away.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Packet> {
        // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and socket2 only ever writes initialised bytes.
        let buffer = unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) };
        let (length, from) = self.socket.recv_from(buffer)?;
        let from = from.as_ptr().cast::<libc::sockaddr_ll>();
        // SAFETY: a packet socket's addresses are `sockaddr_ll`; the storage behind the pointer is larger
        // than one, and aligned for any address.
        let from = unsafe { from.read() };
        Ok(Packet {
            length,
            ether_type: u16::from_be(from.sll_protocol),
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
        })
    }

    /// True if the interface of this name is still the one that is watched: one that was removed and made anew is another.
    #[must_use]
    pub fn is_on(&self, interface: &str) -> bool {
        name_to_index(&self.socket, interface).is_ok_and(|index| index == self.index)
    }

    /// Packets that did not fit into the kernel's buffer since this was last asked.
    ///
    /// # Errors
    /// The kernel refuses, which it does not do for an open packet socket.
    pub fn missed(&self) -> io::Result<u32> {
        dropped(&self.socket)
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Classic BPF, from the IP header on: unfragmented TCP with SYN and without ACK. IPv6 extension headers
/// before TCP are not looked through.
fn openings() -> [SockFilter; 18] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const LOAD_BEHIND_HEADER: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
    const HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ;
    const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET;
    const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k, jt, jf| SockFilter::new(code as u16, jt, jf, k);
    [
        step(LOAD_BYTE, 0, 0, 0),
        step(AND, 0xf0, 0, 0),
        step(IF_EQUAL, 0x40, 0, 7), // else IPv6
        step(LOAD_BYTE, 9, 0, 0),
        step(IF_EQUAL, 6, 0, 12),
        step(LOAD_HALF, 6, 0, 0),
        step(IF_ANY_BIT, 0x1fff, 10, 0),
        step(HEADER_LENGTH, 0, 0, 0),
        step(LOAD_BEHIND_HEADER, 13, 0, 0),
        step(JUMP, 4, 0, 0), // to the flags
        step(IF_EQUAL, 0x60, 0, 6),
        step(LOAD_BYTE, 6, 0, 0),
        step(IF_EQUAL, 6, 0, 4),
        step(LOAD_BYTE, 40 + 13, 0, 0),
        step(AND, 0x12, 0, 0), // the flags: SYN and ACK
        step(IF_EQUAL, 0x02, 0, 1),
        step(RETURN, 0xffff, 0, 0),
        step(RETURN, 0, 0, 0),
    ]
}

/// Packets that did not fit into a packet socket's buffer since this was last asked.
pub(crate) fn dropped(socket: &Socket) -> io::Result<u32> {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut size = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which are a `tpacket_stats`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            std::ptr::from_mut(&mut statistics).cast(),
            &raw mut size,
        )
    };
    if result == 0 {
        Ok(statistics.tp_drops)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The address that means: all protocols of one interface.
pub(crate) fn all_of(index: u32) -> io::Result<SockAddr> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let fill = |storage: *mut socket2::SockAddrStorage, length: *mut libc::socklen_t| {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the storage is larger than a `sockaddr_ll` and aligned for any address.
        unsafe { storage.cast::<libc::sockaddr_ll>().write(address) };
        // SAFETY: `length` is a valid place for the number of bytes just written.
        unsafe { length.write(size_of::<libc::sockaddr_ll>() as libc::socklen_t) };
        Ok(())
    };
    // SAFETY: `fill` writes a whole address with its family, and its length.
    let ((), address) = unsafe { SockAddr::try_init(fill) }?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named() {
        let error = PacketSocket::open("nosuch").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cannot capture on nosuch"), "{text}");
    }
}
