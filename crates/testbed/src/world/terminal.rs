//! One terminal: a client's engine, its LAN, and the path between it and the shared link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_link::sim::next_wakeup;
use bentpipe_proto::tunnel::Inbound;
use bentpipe_tunnel::engine::{ConnectionId, ConnectionNotice, Engine};
use bentpipe_tunnel::transport::{FlowKey, TunnelEvent};

use super::apps::Apps;
use super::stream::TcpWire;

/// A client with its applications.
pub struct Terminal {
    /// Engine of the client.
    pub engine: Engine,
    /// Address on the link.
    pub address: SocketAddr,
    /// Applications behind the client.
    pub apps: Apps,
    /// One-way delay between the terminal and the shared link, on top of the link's own.
    pub(super) access: Duration,
    /// TCP connection that carries datagrams, if one does.
    pub(super) tcp: Option<TcpWire>,
    /// Connections in the order of their beginning.
    pub tunnels: Vec<ConnectionId>,
    /// Reasons for which connections were lost.
    pub notices: Vec<(Duration, String)>,
    /// Instants at which answers to DNS queries came.
    pub answers: Vec<Instant>,
    /// Flows whose relays are to look at them, where relays are the test's own.
    pub noticed: Option<Vec<(ConnectionId, FlowKey)>>,
    /// Flows that the server has opened.
    pub inbound: Vec<(FlowKey, Inbound)>,
    /// Epochs of sealed flows that the server has named.
    pub sle_epochs: Vec<u16>,
    /// A fault of the server's is what is looked for.
    pub expects_fault: bool,
    /// The tunnel that flows are opened in, and since when it is ready.
    pub ready: Option<(ConnectionId, Instant)>,
    /// Something may have happened at this instant.
    pub(super) awake: bool,
    /// Instant at which the terminal wants to be woken if nothing comes in before.
    pub(super) next: Option<Instant>,
}

impl Terminal {
    pub(super) fn new(engine: Engine, address: SocketAddr, access: Duration) -> Self {
        Self {
            engine,
            address,
            apps: Apps::default(),
            access,
            tcp: None,
            tunnels: Vec::new(),
            notices: Vec::new(),
            answers: Vec::new(),
            noticed: None,
            inbound: Vec::new(),
            sle_epochs: Vec::new(),
            expects_fault: false,
            ready: None,
            awake: true,
            next: None,
        }
    }

    /// The tunnel that flows are opened in.
    pub fn tunnel(&self) -> ConnectionId {
        self.ready.expect("the tunnel is ready").0
    }

    /// A download of `bytes`; returns its index among the readers.
    pub fn download(&mut self, now: Instant, bytes: u64, rate: Option<u64>) -> usize {
        let tunnel = self.tunnel();
        self.apps
            .download(now, &mut self.engine, tunnel, bytes, rate)
    }

    /// An upload of `bytes`; returns its index among the readers.
    pub fn upload(&mut self, now: Instant, bytes: u64) -> usize {
        let tunnel = self.tunnel();
        self.apps.upload(now, &mut self.engine, tunnel, bytes)
    }

    /// Runs what is due.
    pub(super) fn wake(&mut self, now: Instant) {
        self.awake = self.engine.is_dirty() || self.next.is_some_and(|next| next <= now);
        if self.awake {
            self.engine.handle_timeout(now);
        }
    }

    /// Lets engine and applications act; true if anything moved.
    pub(super) fn poll(&mut self, start: Instant, now: Instant) -> bool {
        let mut busy = false;
        while let Some(event) = self.engine.poll_event(now) {
            self.on_notice(start, now, event.connection, event.notice);
            busy = true;
        }
        busy | self.apps.poll(now, &mut self.engine)
    }

    fn on_notice(
        &mut self,
        start: Instant,
        now: Instant,
        connection: ConnectionId,
        notice: ConnectionNotice,
    ) {
        match notice {
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.ready = Some((connection, now)),
            ConnectionNotice::Lost(reason) => {
                self.notices.push((now - start, reason.to_string()));
                self.ready = self.ready.filter(|(ready, _)| *ready != connection);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Inbound(flow, inbound)) => {
                self.inbound.push((flow, *inbound));
            }
            ConnectionNotice::Tunnel(TunnelEvent::Flow(flow)) => {
                let noticed = self.noticed.iter_mut();
                noticed.for_each(|noticed| noticed.push((connection, flow)));
            }
            ConnectionNotice::Tunnel(TunnelEvent::Answer(_, Some(_))) => self.answers.push(now),
            ConnectionNotice::Tunnel(TunnelEvent::SleEpoch(epoch, _)) => {
                self.sle_epochs.push(epoch);
            }
            ConnectionNotice::Fault(fault) if self.expects_fault => {
                self.notices.push((now - start, fault.to_string()));
            }
            ConnectionNotice::Fault(fault) => panic!("the client found a fault: {fault}"),
            ConnectionNotice::Connected
            | ConnectionNotice::UnknownKey(..)
            | ConnectionNotice::Tunnel(_)
            | ConnectionNotice::Outage(_)
            | ConnectionNotice::Unreachable(_) => {}
        }
    }

    /// Instant at which to wake the terminal; only those who were awake may have changed their minds.
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        if self.awake {
            self.next = next_wakeup([self.engine.poll_timeout(), self.apps.poll_timeout()]);
        }
        self.next
    }
}
