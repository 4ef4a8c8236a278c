//! Lines: QUIC connections on which a client hands words to a PEP, each whole and in order (`PROTOCOL.md` §20.1).
//!
//! ```text
//!   client: connect ─► Line ══ words ══► Line ─► PEP: who is it, then its words
//!           Up, Down ◄──╯                  ╰─ before a key is proven: limits of the engine's handshakes
//! ```
//!
//! A state machine as the engine is: no socket, no clock.

mod config;
mod line;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::crypto::{ClientConfig as ClientCrypto, HmacKey};
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, Endpoint, EndpointEvent, Incoming,
    ServerConfig,
};
use zeroize::Zeroizing;

use crate::engine::identity::PublicKey;
use crate::engine::{
    ConnectionId, Handshakes, Output, ServerSetup, Timers, Verdict, is_initial, tuning,
};
use crate::text::printable;
use bentpipe_units::Seed;
use line::Line;
pub use line::{LineCode, LineEnd, MAX_LINE_WORD};

/// Answers that wait for the socket; more are dropped, as a link would.
const MOST_OUTPUTS: usize = 1024;

/// News of a line.
#[derive(Debug)]
pub enum LineNotice {
    /// Both ends have proven their keys; the peer's is this one. An earlier line of the same client is closed, without a word.
    Up(PublicKey),
    /// The client has handed this over.
    Word(Zeroizing<Vec<u8>>),
    /// The line is over.
    Down(LineEnd),
}

/// Lines of one socket.
pub struct Lines {
    endpoint: Endpoint,
    server: Option<Arc<ServerConfig>>,
    /// Clients that have not proven their keys yet.
    handshakes: Handshakes,
    lines: BTreeMap<ConnectionId, Line>,
    timers: Timers,
    handles: HashMap<ConnectionHandle, ConnectionId>,
    next: u64,
    notices: VecDeque<(ConnectionId, LineNotice)>,
    outputs: VecDeque<(Output, Vec<u8>)>,
}

