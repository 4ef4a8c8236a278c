//! Packets of the client that cross beside its flows: the LAN's, from the device, and those of applications' datagrams.
//!
//! ```text
//!   device ─┬ TCP of `[les]` ─► LES ══ UDP, sealed each
//!           └ all else ───────► tunnel
//! ```

use std::cell::{Cell, OnceCell, RefCell};
use std::future::pending;
use std::io;
use std::rc::Rc;
#[cfg(target_os = "linux")]
use std::sync::Arc;

use bytes::Bytes;
use ipnet::IpNet;
use tokio::sync::watch;

use super::associations::Relays;
use super::connections::Attempt;
#[cfg(target_os = "linux")]
use super::kept_device::KeptDevice;
use super::les::Layering;
use super::packets::PacketDevice;
use super::reach::Reach;
use super::routes::Routes;
use super::tunnels::Tunnels;
use crate::config::{ClientConfig, ClientLes};
use crate::keys::PrivateKey;
use crate::process::RunError;
use crate::status;
use bentpipe_tunnel::engine::ConnectionId;

/// Roads of the client's packets: through the tunnel beside its flows, or by LES.
pub(crate) struct PacketRoad {
    config: Rc<ClientConfig>,
    tunnels: Rc<Tunnels>,
    /// Device that all but TCP comes from, if that is to go into the tunnel.
    device: OnceCell<PacketDevice>,
    /// Datagrams of applications.
    relays: Rc<Relays>,
    /// Outcome of the prefixes that are to be routed here.
    routes: RefCell<Routes>,
    /// TCP that goes by LES, if some is to.
    les: Option<Rc<Layering>>,
    /// Packets that were dropped because the tunnel carries none.
    uncarried: Cell<u64>,
}

impl PacketRoad {
    /// No device yet, and no application.
    ///
    /// # Errors
    /// There is no socket for LES, or the `key` that PEPs know this client by cannot be used.
    pub(super) fn new(
        config: Rc<ClientConfig>,
        tunnels: Rc<Tunnels>,
        key: &PrivateKey,
    ) -> Result<Self, RunError> {
        let layering = |les: &ClientLes| {
            let socket = || super::socket(&config);
            Layering::new(les, &config, &tunnels, key, socket)
        };
        let les = config.front.les.as_ref().map(layering).transpose()?;
        Ok(Self {
            les: les.map(Rc::new),
            relays: Relays::new(&config, tunnels.clone()),
            config,
            tunnels,
            device: OnceCell::new(),
            routes: RefCell::default(),
            uncarried: Cell::default(),
        })
    }

    /// TCP that goes by LES, if some is to.
    pub(super) fn les(&self) -> Option<&Rc<Layering>> {
        self.les.as_ref()
    }

    /// True if TCP of the prefixes of `[les]` is to be led into the device.
    pub(super) fn leads_tcp(&self) -> bool {
        self.les.as_ref().is_some_and(|les| les.leads())
    }

    /// Associations for datagrams of applications.
    pub(crate) fn relays(&self) -> &Rc<Relays> {
        &self.relays
    }

    /// True if the tunnel carries packets now; `None` without a tunnel.
    pub(crate) fn is_open(&self) -> Option<bool> {
        self.tunnels.carries_packets()
    }

    /// Makes the device that all but TCP goes into, if it is to go into the tunnel: it exists before the rules that lead
    /// there. Returns what the guardian keeps of it; `None` if nothing is to go.
    #[cfg(target_os = "linux")]
    pub(super) fn open_device(&self) -> io::Result<Option<Arc<KeptDevice>>> {
        if self.config.front.tunnels_packets().is_none() {
            return Ok(None);
        }
        let before = self.les.as_ref().map(|les| les.assigned_before());
        let device = PacketDevice::create(before.unwrap_or_default())?;
        let kept = device.kept();
        Ok(self.device.set(device).is_ok().then_some(kept))
    }

    /// Carries the LAN's packets; never ends but with an error.
    pub(super) async fn carry(&self) -> io::Result<()> {
        let Some(device) = self.device.get() else {
            return pending().await;
        };
        let receive = async {
            match &self.les {
                Some(les) => les.receive(|packets| device.write(packets)).await,
                None => pending().await,
            }
        };
        let keep = async {
            match &self.les {
                Some(les) => les.keep_peps().await,
                None => pending().await,
            }
        };
        tokio::select! {
            ended = device.carry(|packets| self.send(packets)) => ended,
            ended = receive => ended,
            ended = keep => ended,
        }
    }

