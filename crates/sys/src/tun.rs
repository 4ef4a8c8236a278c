//! TUN devices: whole IP packets without a link-layer header.
//!
//! On the data path of the emulator ([`Tun`]: a packet for each `read` and `write`) and of the tunnel ([`BulkTun`]: several,
//! where the kernel can). A device is made in the calling thread's network namespace (see [`crate::netns::NetNs::enter`])
//! and the kernel removes it when its owner is dropped. Nothing here sets an address, a route or an MTU: that is `ip`'s work.
#![expect(
    unsafe_code,
    reason = "TUNSETIFF and TUNSETOFFLOAD have no safe wrapper"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl, opcode};

/// `_IOW('T', 202, int)`; the type in the number is historical, the argument is a `struct ifreq`.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
/// `_IOW('T', 208, unsigned int)`; the argument is the number itself.
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
const DEVICE: &str = "/dev/net/tun";
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
/// Offloads that the owner takes from the kernel: packets whose checksum is left to it, and several UDP packets in one piece, of
/// both families (which the kernel knows only together). TCP is not asked for: it crosses as packets only by exception,
/// and the kernel cuts it.
const OFFLOADS: usize = TUN_F_CSUM | TUN_F_USO4 | TUN_F_USO6;
const TUN_F_CSUM: usize = 0x01;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;
/// A flag that no kernel has: it refuses this as older ones refuse [`OFFLOADS`].
const UNKNOWN_OFFLOAD: usize = 1 << 31;
/// Size of an interface name in the kernel, including the final zero.
const IFNAMSIZ: usize = 16;

/// `struct ifreq` with the one member of its union that TUNSETIFF reads; the padding is the rest.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; IFNAMSIZ],
    flags: u16,
    padding: [u8; 22],
}

/// An open TUN device. Non-blocking: an empty queue is [`io::ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes the device `name` (at most 15 bytes; a `%d` in it is numbered by the kernel) in the
    /// calling thread's network namespace. It is down and has no address.
    ///
    /// # Errors
    /// Missing privilege, a name that is taken or too long, a kernel without TUN; the text says which.
    pub fn create(name: &str) -> io::Result<Self> {
        open(name, 0).map(|(file, name)| Self { file, name })
    }

    /// The device's name as the kernel knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes one packet that the kernel routed into the device. A buffer shorter than the packet
    /// truncates it silently: pass at least the MTU.
    ///
    /// # Errors
    /// `WouldBlock` when no packet waits.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands one whole IP packet to the kernel, as if the device had received it.
    ///
    /// # Errors
    /// `InvalidInput` when the bytes are no IP packet; an `EIO` when the device is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        (&self.file).write(packet)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Tun {
    // For tokio's `AsyncFd`, which asks for a raw descriptor.
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// An open TUN device whose reads and writes may carry several packets of one flow in one piece, each after a
/// `struct virtio_net_hdr` of [`BulkTun::PREFIX`] bytes, which says so. Non-blocking, as [`Tun`] is.
#[derive(Debug)]
pub struct BulkTun {
    file: File,
    merges: bool,
}

impl BulkTun {
    /// Bytes before what is read and written.
    pub const PREFIX: usize = 10;

    /// Room for what one read may yield: behind IPv6's header a length of 16 bits.
    pub const LARGEST: usize = Self::PREFIX + 40 + 65_535;

    /// Makes the device `name` as [`Tun::create`] does. Where the kernel has no offload for UDP (before Linux 6.2) each read
    /// and write carries one packet all the same.
    ///
    /// # Errors
    /// As [`Tun::create`].
    pub fn create(name: &str) -> io::Result<Self> {
        Self::with_offloads(name, OFFLOADS)
    }

    /// Makes the device as a kernel does that has no such offload.
    ///
    /// # Errors
    /// As [`Tun::create`].
    pub fn without_offloads(name: &str) -> io::Result<Self> {
        Self::with_offloads(name, UNKNOWN_OFFLOAD)
    }

    fn with_offloads(name: &str, offloads: usize) -> io::Result<Self> {
        let (file, _) = open(name, IFF_VNET_HDR)?;
        // SAFETY: TUNSETOFFLOAD takes a number, of which the kernel refuses flags that it does not know.
        let set = unsafe { ioctl(&file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads)) };
        let merges = set.is_ok();
        Ok(Self { file, merges })
    }

    /// True if the kernel takes several packets in one piece.
    #[must_use]
    pub const fn merges(&self) -> bool {
        self.merges
    }

    /// Takes what the kernel routed into the device: a prefix, and a packet or several in one piece. `buffer` has room for
    /// [`Self::LARGEST`]; what does not fit is cut off silently.
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands a prefix and what it describes to the kernel, as if the device had received it; `parts` follow one another.
    ///
    /// # Errors
    /// `InvalidInput` when the bytes are no packet, or not the one that the prefix describes; an `EIO` when the device is down.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(parts)
    }
}

impl AsFd for BulkTun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for BulkTun {
    // For tokio's `AsyncFd`, which asks for a raw descriptor.
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Makes a device with these flags besides those that all have; also returns its name.
fn open(name: &str, more: u16) -> io::Result<(File, String)> {
    let mut request = InterfaceRequest {
        name: padded(name)?,
        flags: IFF_TUN | IFF_NO_PI | more,
        padding: [0; 22],
    };
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(DEVICE)
        .map_err(|error| cannot_open(name, &error))?;
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` (40 bytes on 64-bit Linux), which
    // `InterfaceRequest` has the layout and size of; it outlives the call.
    unsafe {
        ioctl(
            &file,
            Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request),
        )
    }
    .map_err(|error| explain(name, &error.into()))?;
    let length = request
        .name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(IFNAMSIZ);
    let name = String::from_utf8_lossy(&request.name[..length]).into_owned();
    Ok((file, name))
}

fn padded(name: &str) -> io::Result<[u8; IFNAMSIZ]> {
    let mut bytes = [0; IFNAMSIZ];
    if name.is_empty() || name.len() >= IFNAMSIZ {
        let text = format!("cannot create TUN device `{name}`: a name has 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

/// Opening needs access to a file, not a capability: being root of a user namespace does not help.
fn cannot_open(name: &str, error: &io::Error) -> io::Error {
    let mend = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root, or `chmod 0666 /dev/net/tun` as root",
        io::ErrorKind::NotFound => "; load the module with `modprobe tun` as root",
        _ => "",
    };
    let text = format!("cannot create TUN device `{name}`: {DEVICE}: {error}{mend}");
    io::Error::new(error.kind(), text)
}

fn explain(name: &str, error: &io::Error) -> io::Error {
    let mend = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; needs CAP_NET_ADMIN (run as root or in a user namespace)"
        }
        io::ErrorKind::ResourceBusy => "; a device of that name exists here",
        _ => "",
    };
    io::Error::new(
        error.kind(),
        format!("cannot create TUN device `{name}`: {error}{mend}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_the_kernels_size() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
    }

    #[test]
    fn long_names_are_refused_before_the_kernel_truncates_them() {
        let error = Tun::create("a-name-of-16-byt").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
