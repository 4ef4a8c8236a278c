//! The part of the kernel that works for a server: device, table, and the guardian of both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_sys::claim::{Claim, Sole};
use bentpipe_sys::privilege;

use super::super::forwarding::ServerTable;
use super::kept::KeptNetwork;
use super::sockets::Sockets;
use super::{Inbox, Packets, Table, lock};
use crate::config::ServerConfig;
use crate::firewall::open_passages;
use crate::kernel::{Guardian, Repairs};

/// Reason why a server has no device, and the mend.
const NO_PRIVILEGE: &str = "CAP_NET_ADMIN is missing, which `AmbientCapabilities=CAP_NET_ADMIN` of the unit gives, `--cap-add NET_ADMIN` of a \
                            container, or root";

/// Line of a server that is to carry no packets.
const SWITCHED_OFF: &str =
    "of clients TCP alone is carried, neither UDP nor ping: `enabled = false` stands in [packets]";

/// Part of the kernel that works for a server. Kept while it runs, for the table to be removed with it.
pub(in super::super) struct Network {
    pub(in super::super) packets: Option<Arc<Packets>>,
    /// In place of a device, without the privilege for one.
    pub(in super::super) sockets: Option<Arc<Sockets>>,
    /// Packets of clients that are not carried, why, and the mend.
    pub(in super::super) limited: Option<Arc<str>>,
    /// One for each shard.
    pub(in super::super) inboxes: Vec<Option<Inbox>>,
    /// Puts back what others take away; ended before the table is removed.
    guardian: Option<Guardian>,
    /// A thread that never ends knows it too.
    table: Table,
    /// Held until the table is removed.
    claim: Option<Claim>,
}

impl Network {
    /// Sets up what the process may: without the privilege, or a part of what it takes, the server carries of packets what sockets
    /// can, and says so.
    pub(in super::super) fn start(config: &ServerConfig, shards: usize) -> Self {
        let mut network = Self {
            packets: None,
            sockets: None,
            limited: None,
            inboxes: (0..shards).map(|_| None).collect(),
            guardian: None,
            table: Table::default(),
            claim: None,
        };
        match network.install(config, shards) {
            Ok(()) => {}
            Err(error) if config.packets.enabled => {
                let (sockets, limited) = Sockets::start(config, &error);
                tracing::warn!("{limited}");
                network.sockets = Some(sockets);
                network.limited = Some(limited.into());
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tracing::warn!("no table keeps this server silent if it is killed: {error}");
            }
            Err(error) => tracing::debug!("no table: {error}"),
        }
        if !config.packets.enabled {
            tracing::info!("{SWITCHED_OFF}");
            network.limited = Some(SWITCHED_OFF.into());
        }
        network
    }

    fn install(&mut self, config: &ServerConfig, shards: usize) -> io::Result<()> {
        if !privilege::has_net_admin() {
            return Err(io::Error::other(NO_PRIVILEGE));
        }
        self.claim = Some(Claim::take(Sole::ServerNetwork)?);
        let les = config
            .listening
            .les
            .iter()
            .flat_map(|les| les.addresses.iter());
        let listens = config.listening.addresses.iter().chain(les);
        let ports: Vec<u16> = listens.map(SocketAddr::port).collect();
        *lock(&self.table) = Some(match config.packets.enabled {
            true => ServerTable::prepare(&ports)?,
            false => ServerTable::install(&ports)?,
        });
        if config.packets.enabled {
            let started = Packets::start(config, self.table.clone(), shards);
            if started.is_err()
                && let Some(table) = lock(&self.table).as_mut()
                && let Err(error) = table.forward_nothing()
            {
                tracing::error!("the table of a server that was killed stays: {error}");
            }
            let (packets, inboxes) = started?;
            self.packets = Some(packets);
            self.inboxes = inboxes.into_iter().map(Some).collect();
        }
        if self.packets.is_some() {
            open_passages()?;
        }
        let kept = KeptNetwork {
            passages: crate::kernel::ClosedPassages::default(),
            packets: self.packets.clone(),
            table: self.table.clone(),
        };
        self.guardian = Guardian::start_or_tell(kept);
        Ok(())
    }

    /// Things that were put back, for `status`.
    pub(in super::super) fn repairs(&self) -> Option<Repairs> {
        self.guardian.as_ref().map(Guardian::repairs)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.guardian = None;
        let _ = lock(&self.table).take();
    }
}
