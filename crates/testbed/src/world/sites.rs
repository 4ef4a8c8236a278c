//! The web at the server: answers each message with as many bytes as it asks for.

use std::net::Ipv4Addr;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bytes::Bytes;

use super::origins::payload;

/// Bytes that a message begins with: its length, and that of the answer.
const HEADER: usize = 12;

/// The destination that answers messages.
pub(super) fn site() -> Destination {
    Destination {
        host: Host::Ip(Ipv4Addr::new(255, 255, 255, 254).into()),
        port: 443,
    }
}

/// A message of `size` bytes that asks for `answer` bytes.
pub(super) fn message(size: usize, answer: u64) -> Bytes {
    let mut message = (size as u32).to_be_bytes().to_vec();
    message.extend(answer.to_be_bytes());
    message.resize(size, b'?');
    message.into()
}

/// One flow as the site sees it.
pub(super) struct SiteFlow {
    connection: ConnectionId,
    flow: FlowKey,
    got: Vec<u8>,
    left: u64,
}

impl SiteFlow {
    pub(super) fn open(server: &mut Engine, connection: ConnectionId, flow: FlowKey) -> Self {
        if let Some(held) = server.connection(connection) {
            let (tunnel, quic) = held.parts();
            tunnel.reply(quic, flow, ReplyCode::Ok, None);
        }
        Self {
            connection,
            flow,
            got: Vec::new(),
            left: 0,
        }
    }

    /// Serves once. True for: anything was done, there is more to do.
    pub(super) fn poll(&mut self, server: &mut Engine) -> (bool, bool) {
        let Some(held) = server.peek(self.connection) else {
            return (true, false);
        };
        let incoming = held.tunnel.incoming(self.flow);
        let room = held.tunnel.capacity(self.flow) as u64;
        if incoming == Incoming::Blocked && room.min(self.left) == 0 {
            return (false, true);
        }
        let held = server.connection(self.connection).expect("it was there");
        let (tunnel, quic) = held.parts();
        if !matches!(incoming, Incoming::Data | Incoming::Blocked) {
            tunnel.finish(self.flow);
            tunnel.release(quic, self.flow);
            return (true, false);
        }
        tunnel.take_notice(self.flow);
        let before = self.got.len();
        for chunk in tunnel.ready(self.flow) {
            self.got.extend_from_slice(chunk);
        }
        tunnel.consume(self.flow, (self.got.len() - before) as u64);
        while let Some(answer) = self.next_answer() {
            self.left += answer;
        }
        let mut room = room;
        while self.left.min(room) > 0 {
            let piece = payload(self.left.min(room));
            room -= piece.len() as u64;
            self.left -= piece.len() as u64;
            tunnel.push(self.flow, piece);
        }
        (true, true)
    }

    /// Length of the answer that the next whole message asks for.
    fn next_answer(&mut self) -> Option<u64> {
        let (header, _) = self.got.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, answer @ ..] = *header;
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        if self.got.len() < size {
            return None;
        }
        self.got.drain(..size);
        Some(u64::from_be_bytes(answer))
    }
}
