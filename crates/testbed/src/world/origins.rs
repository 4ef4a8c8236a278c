//! The LAN side at the server: every destination takes what comes and sends what its address asks for.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bytes::Bytes;

use super::sites::{SiteFlow, site};
use super::slow_start::SlowStart;

/// Payload that everybody sends, in pieces of this size that cost no memory.
static PAYLOAD: [u8; 1 << 16] = [0x5a; 1 << 16];

/// At most `size` bytes to send.
pub(super) fn payload(size: u64) -> Bytes {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    Bytes::from_static(&PAYLOAD[..size.min(PAYLOAD.len())])
}

/// A destination that sends `bytes` and ends: the number travels in address and port.
pub fn source(bytes: u64) -> Destination {
    let [.., a, b, c, d, e] = bytes.to_be_bytes();
    Destination {
        host: Host::Ip(Ipv4Addr::new(a, b, c, d).into()),
        port: u16::from(e),
    }
}

pub(super) fn amount(destination: &Destination) -> u64 {
    let Host::Ip(std::net::IpAddr::V4(address)) = destination.host else {
        panic!("destinations here are numbers");
    };
    u64::from(u32::from(address)) << 8 | u64::from(destination.port)
}

/// Takes what has come, says something and falls silent.
pub(super) fn answer(server: &mut Engine, connection: ConnectionId, flow: FlowKey) {
    if let Some(held) = server.connection(connection) {
        let (tunnel, quic) = held.parts();
        tunnel.reply(quic, flow, ReplyCode::Ok, None);
        let asked = tunnel.ready(flow).map(|chunk| chunk.len() as u64).sum();
        tunnel.consume(flow, asked);
        tunnel.push(flow, payload(5));
    }
}

/// The server's LAN: every flow gets what it asked for.
#[derive(Default)]
pub struct Origins {
    open: Vec<Origin>,
    sites: Vec<SiteFlow>,
    /// Round-trip time from the server to its destinations, which begin with slow start; zero if they send all at once.
    pub rtt: Duration,
    /// Instant at which the window of a destination in slow start grows next.
    due: Option<Instant>,
    /// Flows that ended with FIN from the client: when, and how many bytes came.
    pub uploads: Vec<(Instant, u64)>,
}

/// One flow as its destination sees it.
struct Origin {
    connection: ConnectionId,
    flow: FlowKey,
    got: u64,
    left: u64,
    slow_start: SlowStart,
    ended: bool,
}

impl Origins {
    /// Destinations `rtt` from the server.
    pub(super) fn at(rtt: Duration) -> Self {
        Self {
            rtt,
            ..Self::default()
        }
    }

    pub(super) fn open(
        &mut self,
        now: Instant,
        server: &mut Engine,
        (connection, flow): (ConnectionId, FlowKey),
        destination: &Destination,
    ) {
        if *destination == site() {
            return self.sites.push(SiteFlow::open(server, connection, flow));
        }
        if let Some(held) = server.connection(connection) {
            let (tunnel, quic) = held.parts();
            tunnel.reply(quic, flow, ReplyCode::Ok, None);
            self.open.push(Origin {
                connection,
                flow,
                got: 0,
                left: amount(destination),
                slow_start: SlowStart::new(self.rtt, now),
                ended: false,
            });
        }
    }

    /// Sends and takes what can be; true if anything was.
    pub(super) fn poll(&mut self, now: Instant, server: &mut Engine) -> bool {
        let mut busy = false;
        self.open.retain_mut(|origin| {
            let (moved, open) = origin.poll(now, server);
            busy |= moved;
            if !open {
                self.uploads.push((now, origin.got));
            }
            open
        });
        self.sites.retain_mut(|site| {
            let (moved, open) = site.poll(server);
            busy |= moved;
            open
        });
        let starting = self.open.iter().filter(|origin| !origin.ended);
        self.due = starting
            .filter_map(|origin| origin.slow_start.grows_at(now))
            .min();
        busy
    }

    /// Instant at which a destination may send more than now.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// True if a destination may send more since it was last asked.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}

impl Origin {
    /// Serves once. True for: anything was done, there is more to do.
    fn poll(&mut self, now: Instant, server: &mut Engine) -> (bool, bool) {
        let Some(held) = server.peek(self.connection) else {
            return (true, false);
        };
        let incoming = held.tunnel.incoming(self.flow);
        let room = (held.tunnel.capacity(self.flow) as u64).min(self.slow_start.room(now));
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
        self.got += asked;
        if !self.ended {
            let mut room = room;
            while self.left.min(room) > 0 {
                let piece = payload(self.left.min(room));
                room -= piece.len() as u64;
                self.left -= piece.len() as u64;
                self.slow_start.on_sent(piece.len() as u64);
                tunnel.push(self.flow, piece);
            }
            if self.left == 0 {
                tunnel.finish(self.flow);
                self.ended = true;
            }
        } else if over {
            if matches!(incoming, Incoming::End(End::Abort(_)) | Incoming::Gone) {
                self.got = 0;
            }
            tunnel.release(quic, self.flow);
            return (true, false);
        }
        (true, true)
    }
}
