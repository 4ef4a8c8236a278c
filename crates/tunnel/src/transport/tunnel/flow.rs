//! One flow of a tunnel: its two directions, its stream and its place in the scheduler.

use bentpipe_proto::relay::{CreditWindow, End, MAX_HEADER, Receiver, Sender, Ticket};
use bentpipe_proto::tunnel::{
    AbortCode, DecodeError, FlowId, Inbound, Open, Reply, ReplyCode, Segments, StreamKind,
};
use bytes::Bytes;
use quinn_proto::{Connection, Side, StreamId, VarInt, WriteError};

use super::stream::{Piece, ReadFault, drain};

/// Pieces of a stream that are smaller, on average, are joined: quinn searches those that are not acknowledged one by one for
/// each packet, and a far and fast link has ten thousand packets under way.
const PIECE: usize = 16 << 10;

/// Next duty of a flow's LAN side.
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

/// Part of the header of the receiving direction that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Header {
    Expected,
    Open(Open),
    Inbound(Inbound),
    Segments(Segments),
    Reply(Reply),
}

/// State of the direction in which this side sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Open,
    /// quinn's stream credit ran out, or the stream is not open yet.
    Blocked,
    /// Everything was written into the stream, FIN included.
    Finished,
    /// Nothing more will be written into the stream: a reset is on its way, or the peer asked us to stop.
    Done,
}

/// State of the direction in which the peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Open,
    /// Nothing more is wanted from the stream.
    Done,
}

/// Users that still count on the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelayState {
    /// The relay moves bytes.
    Attached,
    /// The flow was thrown away, by the peer or by us; the relay has to reset the LAN side.
    Warned,
    /// The relay has let go, or nobody was told of the flow.
    Released,
}

/// Flow of a tunnel.
#[derive(Debug)]
pub(in crate::transport) struct Flow {
    /// By this side, which hears the REPLY.
    opened_here: bool,
    pub(super) id: Option<FlowId>,
    pub(super) sender: Sender,
    /// Bytes that were written into the stream, header included.
    sent: u64,
    pub(in crate::transport) receiver: Receiver,
    pub(super) window: CreditWindow,
    pub(super) header: Header,
    pub(super) ticket: Option<Ticket>,
    /// An event for the relay is queued and not yet taken.
    notified: bool,
    sending: Sending,
    receiving: Receiving,
    relay: RelayState,
}

impl Flow {
    /// A flow that this side opens as `id`, on a stream that is `opened` or will be.
    pub(super) fn begun(id: FlowId, sender: Sender, window: CreditWindow, opened: bool) -> Self {
        let credit = window.announced();
        Self {
            opened_here: true,
            id: Some(id),
            sending: match opened {
                true => Sending::Open,
                false => Sending::Blocked,
            },
            ..Self::new(sender, credit, window)
        }
    }

    /// A flow of which the peer has opened the stream.
    pub(super) fn accepted(credit: u64, window: CreditWindow) -> Self {
        Self::new(Sender::new(Bytes::new(), 0), credit, window)
    }

    fn new(sender: Sender, credit: u64, window: CreditWindow) -> Self {
        Self {
            opened_here: false,
            id: None,
            sender,
            sent: 0,
            receiver: Receiver::new(credit),
            window,
            header: Header::Expected,
            ticket: None,
            notified: false,
            sending: Sending::Open,
            receiving: Receiving::Open,
            relay: RelayState::Attached,
        }
    }

