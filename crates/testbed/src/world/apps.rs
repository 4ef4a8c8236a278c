//! The LAN side at a terminal: hosts that read, and hosts that send. They do what `relay` does with sockets, without
//! sockets.

use std::time::{Duration, Instant};

use bentpipe_proto::relay::End;
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bytes::Bytes;

use super::origins::{payload, source};
use super::page::Browser;

/// Time between two reads of a slow reader.
const TICK: Duration = Duration::from_millis(20);

/// Bytes that a request has.
const REQUEST: usize = 200;

/// One flow as its LAN host at the client sees it.
pub struct Reader {
    connection: ConnectionId,
    flow: FlowKey,
    /// Bytes per second; `None`: as they come.
    rate: Option<u64>,
    /// Instant at which the flow was opened.
    pub since: Instant,
    next: Option<Instant>,
    /// Bytes still to be sent before FIN.
    to_send: u64,
    finished: bool,
    /// Bytes read.
    pub got: u64,
    /// Instant at which the first byte came.
    pub first: Option<Instant>,
    /// Instant and kind of its end.
    pub end: Option<(Instant, Ending)>,
}

/// Ways in which a flow ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// In order, with all bytes.
    Fin,
    /// With a reset.
    Reset,
    /// Before it began, by the destination.
    Refused,
    /// With its tunnel.
    TunnelLost,
}

/// A terminal's LAN.
#[derive(Default)]
pub struct Apps {
    /// Downloads, in the order of their beginning.
    pub readers: Vec<Reader>,
    /// Pages, whole ones as well.
    pub pages: Vec<Browser>,
}

impl Apps {
    /// Opens a flow to [`source`]`(bytes)` with a short request; returns its index.
    pub(super) fn download(
        &mut self,
        now: Instant,
        client: &mut Engine,
        connection: ConnectionId,
        bytes: u64,
        rate: Option<u64>,
    ) -> usize {
        let request = Bytes::from(vec![b'?'; REQUEST]);
        self.open(now, client, connection, bytes, request);
        let reader = self.readers.last_mut().expect("just pushed");
        (reader.rate, reader.next) = (rate, rate.map(|_| now + TICK));
        self.readers.len() - 1
    }

    /// Opens a flow that sends `bytes` and asks for nothing; returns its index.
    pub(super) fn upload(
        &mut self,
        now: Instant,
        client: &mut Engine,
        connection: ConnectionId,
        bytes: u64,
    ) -> usize {
        self.open(now, client, connection, 0, Bytes::new());
        self.readers.last_mut().expect("just pushed").to_send = bytes;
        self.readers.len() - 1
    }

    fn open(
        &mut self,
        now: Instant,
        client: &mut Engine,
        connection: ConnectionId,
        bytes: u64,
        request: Bytes,
    ) {
        let (tunnel, quic) = client
            .connection(connection)
            .expect("the tunnel is up")
            .parts();
        let flow = tunnel
            .open(quic, source(bytes), None, request)
            .expect("a flow can be opened");
        self.readers.push(Reader {
            connection,
            flow,
            rate: None,
            since: now,
            next: None,
            to_send: 0,
            finished: false,
            got: 0,
            first: None,
            end: None,
        });
    }

    /// Reads and sends what can be; true if anything was.
    pub(super) fn poll(&mut self, now: Instant, client: &mut Engine) -> bool {
        let mut busy = false;
        let open = |reader: &&mut Reader| reader.end.is_none();
        for reader in self.readers.iter_mut().filter(open) {
            busy |= reader.send(client);
            busy |= reader.read(now, client);
        }
        for page in &mut self.pages {
            busy |= page.poll(now, client);
        }
        busy
    }

    /// Instant at which a slow reader reads next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let open = self.readers.iter().filter(|reader| reader.end.is_none());
        open.filter_map(|reader| reader.next).min()
    }
}

impl Reader {
    fn send(&mut self, client: &mut Engine) -> bool {
        if self.finished {
            return false;
        }
        let Some(held) = client.peek(self.connection) else {
            return false;
        };
        let mut room = held.tunnel.capacity(self.flow) as u64;
        if room == 0 && self.to_send > 0 {
            return false;
        }
        let held = client.connection(self.connection).expect("it was there");
        let (tunnel, _) = held.parts();
        while self.to_send.min(room) > 0 {
            let piece = payload(self.to_send.min(room));
            self.to_send -= piece.len() as u64;
            room -= piece.len() as u64;
            tunnel.push(self.flow, piece);
        }
        if self.to_send == 0 {
            tunnel.finish(self.flow);
            self.finished = true;
        }
        true
    }

    fn read(&mut self, now: Instant, client: &mut Engine) -> bool {
        if self.next.is_some_and(|next| next > now) {
            return false;
        }
        self.next = self.rate.map(|_| now + TICK);
        let mut allowance = self.rate.map_or(u64::MAX, |rate| {
            let due = now.saturating_duration_since(self.since).as_secs_f64() * rate as f64;
            (due as u64).saturating_sub(self.got)
        });
        let mut busy = false;
        loop {
            let incoming = client
                .peek(self.connection)
                .map_or(Incoming::Gone, |connection| {
                    connection.tunnel.incoming(self.flow)
                });
            let ending = match incoming {
                Incoming::Data => {
                    let taken = self.take(now, client, allowance);
                    allowance -= taken;
                    busy |= taken > 0;
                    if taken == 0 {
                        return busy;
                    }
                    continue;
                }
                Incoming::Blocked => return busy,
                Incoming::End(End::Fin) if !self.finished => return busy,
                Incoming::End(End::Fin) => Ending::Fin,
                Incoming::End(End::Abort(_)) => Ending::Reset,
                Incoming::Refused(_) => Ending::Refused,
                Incoming::Gone => Ending::TunnelLost,
            };
            self.end = Some((now, ending));
            if let Some(connection) = client.connection(self.connection) {
                let (tunnel, quic) = connection.parts();
                tunnel.release(quic, self.flow);
            }
            return true;
        }
    }

    fn take(&mut self, now: Instant, client: &mut Engine, allowance: u64) -> u64 {
        let Some(connection) = client.connection(self.connection) else {
            return 0;
        };
        let (tunnel, _) = connection.parts();
        tunnel.take_notice(self.flow);
        // No further than the allowance: much more may be waiting.
        let mut ready = 0;
        for chunk in tunnel.ready(self.flow) {
            ready += chunk.len() as u64;
            if ready > allowance {
                break;
            }
        }
        let taken = ready.min(allowance);
        if taken < ready {
            tunnel.blocked(self.flow);
        }
        if taken > 0 {
            tunnel.consume(self.flow, taken);
            self.got += taken;
            self.first.get_or_insert(now);
        }
        taken
    }
}
