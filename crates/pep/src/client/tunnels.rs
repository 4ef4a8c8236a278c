//! The client's connections, and the engine that carries them out: which of them is the tunnel, and what its server has said.

use std::cell::{Ref, RefCell, RefMut};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{CloseCode, Families};
use bytes::Bytes;

use super::connections::Connections;
use crate::process::{self, Sleep};
use crate::shard::Shard;
use bentpipe_tunnel::engine::{Connection, ConnectionId};
use bentpipe_tunnel::transport::QueryKey;

/// Connections of the client.
pub(crate) struct Tunnels {
    shard: Rc<Shard>,
    state: RefCell<Connections>,
    sleep: RefCell<Sleep>,
}

impl Tunnels {
    /// No connection yet.
    pub(super) fn new(shard: Rc<Shard>) -> Rc<Self> {
        Rc::new(Self {
            shard,
            state: RefCell::new(Connections::new()),
            sleep: RefCell::new(Sleep::new()),
        })
    }

    pub(super) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Connections that there are, and the use of each.
    pub(super) fn state(&self) -> Ref<'_, Connections> {
        self.state.borrow()
    }

    /// Connections that there are, to be told what has happened to them.
    pub(super) fn state_mut(&self) -> RefMut<'_, Connections> {
        self.state.borrow_mut()
    }

    /// The tunnel, whether it answers or not.
    pub(super) fn ready(&self) -> Option<ConnectionId> {
        self.state().tunnel()
    }

    /// The tunnel, if it answers.
    pub(super) fn usable(&self) -> Option<ConnectionId> {
        self.state().usable()
    }

    /// Doubts the tunnel if this machine has slept since the last such look: the server may have given it up, or have been restarted,
    /// and is asked. Returns for how long the machine has slept, if it has.
    pub(super) fn doubt_after_sleep(&self) -> Option<Duration> {
        let slept = self.sleep.borrow_mut().look()?;
        if let Some(id) = self.ready() {
            let now = process::now();
            self.change(id, |connection| connection.doubt(now));
            // The engine tells the end alone: nothing may be opened before its next turn.
            self.state_mut().on_outage(id, true);
        }
        Some(slept)
    }

    /// Looks at the tunnel; `None` without one.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Connection) -> Option<T>) -> Option<T> {
        self.look_at(self.ready()?, look)
    }

    /// Looks at a connection; `None` if there is no such one.
    pub(super) fn look_at<T>(
        &self,
        id: ConnectionId,
        look: impl FnOnce(&Connection) -> Option<T>,
    ) -> Option<T> {
        self.shard.peek(|engine| look(engine.peek(id)?))
    }

    /// Acts on a connection; `None` if there is no such one.
    pub(super) fn change<T>(
        &self,
        id: ConnectionId,
        act: impl FnOnce(&mut Connection) -> T,
    ) -> Option<T> {
        self.shard.change(id, act)
    }

    /// Closes a connection that is not wanted any more; the server's log says `why`.
    pub(super) fn close(&self, id: ConnectionId, why: &str) {
        let now = process::now();
        self.change(id, |connection| {
            connection.close(now, CloseCode::NoError.code(), why.to_owned());
        });
    }

    /// Instant at which the server of a connection was last heard.
    pub(super) fn heard(&self, id: ConnectionId) -> Option<Instant> {
        self.look_at(id, Connection::heard)
    }

    /// Instant since which the tunnel is silent; `None`: it is not.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        let now = process::now();
        self.look(|connection| connection.silent_since(now))
    }

    /// Fault of this machine for which nothing that the tunnel sends leaves; `None`: there is none.
    pub(super) fn own_fault(&self) -> Option<String> {
        self.look(|connection| connection.unsent()?.own_fault())
    }

    /// Address families that the server reaches; both while that is unknown.
    pub(crate) fn families(&self) -> Families {
        let families =
            self.look(|connection| Some(connection.tunnel.agreement().remote()?.families));
        families.unwrap_or(Families {
            ipv4: true,
            ipv6: true,
        })
    }

    /// Addresses that the server has assigned to the tunnel; `None` without one.
    pub(super) fn assigned(&self) -> Option<Vec<IpAddr>> {
        self.look(|connection| Some(connection.tunnel.agreement().remote()?.assigned.clone()))
    }

    /// True if the tunnel carries packets now; `None` without a tunnel.
    pub(super) fn carries_packets(&self) -> Option<bool> {
        self.look(|connection| Some(connection.tunnel.agreement().carries_packets()))
    }

    /// Sends packets through the tunnel; false if there is none that carries them, and then they are dropped.
    pub(super) fn send_packets(&self, packets: Vec<Bytes>) -> bool {
        let now = process::now();
        let send = |connection: &mut Connection| {
            let tunnel = &mut connection.tunnel;
            let carries = tunnel.agreement().carries_packets();
            if carries {
                packets
                    .into_iter()
                    .for_each(|packet| tunnel.send_packet(now, packet));
            }
            carries
        };
        let sent = self.ready().and_then(|id| self.change(id, send));
        sent == Some(true)
    }

    /// True if DNS queries can cross now.
    pub(crate) fn answers_dns(&self) -> bool {
        let takes = |connection: &Connection| Some(connection.tunnel.takes_queries());
        let usable = self.usable();
        usable.is_some_and(|id| self.look_at(id, takes).unwrap_or(false))
    }

    /// Sends a DNS query; its answer is an event.
    pub(crate) fn ask(&self, message: &[u8]) -> Option<(ConnectionId, QueryKey)> {
        let id = self.ready()?;
        let asked = self.change(id, |connection| connection.ask(message));
        Some((id, asked?.ok()?))
    }

    /// Gives up a DNS query: there will be no answer.
    pub(crate) fn forget(&self, (id, query): (ConnectionId, QueryKey)) {
        self.change(id, |connection| connection.forget_query(query));
    }
}