    /// Sends each of the LAN's packets on its road; returns how many found no tunnel.
    fn send(&self, packets: Vec<Bytes>) -> u64 {
        let packets = match &self.les {
            Some(les) => les.send(packets),
            None => packets,
        };
        let count = packets.len() as u64;
        if count == 0 || self.tunnels.send_packets(packets) {
            return 0;
        }
        if self.is_open() == Some(false) {
            self.uncarried.set(self.uncarried.get() + count);
            return 0;
        }
        count
    }

    /// Gives the device what the server has assigned, and says when that has `changed`; never ends.
    pub(super) async fn follow_assigned(&self, reach: watch::Receiver<Reach>, changed: impl Fn()) {
        match self.device.get() {
            Some(device) => {
                let tunnels = &self.tunnels;
                device.follow_assigned(tunnels, reach, changed).await;
            }
            None => pending().await,
        }
    }

    /// Takes packets that have come through a connection.
    pub(super) fn on_packets(&self, id: ConnectionId) {
        self.relays.on_packets(id, self.device.get());
    }

    /// The handshake of an attempt is complete.
    pub(super) fn on_connected(&self, attempt: &Attempt) {
        if let Some(les) = &self.les {
            les.on_connected(attempt, &self.assigned());
        }
    }

    /// Takes in what the server of a new tunnel assigns to this client, and what it routes here.
    pub(super) fn on_ready(&self, attempt: &Attempt) {
        if let Some(les) = &self.les {
            les.on_ready(attempt);
        }
        self.relays.learn_assigned();
        let Some(intercept) = &self.config.front.intercept else {
            return;
        };
        let granted = self.tunnels.look(|connection| {
            let tunnel = &connection.tunnel;
            let hello = tunnel
                .agreement()
                .remote()
                .filter(|_| tunnel.agreement().carries_packets())?;
            Some(hello.routed.clone())
        });
        let granted = granted.unwrap_or_default();
        self.routes.borrow_mut().learn(&intercept.routes, &granted);
    }

    /// An attempt has failed before it was the tunnel.
    pub(super) fn on_failed(&self, attempt: &Attempt) {
        if let Some(les) = &self.les {
            les.on_failed(attempt);
        }
    }

    /// Notes that the tunnel has ended.
    pub(super) fn on_lost(&self) {
        if let Some(les) = &self.les {
            les.on_lost();
        }
    }

    /// The client stops.
    pub(super) fn close(&self) {
        if let Some(les) = &self.les {
            les.close();
        }
    }

    /// True if all but TCP goes into the tunnel.
    pub(super) fn has_device(&self) -> bool {
        self.device.get().is_some()
    }

    /// True if a server has assigned addresses to the device.
    pub(super) fn has_addresses(&self) -> bool {
        !self.assigned().is_empty()
    }

    fn assigned(&self) -> Vec<IpNet> {
        let device = self.device.get();
        device.map(PacketDevice::assigned).unwrap_or_default()
    }

    /// Prefixes that the server routes here, now or when it was last heard of.
    pub(super) fn routed(&self) -> Vec<IpNet> {
        self.routes.borrow().routed.clone()
    }

    /// Adds the figures of `status`.
    pub(super) fn fill(&self, session: &mut status::Session) {
        let socks5 = self.config.front.socks5.as_ref();
        session.associations = socks5.map(|_| self.relays.report());
        session.les = self.les.as_ref().map(|les| les.report());
        if let Some(device) = self.device.get() {
            let carried = match self.is_open() {
                Some(false) => status::PacketKinds::None,
                _ => status::PacketKinds::All,
            };
            let packets = session.packets.get_or_insert_with(|| status::Packets {
                carried,
                ..status::Packets::default()
            });
            packets.dropped.unsupported = self.uncarried.get();
            packets.dropped.no_tunnel = device.without_tunnel();
            let routes = self.routes.borrow();
            // What the server routes and this client does not want is not let in.
            packets.routed.clone_from(&routes.routed);
            packets.unrouted.clone_from(&routes.refused);
        }
    }
}
