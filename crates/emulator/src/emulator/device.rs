//! What the emulator reads packets from and writes them to: TUN devices, interfaces of this machine, sockets in tests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use bentpipe_sys::ethernet::{self, Ethernet};
use bentpipe_sys::tun::Tun;

/// Something that yields and takes whole packets without blocking.
pub trait PacketDevice: AsFd {
    /// Bytes before the IP header. They cross the link unchanged and take none of its capacity.
    const PREFIX: usize = 0;

    /// Reads one packet into `buffer`.
    ///
    /// # Errors
    /// `WouldBlock` if none waits; anything else ends the emulation.
    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes one packet.
    ///
    /// # Errors
    /// If the packet could not be written; it is counted and dropped.
    fn write_packet(&self, packet: &[u8]) -> io::Result<()>;

    /// True if this is not one packet of the network, but several that an offload has merged.
    fn is_merged(_packet: &[u8]) -> bool {
        false
    }
}

impl PacketDevice for Tun {
    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }

    fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        self.write(packet).map(drop)
    }
}

impl PacketDevice for Ethernet {
    const PREFIX: usize = ethernet::PREFIX + ethernet::HEADER;

    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }

    fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        self.write(packet).map(drop)
    }

    fn is_merged(packet: &[u8]) -> bool {
        ethernet::is_merged(packet)
    }
}

/// A device that is only borrowed, such as a test's.
impl<D: PacketDevice> PacketDevice for &D {
    const PREFIX: usize = D::PREFIX;

    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (*self).read_packet(buffer)
    }

    fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        (*self).write_packet(packet)
    }

    fn is_merged(packet: &[u8]) -> bool {
        D::is_merged(packet)
    }
}

/// The descriptors to sleep on: the switch, the gateway's device, the terminals' devices.
pub(super) fn descriptors<'a, D: PacketDevice>(
    stop: BorrowedFd<'a>,
    gateway: &'a D,
    terminals: &'a [D],
) -> Vec<BorrowedFd<'a>> {
    let mut all = vec![stop, gateway.as_fd()];
    all.extend(terminals.iter().map(AsFd::as_fd));
    all
}
