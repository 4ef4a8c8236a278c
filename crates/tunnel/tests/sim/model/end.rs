//! One of a flow's two ends: its host, its relay, and the flow as the engine there knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use bentpipe_testbed::world::World;
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::relay::{FlowAccess, Relay};
use bentpipe_tunnel::transport::{FlowKey, Streams, Tunnel};

use super::host::Host;

/// End of the tunnel, and so engine, at which a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    /// Index among a flow's ends.
    pub(super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn engine(self, world: &mut World) -> &mut Engine {
        match self {
            Self::Client => &mut world.terminals[0].engine,
            Self::Server => &mut world.server,
        }
    }
}

/// Flow of an engine, for as long as the relay has its turn.
pub(super) struct At<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) place: (ConnectionId, FlowKey),
}

impl FlowAccess for At<'_> {
    fn look<T>(&self, question: impl FnOnce(&Tunnel, FlowKey) -> T) -> Option<T> {
        let connection = self.engine.peek(self.place.0)?;
        Some(question(&connection.tunnel, self.place.1))
    }

    fn with(&mut self, change: impl FnOnce(&mut Tunnel, FlowKey, &mut Streams)) {
        if let Some(connection) = self.engine.connection(self.place.0) {
            let (tunnel, quic) = connection.parts();
            change(tunnel, self.place.1, quic);
        }
    }
}

/// Alarm of a relay's task. A relay that nobody has woken has no turn, so what forgets to wake it is noticed.
#[derive(Debug, Default)]
pub(super) struct Alarm(AtomicBool);

impl Alarm {
    /// Whether the relay was woken since this was asked last.
    pub(super) fn is_due(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One of a flow's two ends.
#[derive(Debug)]
pub(super) struct End {
    pub(super) host: Host,
    /// Flow at this end; `None` before it is known there.
    pub(super) place: Option<(ConnectionId, FlowKey)>,
    /// `None` before the server has answered, and once it has ended.
    pub(super) relay: Option<Relay>,
    pub(super) alarm: Arc<Alarm>,
    /// The rights to the flow were withdrawn at this end.
    pub(super) revoked: bool,
    /// Its relay has ended, or will not begin.
    pub(super) over: bool,
}

impl End {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            place: None,
            relay: None,
            alarm: Arc::default(),
            revoked: false,
            over: false,
        }
    }

    pub(super) fn wake_if(&self, wakes: bool) {
        self.alarm.0.fetch_or(wakes, Ordering::Relaxed);
    }
}