    /// True while more may be pushed.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.sending, Sending::Open | Sending::Blocked)
    }

    /// True while the stream may bring more.
    pub(in crate::transport) fn is_receiving(&self) -> bool {
        self.receiving == Receiving::Open
    }

    /// True until a stream of the peer's has said what it is.
    pub(super) fn is_headless(&self) -> bool {
        !self.opened_here && self.header == Header::Expected
    }

    /// True if the peer knows nothing of the flow yet.
    pub(super) fn is_unsaid(&self) -> bool {
        self.opened_here && self.sent == 0
    }

    /// Bytes wait to be written, or an end does.
    pub(super) fn wants_service(&self) -> bool {
        self.sending == Sending::Open && (self.sender.sendable() > 0 || self.has_end())
    }

    /// Everything was written but the end.
    fn has_end(&self) -> bool {
        self.sender.is_drained() && self.sender.end().is_some()
    }

    /// The stream takes bytes again.
    pub(super) fn unblock(&mut self) {
        if self.sending == Sending::Blocked {
            self.sending = Sending::Open;
        }
    }

    /// Nothing more is written, and what waits is thrown away.
    pub(super) fn stop_sending(&mut self) {
        self.sending = Sending::Done;
        self.sender.discard();
    }

    /// The peer wants no more of the stream, and gives `code` as the reason. Once everything was written, RESET says like an
    /// acknowledgement that it has come: the peer has mended the end (`PROTOCOL.md` §5.5). A peer that gives up the flow stops it
    /// with RESET as well, and says FLOW_ABORT at the same time.
    pub(super) fn on_stopped(&mut self, code: VarInt) {
        let is_whole = self.sending == Sending::Finished
            && AbortCode::from_code(code.into_inner()) == AbortCode::Reset;
        if !is_whole {
            self.stop_sending();
        }
    }

    /// The relay is to look at the flow; false if it is about to, or has let go.
    pub(super) fn notify(&mut self) -> bool {
        self.relay != RelayState::Released && !std::mem::replace(&mut self.notified, true)
    }

    /// The relay looks.
    pub(super) fn take_notice(&mut self) {
        self.notified = false;
    }

    /// The relay lets go.
    pub(super) fn release(&mut self) {
        self.relay = RelayState::Released;
    }

    pub(super) fn incoming(&self) -> Incoming {
        if !self.is_delivered() {
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

    /// Moves everything that the stream has into the receiver, and shows it to `look`. Returns the payload bytes taken.
    pub(super) fn read(
        &mut self,
        quic: &mut Connection,
        stream: StreamId,
        look: impl FnMut(u64, &Bytes),
    ) -> Result<u64, ReadFault> {
        if self.receiving == Receiving::Done {
            return Ok(0);
        }
        let outcome = drain(&mut self.receiver, quic, stream, look);
        if let Ok((_, true)) | Err(ReadFault::Reset) = outcome {
            self.receiving = Receiving::Done;
        }
        let (taken, _) = outcome?;
        self.stop_if_whole(quic, stream);
        Ok(taken)
    }

    /// Ends the receiving direction once all of it has come: a repair may have told its end before the stream does, and the
    /// bytes before that end may come either way. What is still under way is not needed any more.
    pub(super) fn stop_if_whole(&mut self, quic: &mut Connection, stream: StreamId) {
        if self.receiving == Receiving::Open && self.receiver.is_whole() {
            self.receiving = Receiving::Done;
            let _ = quic.recv_stream(stream).stop(VarInt::from_u32(0));
        }
    }

    /// True if the stream ended before its header did.
    pub(super) fn is_cut_off(&self) -> bool {
        let whole = self.receiving == Receiving::Done && self.receiver.is_whole();
        whole && self.header == Header::Expected
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
            _ if prefix.first() == Some(&(StreamKind::Segments.code() as u8)) => {
                Segments::decode(&prefix)?.map(|(head, used)| (Header::Segments(head), used))
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

    /// Writes up to `share` bytes into the stream, and the end if nothing is left before it.
    pub(super) fn write(&mut self, quic: &mut Connection, stream: StreamId, share: usize) -> Piece {
        let (opens, offset) = (self.is_unsaid(), self.sent);
        let mut chunks = Vec::new();
        let taken = self.sender.take(share, &mut chunks);
        if chunks.len() > 1 && taken / chunks.len() < PIECE {
            chunks = vec![Bytes::from(chunks.concat())];
        }
        let copies = chunks.clone();
        let mut stream = quic.send_stream(stream);
        let mut written = 0;
        if taken > 0 {
            match stream.write_chunks(&mut chunks) {
                // The rest is offered again: quinn tells of room only to whom it has refused any.
                Ok(done) => written = done.bytes,
                Err(WriteError::Blocked) => self.sending = Sending::Blocked,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => self.stop_sending(),
            }
            if written < taken && self.is_sending() {
                let rest = chunks.into_iter().filter(|chunk| !chunk.is_empty());
                self.sender.put_back(rest.collect());
            }
        }
        self.sent += written as u64;
        let dry = self.sender.sendable() == 0;
        let ends = self.is_sending() && self.has_end();
        // After an abort the stream stays open until the peer stops it: a FIN could overtake
        // FLOW_ABORT and pass for a clean end.
        let fin = ends && self.sender.end() == Some(End::Fin) && stream.finish().is_ok();
        if ends {
            self.sending = match fin {
                true => Sending::Finished,
                false => Sending::Done,
            };
        }
        Piece {
            opens,
            offset,
            chunks: copies,
            written,
            dry,
            ends,
            fin,
        }
    }

    /// Stops sending at once; the peer hears `code`.
    pub(super) fn reset(&mut self, quic: &mut Connection, stream: StreamId, code: VarInt) {
        if self.is_sending() {
            self.stop_sending();
            let _ = quic.send_stream(stream).reset(code);
        }
    }

    /// Stops both directions of the stream, and throws away what was not delivered; the relay hears of it.
    pub(super) fn throw_away(&mut self, quic: &mut Connection, stream: StreamId, code: AbortCode) {
        let code = VarInt::from_u64(code.code()).unwrap_or_default();
        self.reset(quic, stream, code);
        self.stop_reading(quic, stream, code);
        self.warn();
        if self.is_headless() {
            // Nobody was told of a flow whose OPEN never came, so nobody will let go of it.
            self.relay = RelayState::Released;
        }
    }

    /// True if all of both directions has crossed, FIN included, and the relay still delivers what came. The caller knows
    /// whether the peer has `acknowledged` our FIN.
    pub(super) fn has_crossed(&self, acknowledged: bool) -> bool {
        let sent = self.sending == Sending::Finished && acknowledged;
        let came = self.receiving == Receiving::Done && self.receiver.is_whole();
        sent && came && !self.receiver.is_aborted() && self.is_delivered()
    }

    /// True while the relay delivers what comes.
    pub(super) fn is_delivered(&self) -> bool {
        self.relay == RelayState::Attached
    }

    /// The connection is over.
    pub(super) fn lose(&mut self) {
        self.warn();
        self.stop_sending();
        self.receiving = Receiving::Done;
        self.receiver.discard();
    }

    fn warn(&mut self) {
        if self.is_delivered() {
            self.relay = RelayState::Warned;
        }
    }

    /// Tells the peer that nothing more is wanted from it.
    pub(super) fn stop_reading(&mut self, quic: &mut Connection, stream: StreamId, code: VarInt) {
        if self.receiving == Receiving::Open {
            self.receiving = Receiving::Done;
            let _ = quic.recv_stream(stream).stop(code);
        }
        self.receiver.discard();
    }

    /// True once no event and no frame concerning it can matter any more.
    pub(super) fn is_over(&self) -> bool {
        let ended = !self.is_sending() && self.receiving == Receiving::Done;
        ended && self.relay == RelayState::Released
    }
}
