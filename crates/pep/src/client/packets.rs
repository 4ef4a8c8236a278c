//! Everything but TCP at the terminal: from the device into the tunnel, and back.
//!
//! The device exists as long as the process, and is made anew if somebody takes it away (`kept_device.rs`);
//! rules lead the LAN's packets into it and translate them to the addresses that
//! the server has assigned (`client/intercept`). Without a tunnel they are dropped: who sends them sends again.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::packets::MTU;
use bentpipe_sys::device::Device;
use bentpipe_sys::tun::BulkTun;
use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::kept_device::KeptDevice;
use super::reach::Reach;
use super::tunnels::Tunnels;
use crate::complaint::Complaint;
use crate::device::{BATCH, read_batch, write_batch};
use crate::process;

/// Before the addresses are set again after that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// The client's device.
pub(crate) struct PacketDevice {
    tun: RefCell<Rc<AsyncFd<BulkTun>>>,
    /// One that was made anew, because the last was taken away.
    renewed: RefCell<Option<UnboundedReceiver<BulkTun>>>,
    kept: Arc<KeptDevice>,
    /// Packets that came while there was no tunnel that takes them.
    without_tunnel: Cell<u64>,
}

impl PacketDevice {
    /// Makes the device, with the addresses `before` that a server assigned the last time. Needs the runtime.
    pub(crate) fn create(before: Vec<IpNet>) -> io::Result<Self> {
        let tun = readable(Device::create(MTU)?.into_tun())?;
        let (renewed, made) = unbounded_channel();
        let kept = KeptDevice::new(renewed)?;
        // What the server assigns is tried again, and told if that fails.
        if let Err(error) = kept.assign(before) {
            tracing::debug!("what was assigned the last time: {error}");
        }
        Ok(Self {
            tun: RefCell::new(tun),
            renewed: RefCell::new(Some(made)),
            kept,
            without_tunnel: Cell::new(0),
        })
    }

    /// Addresses that a server has assigned.
    pub(crate) fn assigned(&self) -> Vec<IpNet> {
        self.kept.assigned()
    }

    /// Packets that were dropped for want of a tunnel.
    pub(crate) fn without_tunnel(&self) -> u64 {
        self.without_tunnel.get()
    }

    /// Packets have come through the tunnel.
    pub(super) fn write(&self, packets: impl IntoIterator<Item = Bytes>) {
        write_batch(self.tun.borrow().get_ref(), packets);
    }

    /// The next packets of the LAN.
    async fn read(&self, block: &mut BytesMut) -> io::Result<Vec<Bytes>> {
        let mut packets = Vec::with_capacity(BATCH);
        let tun = self.tun.borrow().clone();
        while packets.is_empty() {
            let mut ready = tun.readable().await?;
            if !read_batch(tun.get_ref(), block, |packet| packets.push(packet))? {
                ready.clear_ready();
            }
        }
        Ok(packets)
    }

    /// Part of the device that the guardian keeps.
    pub(super) fn kept(&self) -> Arc<KeptDevice> {
        self.kept.clone()
    }

    /// Hands the LAN's packets to `send`, which returns how many found no tunnel; never ends but with an error.
    pub(super) async fn carry(&self, send: impl Fn(Vec<Bytes>) -> u64) -> io::Result<()> {
        let mut block = BytesMut::new();
        let Some(mut renewed) = self.renewed.take() else {
            return pending().await;
        };
        loop {
            let packets = tokio::select! {
                packets = self.read(&mut block) => packets,
                Some(tun) = renewed.recv() => {
                    // The last one goes, whatever name it has now.
                    self.tun.replace(readable(tun)?);
                    continue;
                }
            };
            let packets = match packets {
                Ok(packets) => packets,
                Err(error) => {
                    // Taken away: the guardian makes another.
                    tracing::debug!("the tunnel's device: {error}");
                    let Some(tun) = renewed.recv().await else {
                        return Err(error);
                    };
                    self.tun.replace(readable(tun)?);
                    continue;
                }
            };
            let lost = send(packets);
            self.without_tunnel.set(self.without_tunnel.get() + lost);
        }
    }

    /// Gives the device what the server has assigned, and says when that has `changed`; never ends.
    pub(super) async fn follow_assigned(
        &self,
        tunnels: &Tunnels,
        mut changes: watch::Receiver<Reach>,
        changed: impl Fn(),
    ) {
        let mut complaint = Complaint::default();
        loop {
            // What an earlier tunnel was assigned stays while there is none.
            if let Some(assigned) = tunnels.assigned() {
                let wanted: Vec<_> = assigned.into_iter().map(IpNet::from).collect();
                if wanted != self.kept.assigned() {
                    let kept = self.kept.clone();
                    let set = spawn_blocking(move || kept.assign(wanted)).await;
                    let reason = set
                        .ok()
                        .and_then(Result::err)
                        .map(|error| error.to_string());
                    let failed = reason.is_some();
                    tell(&mut complaint, reason);
                    if failed {
                        sleep(PAUSE).await;
                        continue;
                    }
                    changed();
                }
            }
            let _ = changes.changed().await;
        }
    }
}

/// Tells the log why the server's addresses cannot be set, or that they are.
fn tell(complaint: &mut Complaint, reason: Option<String>) {
    let line = |reason: &str| {
        format!("cannot set the addresses that the server assigned: {reason}; trying on")
    };
    let over = "the addresses that the server assigned are set";
    complaint.tell(process::now(), reason, line, over);
}

fn readable(tun: BulkTun) -> io::Result<Rc<AsyncFd<BulkTun>>> {
    #[expect(
        deprecated,
        reason = "a BulkTun stays open as long as its AsyncFd; the new form is unsafe"
    )]
    AsyncFd::with_interest(tun, Interest::READABLE).map(Rc::new)
}
