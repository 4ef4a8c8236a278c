//! A packet socket: every packet that enters or leaves one interface, without its link-layer header.
//!
//! It only watches. The socket belongs to the calling thread's network namespace (see
//! [`crate::netns::NetNs::enter`]) and stays there. Whoever claims that something did *not* cross must ask
//! [`PacketSocket::missed`] as well.
#![expect(
    unsafe_code,
    reason = "packet sockets have addresses and statistics that no safe wrapper knows"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, SockAddr, Socket, Type};

/// What the kernel may hold until it is read: seconds of a fast link.
const BUFFER: usize = 64 << 20;

/// An open packet socket. Non-blocking: nothing to read is [`io::ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Bytes in the buffer.
    pub length: usize,
    /// The link layer's protocol number, such as 0x0800 for IPv4.
    pub ether_type: u16,
    /// Whether this machine sent it.
    pub outgoing: bool,
}

impl PacketSocket {
    /// Watches `interface`, from the return of this call on.
    ///
    /// # Errors
    /// There is no such interface, or CAP_NET_RAW is missing; the text says which.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::make(interface).map_err(|error| {
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

    fn make(interface: &str) -> io::Result<Self> {
        // Protocol 0: nothing is received before it is bound to its interface.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking().cloexec(), None)?;
        // Without CAP_NET_ADMIN of the machine itself the system's limit holds.
        if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            socket.set_recv_buffer_size(BUFFER)?;
        }
        socket.bind(&all_of(name_to_index(&socket, interface)?)?)?;
        Ok(Self { socket })
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

    /// Packets that did not fit into the kernel's buffer since this was last asked.
    ///
    /// # Errors
    /// The kernel refuses, which it does not do for an open packet socket.
    pub fn missed(&self) -> io::Result<u32> {
        let mut statistics = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut size = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes, which are a `tpacket_stats`; both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
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
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address that means: all protocols of one interface.
fn all_of(index: u32) -> io::Result<SockAddr> {
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
