//! Without Linux there is no device: packets are not carried.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::clients::Client;
use super::notices::Notices;
use super::shares::ClientPlaces;
use crate::config::ServerConfig;
use crate::net::judge::Judge;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::{Connection, ConnectionId};

pub(super) type Inbox = mpsc::Receiver<Vec<(ConnectionId, Bytes)>>;

/// Nothing.
pub(super) struct Network {
    pub(super) packets: Option<Arc<Packets>>,
    pub(super) sockets: Option<Arc<Sockets>>,
    pub(super) inboxes: Vec<Option<Inbox>>,
    pub(super) limited: Option<Arc<str>>,
}

impl Network {
    pub(super) fn start(_config: &ServerConfig, shards: usize) -> Self {
        Self {
            packets: None,
            sockets: None,
            inboxes: (0..shards).map(|_| None).collect(),
            limited: Some(
                "packets of clients are not carried, TCP alone is: that takes Linux".into(),
            ),
        }
    }

    pub(super) fn repairs(&self) -> Option<Repairs> {
        None
    }
}

/// Repairs of the kernel state of a system without a device for packets: none.
pub(super) struct Repairs(Infallible);

impl Repairs {
    pub(super) fn report(&self) -> Vec<status::KernelRepair> {
        match self.0 {}
    }
}

/// Clients' packets of a system without a device for packets: none.
pub(super) struct Packets(Infallible);

/// State that filters would share.
#[derive(Clone)]
pub(super) struct Rule {
    pub(super) judge: Rc<Judge>,
    pub(super) notices: Arc<Notices>,
}

/// Filter of packets of a system without a device for packets: none.
pub(super) struct Filter(Infallible);

/// Sockets for packets of a system without a device for packets: none.
pub(super) struct Sockets(Infallible);

/// Translator of packets of a system without a device for packets: none.
pub(super) struct Translator(Infallible);

impl Sockets {
    pub(super) fn reload(&self, _config: &ServerConfig) {}

    pub(super) fn filter(&self, _client: &Arc<Client>, _rule: &Rule) -> Filter {
        match self.0 {}
    }

    pub(super) fn translator(
        &self,
        _filter: &Filter,
        _place: (&Rc<Shard>, ConnectionId),
        _places: (Arc<ClientPlaces>, String),
    ) -> Translator {
        match self.0 {}
    }
}

impl Translator {
    pub(super) fn take(&mut self, _filter: &mut Filter, _now: Instant, _in: &mut Connection) {}

    pub(super) fn recheck(&mut self, _filter: &mut Filter, _now: Instant) {}

    pub(super) fn handle_timeout(&mut self, _now: Instant) {}

    pub(super) fn count(&self, _session: &mut status::Session) {}
}

impl Packets {
    pub(super) fn reload(&self, _config: &ServerConfig) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn filter(&self, _client: &Arc<Client>, _rule: &Rule) -> Filter {
        match self.0 {}
    }

    pub(super) fn enter(&self, _filter: &Filter, _place: (u8, ConnectionId)) {}

    pub(super) fn publish(&self, _ports: &[(u16, IpAddr)]) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn unpublish(&self, _ports: &[(u16, IpAddr)]) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn leave(&self, _place: (u8, ConnectionId)) {}

    pub(super) fn withdraw(&self, _filter: &mut Filter, _place: (u8, ConnectionId)) -> bool {
        match self.0 {}
    }

    pub(super) fn on_outage(&self, _place: (u8, ConnectionId), _outage: bool) {}

    pub(super) fn take(&self, _filter: &mut Filter, _now: Instant, _connection: &mut Connection) {}

    pub(super) fn take_layered(
        &self,
        _filter: &mut Filter,
        _now: Instant,
        _connection: &mut Connection,
        _packets: Vec<Bytes>,
    ) {
    }
}

impl Filter {
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        match self.0 {}
    }

    pub(super) fn announce(&self, _connection: &mut Connection) {}

    pub(super) fn admits(&mut self, _now: Instant, _packet: &[u8]) -> bool {
        match self.0 {}
    }

    pub(super) fn set_client(&mut self, _client: Arc<Client>) {}

    pub(super) fn count(&self, _session: &mut status::Session) {}
}
