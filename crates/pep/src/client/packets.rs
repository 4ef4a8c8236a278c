//! Everything but TCP at the terminal: from the device into the tunnel, and back.
//!
//! The device exists as long as the process; rules lead the LAN's packets into it and translate them to the addresses that
//! the server has assigned (`sys/intercept`). Without a tunnel they are dropped: who sends them sends again.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::time::Duration;

use bentpipe_proto::packets::MTU;
use bentpipe_sys::device::{self, Device};
use bentpipe_sys::tun::Tun;
use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::session::Session;
use crate::device::{BATCH, read_batch};
use crate::engine::{Connection, ConnectionId};
use crate::process;

/// Before the addresses are set again after that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// The client's device.
pub(crate) struct PacketDevice {
    tun: AsyncFd<Tun>,
    assigned: RefCell<Vec<IpNet>>,
    /// Packets that came while there was no tunnel that takes them.
    without_tunnel: Cell<u64>,
}

impl PacketDevice {
    /// Makes the device. Needs the runtime.
    pub(crate) fn create() -> io::Result<Self> {
        let tun = Device::create(MTU)?.into_tun();
        #[expect(
            deprecated,
            reason = "a Tun stays open as long as its AsyncFd; the new form is unsafe"
        )]
        let tun = AsyncFd::with_interest(tun, Interest::READABLE)?;
        Ok(Self {
            tun,
            assigned: RefCell::default(),
            without_tunnel: Cell::new(0),
        })
    }

    /// The server has assigned some.
    pub(crate) fn has_addresses(&self) -> bool {
        !self.assigned.borrow().is_empty()
    }

    /// Packets that were dropped for want of a tunnel.
    pub(crate) fn without_tunnel(&self) -> u64 {
        self.without_tunnel.get()
    }

    /// The next packets of the LAN.
    async fn read(&self, block: &mut BytesMut) -> io::Result<Vec<Bytes>> {
        let mut packets = Vec::with_capacity(BATCH);
        while packets.is_empty() {
            let mut ready = self.tun.readable().await?;
            if !read_batch(self.tun.get_ref(), block, |packet| packets.push(packet))? {
                ready.clear_ready();
            }
        }
        Ok(packets)
    }
}

impl Session {
    /// Packets have come through the tunnel.
    pub(super) fn on_packets(&self, id: ConnectionId) {
        let Some(device) = self.device.get() else {
            return;
        };
        self.shard.change(id, |connection| {
            while let Some(packet) = connection.tunnel.take_packet() {
                // Where the kernel's queue is full the packet is dropped, as on any link.
                let _ = device.tun.get_ref().write(&packet);
            }
        });
    }

    /// Carries the LAN's packets; never ends but with an error.
    pub(crate) async fn carry_packets(&self) -> io::Result<()> {
        let Some(device) = self.device.get() else {
            return pending().await;
        };
        let mut block = BytesMut::new();
        loop {
            let packets = device.read(&mut block).await?;
            let now = process::now();
            let count = packets.len() as u64;
            let send = |connection: &mut Connection| {
                let carries = connection.tunnel.carries_packets();
                if carries {
                    let tunnel = &mut connection.tunnel;
                    packets
                        .into_iter()
                        .for_each(|packet| tunnel.send_packet(now, packet));
                }
                carries
            };
            let sent = self.ready.get().and_then(|id| self.shard.change(id, send));
            if sent != Some(true) {
                device
                    .without_tunnel
                    .set(device.without_tunnel.get() + count);
            }
        }
    }

    /// Gives the device what the server has assigned; never ends.
    pub(crate) async fn follow_assigned(&self) {
        let Some(device) = self.device.get() else {
            return pending().await;
        };
        let mut changes = self.changes();
        loop {
            if let Some(wanted) = self.assigned() {
                let present = device.assigned.borrow().clone();
                if wanted != present {
                    let new = wanted.clone();
                    let set = spawn_blocking(move || device::set_addresses(&present, &new));
                    match set.await {
                        Ok(Err(error)) => {
                            tracing::error!(
                                "cannot set the addresses that the server assigned: {error}"
                            );
                            sleep(PAUSE).await;
                            continue;
                        }
                        _ => {
                            *device.assigned.borrow_mut() = wanted;
                            self.changes.send_replace(());
                        }
                    }
                }
            }
            let _ = changes.changed().await;
        }
    }

    /// What the server has assigned to this tunnel; `None` without one. What an earlier one was assigned stays meanwhile.
    fn assigned(&self) -> Option<Vec<IpNet>> {
        let id = self.ready.get()?;
        self.shard.peek(|engine| {
            let hello = engine.peek(id)?.tunnel.remote()?;
            Some(hello.assigned.iter().copied().map(IpNet::from).collect())
        })
    }
}