impl Lines {
    /// No line yet; with `server`, clients may begin some. `reset_key` is of the own key, so that resets of a restarted PEP are
    /// believed; `seed` decides which sources share a limit.
    #[must_use]
    pub fn new(reset_key: Arc<dyn HmacKey>, server: Option<ServerSetup>, seed: Seed) -> Self {
        let server = server.map(|setup| {
            let mut server = ServerConfig::new(setup.crypto, setup.token_key);
            server.transport_config(config::transport(true));
            Arc::new(server)
        });
        let settings = Arc::new(tuning::endpoint(reset_key, None, None));
        Self {
            endpoint: Endpoint::new(settings, server.clone(), true, None),
            server,
            handshakes: Handshakes::new(seed),
            lines: BTreeMap::new(),
            timers: Timers::default(),
            handles: HashMap::new(),
            next: 0,
            notices: VecDeque::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Begins a line to `remote`.
    ///
    /// # Errors
    /// `remote` is no address that can be connected to.
    pub fn connect(
        &mut self,
        now: Instant,
        crypto: Arc<dyn ClientCrypto>,
        remote: SocketAddr,
    ) -> Result<ConnectionId, ConnectError> {
        let mut client = ClientConfig::new(crypto);
        client.transport_config(config::transport(false));
        let (handle, quic) = self.endpoint.connect(now, client, remote, "bentpipe")?;
        let id = self.adopt(handle, Line::new(handle, quic));
        self.service(now, id);
        Ok(id)
    }

    fn adopt(&mut self, handle: ConnectionHandle, line: Line) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        self.handles.insert(handle, id);
        self.lines.insert(id, line);
        id
    }

    /// Hands a word over (client); before the line is up it waits.
    pub fn send(&mut self, now: Instant, id: ConnectionId, word: &[u8]) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.push(word);
            self.service(now, id);
        }
    }

    /// Ends a line, without news of it.
    pub fn close(&mut self, now: Instant, id: ConnectionId, code: LineCode, reason: &str) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.close(now, code, reason);
            self.service(now, id);
        }
    }

    /// Takes a datagram of the socket.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        (remote, local): (SocketAddr, Option<IpAddr>),
        datagram: &[u8],
    ) {
        let knocks = self.server.is_some() && is_initial(datagram);
        if knocks && !self.handshakes.knock(now, remote.ip()) {
            return;
        }
        let mut buf = Vec::new();
        let data = BytesMut::from(datagram);
        match self
            .endpoint
            .handle(now, remote, local, None, data, &mut buf)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(id) = self.handles.get(&handle).copied() {
                    if let Some(line) = self.lines.get_mut(&id) {
                        line.quic.handle_event(event);
                    }
                    self.service(now, id);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            // A client that answers resets would answer for ever.
            Some(DatagramEvent::Response(transmit)) if self.server.is_some() => {
                self.put(transmit, buf);
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let Some(server) = self.server.clone() else {
            return self.endpoint.ignore(incoming);
        };
        let source = incoming.remote_address().ip();
        let proven = incoming.remote_address_validated();
        let mut buf = Vec::new();
        match self.handshakes.admit(now, source, proven) {
            Verdict::Take { instead_of } => instead_of.into_iter().for_each(|id| self.forget(id)),
            Verdict::Prove => {
                if let Ok(transmit) = self.endpoint.retry(incoming, &mut buf) {
                    self.put(transmit, buf);
                }
                return;
            }
            Verdict::Ignore => return self.endpoint.ignore(incoming),
        }
        match self.endpoint.accept(incoming, now, &mut buf, Some(server)) {
            Ok((handle, quic)) => {
                let id = self.adopt(handle, Line::new(handle, quic));
                self.handshakes.enter(now, id, source);
                self.service(now, id);
            }
            Err(error) => {
                tracing::debug!("handshake refused: {}", printable(&error.cause));
                if let Some(transmit) = error.response {
                    self.put(transmit, buf);
                }
            }
        }
    }

    fn put(&mut self, output: Output, bytes: Vec<u8>) {
        if self.outputs.len() < MOST_OUTPUTS {
            self.outputs.push_back((output, bytes));
        }
    }

    /// Does what the last event has brought about on a line.
    fn service(&mut self, now: Instant, id: ConnectionId) {
        let Some(mut line) = self.lines.remove(&id) else {
            return;
        };
        loop {
            while let Some(event) = line.quic.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(line.handle, event) {
                    line.quic.handle_event(event);
                }
            }
            for notice in line.follow(now) {
                self.tell(now, id, notice);
            }
            let mut buf = Vec::new();
            match line.quic.poll_transmit(now, 1, &mut buf) {
                Some(transmit) => self.put(transmit, buf),
                None => break,
            }
        }
        if line.quic.is_drained() {
            self.timers.set(id, None);
            self.handles.remove(&line.handle);
            self.handshakes.forget(id);
        } else {
            self.timers.set(id, line.quic.poll_timeout());
            self.lines.insert(id, line);
        }
    }

    fn tell(&mut self, now: Instant, id: ConnectionId, notice: LineNotice) {
        if let LineNotice::Up(key) = &notice
            && self.server.is_some()
        {
            self.handshakes.succeed(id);
            let same = |line: &Line| line.peer() == Some(*key);
            let others: Vec<_> = self.lines.iter().filter(|(_, line)| same(line)).collect();
            for id in others.into_iter().map(|(id, _)| *id).collect::<Vec<_>>() {
                self.close(
                    now,
                    id,
                    LineCode::Replaced,
                    "the client has connected again",
                );
            }
        }
        self.notices.push_back((id, notice));
    }

    /// Drops a line without a word to its peer.
    fn forget(&mut self, id: ConnectionId) {
        self.handshakes.forget(id);
        self.timers.set(id, None);
        let Some(mut line) = self.lines.remove(&id) else {
            return;
        };
        self.handles.remove(&line.handle);
        while let Some(event) = line.quic.poll_endpoint_events() {
            self.endpoint.handle_event(line.handle, event);
        }
        if !line.quic.is_drained() {
            self.endpoint
                .handle_event(line.handle, EndpointEvent::drained());
        }
    }

    /// Key of the peer of a line that is up.
    #[must_use]
    pub fn peer(&self, id: ConnectionId) -> Option<PublicKey> {
        self.lines.get(&id).and_then(Line::peer)
    }

    /// Lines that are up.
    pub fn up(&self) -> impl Iterator<Item = (ConnectionId, PublicKey)> + '_ {
        let up = |(id, line): (&ConnectionId, &Line)| Some((*id, line.peer()?));
        self.lines.iter().filter_map(up)
    }

    /// The next piece of news.
    pub fn poll_notice(&mut self) -> Option<(ConnectionId, LineNotice)> {
        self.notices.pop_front()
    }

    /// The next datagram for the socket, and where it goes.
    pub fn poll_output(&mut self) -> Option<(Output, Vec<u8>)> {
        self.outputs.pop_front()
    }

    /// Instant at which [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let both = [self.timers.earliest(), self.handshakes.poll_timeout()];
        both.into_iter().flatten().min()
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        // All first: a line whose next timer is due at once has its turn with the next call.
        let due: Vec<_> = iter::from_fn(|| self.timers.pop_due(now)).collect();
        for id in due {
            if let Some(line) = self.lines.get_mut(&id) {
                line.quic.handle_timeout(now);
            }
            self.service(now, id);
        }
        while let Some(id) = self.handshakes.give_up(now) {
            self.forget(id);
        }
    }
}
