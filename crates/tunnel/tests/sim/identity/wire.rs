//! Two quinn endpoints and the wire between them, in virtual time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bytes::BytesMut;
use quinn_proto::crypto::{ClientConfig, ServerConfig};
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, TransportErrorCode,
};

/// No handshake takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// One end of the wire and what became of its connection.
pub(crate) struct End {
    endpoint: Endpoint,
    address: SocketAddr,
    connection: Option<(ConnectionHandle, Connection)>,
    /// Whether quinn ever called the handshake complete.
    pub(crate) connected: bool,
    /// Whether the peer opened a stream.
    pub(crate) stream: bool,
    /// Why the connection ended.
    pub(crate) lost: Option<ConnectionError>,
    /// Datagrams for the other end.
    outbox: Vec<Vec<u8>>,
}

/// A handshake that has ended well or badly; the client has written to a stream as soon as it could.
pub(crate) fn handshake(
    client: &Arc<dyn ClientConfig>,
    server: &Arc<dyn ServerConfig>,
) -> (End, End) {
    tampered_handshake(client, server, |datagram| datagram)
}

/// The same over a wire that alters what the client sends.
pub(crate) fn tampered_handshake(
    client: &Arc<dyn ClientConfig>,
    server: &Arc<dyn ServerConfig>,
    mut tamper: impl FnMut(Vec<u8>) -> Vec<u8>,
) -> (End, End) {
    let start = start();
    let mut now = start;
    let listener = quinn_proto::ServerConfig::new(server.clone(), identity::token_key(&key(0)));
    let mut server = End::new(4433, Some(Arc::new(listener)));
    let mut client_end = End::new(1024, None);
    let config = quinn_proto::ClientConfig::new(client.clone());
    let connection = client_end
        .endpoint
        .connect(now, config, server.address, "bentpipe");
    client_end.connection = Some(connection.unwrap());
    while now < start + LIMIT {
        client_end.drive(now);
        server.drive(now);
        let sent = client_end
            .outbox
            .drain(..)
            .map(&mut tamper)
            .collect::<Vec<_>>();
        let answers = std::mem::take(&mut server.outbox);
        if sent.is_empty() && answers.is_empty() {
            if client_end.settled() && server.settled() {
                break;
            }
            let timers = [client_end.timer(), server.timer()];
            let Some(next) = timers.into_iter().flatten().min() else {
                break;
            };
            now = now.max(next);
        }
        sent.into_iter()
            .for_each(|datagram| server.receive(now, client_end.address, datagram));
        answers
            .into_iter()
            .for_each(|datagram| client_end.receive(now, server.address, datagram));
    }
    (client_end, server)
}

impl End {
    fn new(port: u16, listener: Option<Arc<quinn_proto::ServerConfig>>) -> Self {
        let config = EndpointConfig::new(identity::reset_key(&key(0)));
        Self {
            endpoint: Endpoint::new(Arc::new(config), listener, false, None),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            connection: None,
            connected: false,
            stream: false,
            lost: None,
            outbox: Vec::new(),
        }
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: Vec<u8>) {
        let mut buf = Vec::new();
        let data = BytesMut::from(datagram.as_slice());
        match self.endpoint.handle(now, from, None, None, data, &mut buf) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.endpoint.accept(incoming, now, &mut buf, None) {
                    Ok(accepted) => self.connection = Some(accepted),
                    Err(error) => {
                        self.lost = Some(error.cause);
                        self.outbox.extend(error.response.map(|_| buf));
                    }
                }
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.tell(event),
            Some(DatagramEvent::Response(_)) => self.outbox.push(buf),
            None => {}
        }
    }

    fn tell(&mut self, event: ConnectionEvent) {
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_event(event);
        }
    }

    fn drive(&mut self, now: Instant) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => {
                    self.connected = true;
                    if connection.side().is_client() {
                        let stream = connection.streams().open(Dir::Bi).unwrap();
                        connection.send_stream(stream).write(b"hello").unwrap();
                    }
                }
                Event::Stream(_) => self.stream = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        let mut buf = Vec::new();
        while connection.poll_transmit(now, 1, &mut buf).is_some() {
            self.outbox.push(std::mem::take(&mut buf));
        }
    }

    fn timer(&mut self) -> Option<Instant> {
        self.connection.as_mut()?.1.poll_timeout()
    }

    /// Nothing more is to be learnt: lost, or up and with a stream of the client's across.
    fn settled(&self) -> bool {
        let client = self
            .connection
            .as_ref()
            .is_none_or(|(_, it)| it.side().is_client());
        self.lost.is_some() || self.connected && (client || self.stream)
    }

    /// The connection, which exists.
    pub(crate) fn quic(&self) -> &Connection {
        &self.connection.as_ref().unwrap().1
    }

    /// The peer's key, if it has proved one.
    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        identity::peer_key(self.quic())
    }

    /// The key exchange.
    pub(crate) fn key_exchange(&self) -> Option<&'static str> {
        identity::key_exchange(self.quic())
    }

    /// The TLS alert with which this end refused the peer.
    pub(crate) fn refused_with(&self) -> Option<u8> {
        match &self.lost {
            Some(ConnectionError::TransportError(error)) => alert(error.code),
            _ => None,
        }
    }

    /// The TLS alert with which the peer refused this end.
    pub(crate) fn refused_by_peer_with(&self) -> Option<u8> {
        match &self.lost {
            Some(ConnectionError::ConnectionClosed(close)) => alert(close.error_code),
            _ => None,
        }
    }
}

/// RFC 9001, section 4.8: alerts are errors 0x100 to 0x1ff.
fn alert(code: TransportErrorCode) -> Option<u8> {
    u64::from(code).checked_sub(0x100)?.try_into().ok()
}

/// A key of its own for every number.
pub(crate) fn key(number: u8) -> PrivateKey {
    use base64::Engine;
    let seed = [number + 1; 32];
    base64::engine::general_purpose::STANDARD
        .encode(seed)
        .parse()
        .unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "only a place to start counting from"
)]
pub(crate) fn start() -> Instant {
    Instant::now()
}

/// The client's datagram without its QUIC Handshake packets (RFC 9000, section 17.2.4), which hold its key and proof;
/// and whether application data is left in it.
pub(crate) fn without_handshake_packets(datagram: &[u8]) -> (Vec<u8>, bool) {
    fn varint(bytes: &[u8]) -> (usize, usize) {
        let width = 1 << (bytes[0] >> 6);
        let first = usize::from(bytes[0] & 0x3f);
        let rest = &bytes[1..width];
        (
            width,
            rest.iter()
                .fold(first, |number, byte| number << 8 | usize::from(*byte)),
        )
    }
    let mut kept = Vec::new();
    let mut rest = datagram;
    while rest.first().is_some_and(|first| first & 0x80 != 0) {
        let kind = rest[0] >> 4 & 3;
        let mut at = 5;
        for _ in 0..2 {
            at += 1 + usize::from(rest[at]);
        }
        if kind == 0 {
            let (width, token) = varint(&rest[at..]);
            at += width + token;
        }
        let (width, length) = varint(&rest[at..]);
        let (packet, next) = rest.split_at(at + width + length);
        if kind != 2 {
            kept.extend_from_slice(packet);
        }
        rest = next;
    }
    kept.extend_from_slice(rest);
    (kept, !rest.is_empty())
}
