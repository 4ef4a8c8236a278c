//! An Ethernet interface of this machine, taken over: whole frames, one per `read` and `write`.
//!
//! On the data path of the emulator where the link stands between two real networks. Every frame that arrives is read,
//! whoever it is for (promiscuous mode), and none that this machine sends. The kernel's own stack still sees the frames:
//! an interface that is used so should have no address. It sets nothing on the interface and needs CAP_NET_RAW.
//!
//! A frame is read and written behind [`PREFIX`] bytes that are the kernel's: they say which checksum is still to be
//! computed, so that frames of virtual interfaces cross intact. VLAN tags are stripped by the kernel: use the VLAN's own
//! interface.
#![expect(
    unsafe_code,
    reason = "packet sockets have options that no safe wrapper knows"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Socket, Type};

use crate::capture::{all_of, dropped};

/// `struct virtio_net_hdr`, before every frame.
pub const PREFIX: usize = 10;
/// Destination, source and type, between the prefix and the packet.
pub const HEADER: usize = 14;
/// Place of `gso_type` in the prefix, in bytes; its value is not zero for several segments in one frame.
const GSO_TYPE: usize = 1;
/// Bytes that the kernel may hold until they are read: seconds of a fast link.
const BUFFER: usize = 64 << 20;

/// An open interface. Non-blocking: nothing to read is [`io::ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct Ethernet {
    socket: Socket,
    name: String,
}

impl Ethernet {
    /// Takes over `interface` of the calling thread's network namespace, until this is dropped.
    ///
    /// # Errors
    /// There is no such interface, or a privilege is missing; the text says which.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::make(interface).map_err(|error| {
            let mend = match error.kind() {
                io::ErrorKind::PermissionDenied => "; needs CAP_NET_RAW: run as root",
                _ => "; `ip link` shows the interfaces that exist",
            };
            let text = format!("cannot take over the interface {interface}: {error}{mend}");
            io::Error::new(error.kind(), text)
        })
    }

    fn make(interface: &str) -> io::Result<Self> {
        // Protocol 0: nothing is received before it is bound to its interface.
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)?;
        if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            socket.set_recv_buffer_size(BUFFER)?;
        }
        let index = name_to_index(&socket, interface)?;
        set(&socket, libc::PACKET_VNET_HDR, &1i32)?;
        set(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        let everybody = libc::packet_mreq {
            mr_ifindex: i32::try_from(index).map_err(io::Error::other)?,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::PACKET_ADD_MEMBERSHIP, &everybody)?;
        socket.bind(&all_of(index)?)?;
        Ok(Self {
            socket,
            name: interface.to_owned(),
        })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes one frame, behind its prefix. A buffer that is too short truncates it silently: pass 64 KiB and more.
    ///
    /// # Errors
    /// `WouldBlock` when none waits; `NetworkDown` once when the interface went down or away.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and socket2 only ever writes initialised bytes.
        let buffer = unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) };
        self.socket.recv(buffer)
    }

    /// Sends a frame that was read from another interface, with its prefix.
    ///
    /// # Errors
    /// The frame is longer than this interface permits, or the interface is down.
    pub fn write(&self, frame: &[u8]) -> io::Result<usize> {
        self.socket.send(frame)
    }

    /// Frames that did not fit into the kernel's buffer since this was last asked.
    ///
    /// # Errors
    /// The kernel refuses, which it does not do for an open packet socket.
    pub fn missed(&self) -> io::Result<u32> {
        dropped(&self.socket)
    }
}

/// True if a frame, with its prefix, is several segments that an offload has merged.
#[must_use]
pub fn is_merged(frame: &[u8]) -> bool {
    frame.get(GSO_TYPE).is_some_and(|kind| *kind != 0)
}

impl AsFd for Ethernet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option of the level of packet sockets, whose value `T` the kernel's headers define.
fn set<T>(socket: &Socket, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes at `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named() {
        let text = Ethernet::open("nosuch").unwrap_err().to_string();
        assert!(
            text.contains("interface nosuch") && text.contains("; "),
            "{text}"
        );
    }

    #[test]
    fn merged_frames_are_told() {
        assert!(!is_merged(&[0; 64]) && is_merged(&[0, 1, 0]) && !is_merged(&[]));
    }
}
