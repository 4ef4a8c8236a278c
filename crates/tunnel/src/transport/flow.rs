//! One flow of a tunnel: its two directions, its stream and its place in the scheduler.

use bentpipe_proto::fec;
use bentpipe_proto::relay::{CreditWindow, End, MAX_HEADER, Receiver, Sender, Ticket};
use bentpipe_proto::tunnel::{AbortCode, DecodeError, FlowId, Inbound, Open, Reply, ReplyCode};
use bytes::Bytes;
use quinn_proto::{Connection, Dir, ReadError, ReadableError, Side, StreamId, VarInt};

/// Names a flow within its tunnel, on one side: the index of its stream, with a bit of its own if the server opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub(crate) u64);

impl FlowKey {
    /// The lowest key that a flow can have.
    pub const MIN: Self = Self(0);
    /// The highest key that a flow can have.
    pub const MAX: Self = Self(u64::MAX);

    /// Above every index that a stream can have.
    const OF_SERVER: u64 = FlowId::OF_SERVER.0;

    pub(super) fn stream(self) -> StreamId {
        match self.is_inbound() {
            false => StreamId::new(Side::Client, Dir::Bi, self.0),
            true => StreamId::new(Side::Server, Dir::Bi, self.0 - Self::OF_SERVER),
        }
    }

    pub(super) fn of(stream: StreamId) -> Self {
        Self(match stream.initiator() {
            Side::Client => stream.index(),
            Side::Server => stream.index() + Self::OF_SERVER,
        })
    }

    /// The server has opened it.
    pub(super) fn is_inbound(self) -> bool {
        self.0 >= Self::OF_SERVER
    }
}

/// What the LAN side of a flow has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Bytes are ready (`Tunnel::ready`).
    Data,
    /// Nothing yet.
    Blocked,
    /// Everything was delivered and how it ended: FIN, or reset the LAN side.
    End(End),
    /// The other end could not or would not connect: reset the LAN side.
    Refused(ReplyCode),
    /// The tunnel is gone or the flow was thrown away: reset the LAN side at once.
    Gone,
}

/// How far the header of the receiving direction has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Header {
    Expected,
    Open(Open),
    Inbound(Inbound),
    Reply(Reply),
}

#[derive(Debug)]
pub(super) struct Flow {
    /// By this side, which hears the REPLY.
    pub(super) opened_here: bool,
    pub(super) id: Option<FlowId>,
    pub(super) sender: Sender,
    /// Bytes that were written into the stream, header included.
    pub(super) sent: u64,
    pub(super) receiver: Receiver,
    pub(super) window: CreditWindow,
    pub(super) header: Header,
    pub(super) ticket: Option<Ticket>,
    /// An event for the relay is queued and not yet taken.
    pub(super) notified: bool,
    /// Nothing more will be written into the stream: FIN or reset is on its way, or the peer asked
    /// us to stop.
    pub(super) send_done: bool,
    /// Nothing more is wanted from the stream.
    pub(super) recv_done: bool,
    /// quinn's stream credit ran out; wait for its Writable.
    pub(super) blocked: bool,
    /// Thrown away by the peer or by us; the relay has to reset the LAN side.
    pub(super) gone: bool,
    /// The relay has let go.
    pub(super) released: bool,
}

impl Flow {
    pub(super) fn new(
        sender: Sender,
        credit: u64,
        window: CreditWindow,
        opened_here: bool,
    ) -> Self {
        Self {
            opened_here,
            id: None,
            sender,
            sent: 0,
            receiver: Receiver::new(credit),
            window,
            header: Header::Expected,
            ticket: None,
            notified: false,
            send_done: false,
            recv_done: false,
            blocked: false,
            gone: false,
            released: false,
        }
    }

    /// Bytes wait to be written, or an end does.
    pub(super) fn wants_service(&self) -> bool {
        !self.send_done
            && !self.blocked
            && (self.sender.sendable() > 0
                || (self.sender.is_drained() && self.sender.end().is_some()))
    }

    pub(super) fn incoming(&self) -> Incoming {
        if self.gone {
            Incoming::Gone
        } else if let Header::Reply(Reply { code, .. }) = self.header
            && code != ReplyCode::Ok
        {
            Incoming::Refused(code)
        } else if self.header == Header::Expected {
            Incoming::Blocked
        } else if let Some(end) = self.receiver.end() {
            Incoming::End(end)
        } else if self.receiver.ready().next().is_some() {
            Incoming::Data
        } else {
            Incoming::Blocked
        }
    }

