//! The LAN sides: readers at the client, senders at the server. They do what `relay` does with sockets,
//! without sockets.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bentpipe_pep::engine::{ConnectionId, Engine};
use bentpipe_pep::transport::{FlowKey, Incoming};
use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bytes::Bytes;

/// How often a slow reader reads.
const TICK: Duration = Duration::from_millis(20);

/// A destination that sends `bytes` and ends: the number travels in address and port.
pub(crate) fn source(bytes: u64) -> Destination {
    let [.., a, b, c, d, e] = bytes.to_be_bytes();
    Destination {
        host: Host::Ip(Ipv4Addr::new(a, b, c, d).into()),
        port: u16::from(e),
    }
}

fn amount(destination: &Destination) -> u64 {
    let Host::Ip(std::net::IpAddr::V4(address)) = destination.host else {
        panic!("destinations here are numbers");
    };
    u64::from(u32::from(address)) << 8 | u64::from(destination.port)
}

/// One flow as its LAN host at the client sees it.
pub(crate) struct Reader {
    connection: ConnectionId,
    flow: FlowKey,
    /// Bytes per second; `None`: as they come.
    rate: Option<u64>,
    since: Instant,
    next: Option<Instant>,
    /// Bytes read.
    pub(crate) got: u64,
    /// When the first byte came.
    pub(crate) first: Option<Instant>,
    /// When and how it ended.
    pub(crate) end: Option<(Instant, Ending)>,
}

/// How a flow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Fin,
    Reset,
    Refused,
    TunnelLost,
}

/// The client's LAN.
#[derive(Default)]
pub(crate) struct Apps {
    pub(crate) readers: Vec<Reader>,
}

impl Apps {
    /// Opens a flow to [`source`]`(bytes)` with `request` bytes of request; returns its index.
    pub(crate) fn download(
        &mut self,
        now: Instant,
        client: &mut Engine,
        connection: ConnectionId,
        bytes: u64,
        rate: Option<u64>,
    ) -> usize {
        let (tunnel, quic) = client
            .connection(connection)
            .expect("the tunnel is up")
            .parts();
        let request = Bytes::from(vec![b'?'; 200]);
        let flow = tunnel
            .open(quic, source(bytes), None, request)
            .expect("a flow can be opened");
        tunnel.finish(flow);
        self.readers.push(Reader {
            connection,
            flow,
            rate,
            since: now,
            next: rate.map(|_| now + TICK),
            got: 0,
            first: None,
            end: None,
        });
        self.readers.len() - 1
    }

    /// Reads what can be read; true if anything was.
    pub(crate) fn poll(&mut self, now: Instant, client: &mut Engine) -> bool {
        let mut busy = false;
        let open = |reader: &&mut Reader| reader.end.is_none();
        for reader in self.readers.iter_mut().filter(open) {
            busy |= reader.poll(now, client);
        }
        busy
    }

    /// When a slow reader reads next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let open = self.readers.iter().filter(|reader| reader.end.is_none());
        open.filter_map(|reader| reader.next).min()
    }
}

impl Reader {
    fn poll(&mut self, now: Instant, client: &mut Engine) -> bool {
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
                    let taken = self.read(now, client, allowance);
                    allowance -= taken;
                    busy |= taken > 0;
                    if taken == 0 {
                        return busy;
                    }
                    continue;
                }
                Incoming::Blocked => return busy,
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

    fn read(&mut self, now: Instant, client: &mut Engine, allowance: u64) -> u64 {
        let Some(connection) = client.connection(self.connection) else {
            return 0;
        };
        let (tunnel, _) = connection.parts();
        tunnel.take_notice(self.flow);
        let ready: u64 = tunnel
            .ready(self.flow)
            .map(|chunk| chunk.len() as u64)
            .sum();
        let taken = ready.min(allowance);
        if taken > 0 {
            tunnel.consume(self.flow, taken);
            self.got += taken;
            self.first.get_or_insert(now);
        }
        taken
    }
}

/// The server's LAN: every flow gets what it asked for.
#[derive(Default)]
pub(crate) struct Servers {
    origins: Vec<Origin>,
}

/// One flow as its destination sees it.
struct Origin {
    connection: ConnectionId,
    flow: FlowKey,
    left: u64,
    ended: bool,
}

impl Servers {
    pub(crate) fn open(
        &mut self,
        server: &mut Engine,
        connection: ConnectionId,
        flow: FlowKey,
        destination: &Destination,
    ) {
        if let Some(held) = server.connection(connection) {
            let (tunnel, quic) = held.parts();
            tunnel.reply(quic, flow, ReplyCode::Ok, None);
            let left = amount(destination);
            self.origins.push(Origin {
                connection,
                flow,
                left,
                ended: false,
            });
        }
    }

    /// Sends what can be sent; true if anything was.
    pub(crate) fn poll(&mut self, server: &mut Engine) -> bool {
        let mut busy = false;
        self.origins.retain_mut(|origin| {
            let (moved, open) = origin.poll(server);
            busy |= moved;
            open
        });
        busy
    }
}

impl Origin {
    /// Whether anything was done, and whether there is more to do.
    fn poll(&mut self, server: &mut Engine) -> (bool, bool) {
        let Some(held) = server.peek(self.connection) else {
            return (true, false);
        };
        let incoming = held.tunnel.incoming(self.flow);
        let room = held.tunnel.capacity(self.flow) as u64;
        let asks = incoming == Incoming::Data;
        let over = matches!(incoming, Incoming::End(_) | Incoming::Gone);
        if !asks && (self.ended || room == 0) && !(self.ended && over) {
            return (false, true);
        }
        let (tunnel, quic) = server
            .connection(self.connection)
            .expect("it was there")
            .parts();
        tunnel.take_notice(self.flow);
        let asked: u64 = tunnel
            .ready(self.flow)
            .map(|chunk| chunk.len() as u64)
            .sum();
        tunnel.consume(self.flow, asked);
        if !self.ended {
            let size = self.left.min(room);
            if size > 0 {
                tunnel.push(self.flow, Bytes::from(vec![0x5a; size as usize]));
                self.left -= size;
            }
            if self.left == 0 {
                tunnel.finish(self.flow);
                self.ended = true;
            }
        } else if over {
            tunnel.release(quic, self.flow);
            return (true, false);
        }
        (true, true)
    }
}
