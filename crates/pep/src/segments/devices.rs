//! The two devices of a PEP: one for packets from each of its sides, so that it is known where a packet came from.
//!
//! A packet goes on by the device that stands for the side it came from; to the rest of the machine it has passed as
//! through an interface of that side. Both devices are gone with the process.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::net::Ipv4Addr;

use bentpipe_segments::Side;
use bentpipe_sys::device::Device;
use bentpipe_sys::link;
use bentpipe_sys::tun::BulkTun;
use bytes::{Bytes, BytesMut};
use ipnet::{IpNet, Ipv4Net};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::device::{BATCH, read_batch, write_batch};

/// Largest MTU that a device may have: the kernel answers no packet with "too big" here, but where it leaves.
pub(super) const MTU: usize = 65_535;

/// Events of a device that are waited for. One that was taken away is not readable, but in error.
const WAITS: Interest = Interest::READABLE.add(Interest::ERROR);

/// Address of both devices, which nobody speaks with (RFC 7600 §4.8): by one without an address the kernel takes in nothing
/// where it checks sources. The address is of the link, so that the kernel gives it to no program of this machine as a source.
pub(super) const ADDRESS: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 8), 32));

/// Name of the device of packets from `side`.
pub(super) const fn name(side: Side) -> &'static str {
    match side {
        Side::Lan => "bentpipe-lan",
        Side::Wan => "bentpipe-wan",
    }
}

/// Value of `rp_filter` that asks for a way back to a source, by whatever device (RFC 3704 §2.4).
pub(super) const LOOSE: &str = "2";

/// Files of the kernel with values by which what the device of `side` delivers is forwarded, also where the machine forwards by
/// interface, or drops what comes in elsewhere than answers would leave (RFC 3704 §2.2): a PEP's device is never that place. Of
/// the machine's own value and the device's the kernel takes the higher one, and 2 asks only for a way back.
pub(super) fn settings(side: Side) -> [(String, &'static str); 3] {
    let name = name(side);
    [
        (format!("/proc/sys/net/ipv4/conf/{name}/forwarding"), "1"),
        (format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), LOOSE),
        // Not before Linux 6.17.
        (
            format!("/proc/sys/net/ipv6/conf/{name}/force_forwarding"),
            "1",
        ),
    ]
}

/// Has what the device of `side` delivers forwarded, as far as this kernel has that.
fn open_forwarding(side: Side) {
    for (file, value) in settings(side) {
        let _ = fs::write(file, value);
    }
}

/// Device of packets from one side.
struct SideDevice {
    tun: AsyncFd<BulkTun>,
    block: RefCell<BytesMut>,
}

impl SideDevice {
    fn create(side: Side) -> io::Result<Self> {
        let name = name(side);
        let tun = Device::named(name, MTU)?.into_tun();
        link::add_local_address(name, ADDRESS)?;
        open_forwarding(side);
        #[expect(
            deprecated,
            reason = "a BulkTun stays open as long as its AsyncFd; the new form is unsafe"
        )]
        let tun = AsyncFd::with_interest(tun, WAITS)?;
        Ok(Self {
            tun,
            block: RefCell::default(),
        })
    }
}

/// Both devices.
pub(super) struct Devices {
    lan: SideDevice,
    wan: SideDevice,
}

impl Devices {
    /// Makes both. Needs the runtime.
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self {
            lan: SideDevice::create(Side::Lan)?,
            wan: SideDevice::create(Side::Wan)?,
        })
    }

    fn of(&self, side: Side) -> &SideDevice {
        match side {
            Side::Lan => &self.lan,
            Side::Wan => &self.wan,
        }
    }

    /// The next packets from `side`.
    ///
    /// # Errors
    /// The device was taken away.
    pub(super) async fn read(&self, side: Side) -> io::Result<Vec<Bytes>> {
        let device = self.of(side);
        let mut packets = Vec::with_capacity(BATCH);
        while packets.is_empty() {
            let mut ready = device.tun.ready(WAITS).await?;
            let mut block = device.block.borrow_mut();
            let take = |packet| packets.push(packet);
            let more = read_batch(device.tun.get_ref(), &mut block, take).map_err(|error| {
                let text = format!("the device {} was taken away: {error}", name(side));
                io::Error::new(error.kind(), text)
            })?;
            if !more {
                ready.clear_ready();
            }
        }
        Ok(packets)
    }

    /// Hands packets to the kernel, each with the side that it goes to.
    pub(super) fn write(&self, packets: Vec<(Side, Bytes)>) {
        for side in [Side::Lan, Side::Wan] {
            let own = packets.iter().filter(|(to, _)| *to == side);
            let tun = self.of(side.other()).tun.get_ref();
            write_batch(tun, own.map(|(_, packet)| packet.clone()));
        }
    }
}