    /// Moves everything that the stream has into the receiver. Returns the payload bytes taken.
    pub(super) fn read(
        &mut self,
        quic: &mut Connection,
        stream: StreamId,
        repairs: &mut fec::Incoming,
    ) -> Result<u64, ReadFault> {
        if self.recv_done {
            return Ok(0);
        }
        let key = FlowKey::of(stream);
        let look = |offset, bytes: &Bytes| repairs.on_received(key.0, offset, bytes);
        let (taken, ended) = drain(&mut self.receiver, quic, stream, look)?;
        self.recv_done |= ended;
        self.stop_if_whole(quic, stream);
        Ok(taken)
    }

    /// Ends the receiving direction once all of it has come: a repair may have told its end before the stream does, and the
    /// bytes before that end may come either way. What is still under way is not needed any more.
    pub(super) fn stop_if_whole(&mut self, quic: &mut Connection, stream: StreamId) {
        if !self.recv_done && self.receiver.is_whole() {
            self.recv_done = true;
            let _ = quic.recv_stream(stream).stop(VarInt::from_u32(0));
        }
    }

    /// Tries to parse the header of the receiving direction from what has arrived in order.
    pub(super) fn parse_header(&mut self, side: Side) -> Result<bool, DecodeError> {
        if self.header != Header::Expected {
            return Ok(false);
        }
        let prefix = self.prefix();
        let parsed = match side {
            _ if self.opened_here => {
                Reply::decode(&prefix)?.map(|(reply, used)| (Header::Reply(reply), used))
            }
            Side::Server => Open::decode(&prefix)?.map(|(open, used)| (Header::Open(open), used)),
            Side::Client => {
                Inbound::decode(&prefix)?.map(|(inbound, used)| (Header::Inbound(inbound), used))
            }
        };
        let Some((header, used)) = parsed else {
            return Ok(false);
        };
        self.header = header;
        self.receiver.set_header(used as u64);
        Ok(true)
    }

    fn prefix(&self) -> Vec<u8> {
        let mut prefix = Vec::new();
        for chunk in self.receiver.ready() {
            prefix.extend_from_slice(chunk);
            if prefix.len() as u64 >= MAX_HEADER {
                break;
            }
        }
        prefix
    }

    /// Stops both directions of the stream; data not yet delivered is thrown away.
    pub(super) fn tear_down(&mut self, quic: &mut Connection, stream: StreamId, code: AbortCode) {
        let code = VarInt::from_u64(code.code()).unwrap_or_default();
        if !self.send_done {
            self.send_done = true;
            self.sender.discard();
            let _ = quic.send_stream(stream).reset(code);
        }
        self.stop_reading(quic, stream, code);
    }

    /// Tells the peer that nothing more is wanted from it.
    pub(super) fn stop_reading(&mut self, quic: &mut Connection, stream: StreamId, code: VarInt) {
        if !self.recv_done {
            self.recv_done = true;
            let _ = quic.recv_stream(stream).stop(code);
        }
        self.receiver.discard();
    }

    /// True once no event and no frame concerning it can matter any more.
    pub(super) fn is_over(&self) -> bool {
        self.released && self.send_done && self.recv_done
    }
}

/// Moves everything that a stream has into `receiver`, and shows it to `look`. Returns the bytes taken, and whether they were its last.
pub(super) fn drain(
    receiver: &mut Receiver,
    quic: &mut Connection,
    stream: StreamId,
    mut look: impl FnMut(u64, &Bytes),
) -> Result<(u64, bool), ReadFault> {
    let mut recv = quic.recv_stream(stream);
    let mut chunks = match recv.read(false) {
        Ok(chunks) => chunks,
        Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
            return Ok((0, false));
        }
    };
    let mut taken = 0;
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                taken += chunk.bytes.len() as u64;
                look(chunk.offset, &chunk.bytes);
                receiver
                    .insert(chunk.offset, chunk.bytes)
                    .map_err(ReadFault::Credit)?;
            }
            Ok(None) => {
                receiver.finish();
                return Ok((taken, true));
            }
            Err(ReadError::Reset(_)) => return Err(ReadFault::Reset),
            Err(ReadError::Blocked) => return Ok((taken, false)),
        }
    }
}

/// Why reading a flow's stream failed.
#[derive(Debug)]
pub(super) enum ReadFault {
    /// RESET_STREAM: the peer threw the data away.
    Reset,
    /// The peer broke its credit.
    Credit(bentpipe_proto::relay::CreditExceeded),
}
