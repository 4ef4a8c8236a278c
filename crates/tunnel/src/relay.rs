//! The relay between one TCP connection and one flow of the tunnel: its decisions, without socket and without task. The same
//! code runs at both ends, and in virtual time.
//!
//! ```text
//!   LAN host ── LanSocket ──► poll_in ──► flow ──► tunnel
//!   LAN host ◄─ LanSocket ◄── poll_out ◄─ flow ◄── tunnel
//! ```
//!
//! FIN crosses each way on its own; a reset crosses after the bytes before it; silence counts as a reset. "LAN side" means the
//! host at this end: one of the LAN at the client, the origin at the server.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{AbortCode, ReplyCode};
use bytes::Bytes;

use crate::transport::{FlowKey, Incoming, Streams, Tunnel};

/// Chunks handed to the socket in one call; a chunk is one datagram's payload.
const MAX_SLICES: usize = 64;

/// Reads and writes before other flows get a turn.
const TURN: usize = 16;

/// Way in which a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Both directions ended with FIN.
    Closed,
    /// The LAN side was reset or timed out; the other end hears of it.
    LanReset,
    /// The other end was reset; the LAN side is to be reset after the bytes before it.
    PeerReset,
    /// The server could not or would not connect; the LAN side is to be reset.
    Refused(ReplyCode),
    /// The tunnel was lost; the LAN side is to be reset.
    TunnelLost,
}

/// TCP connection of a host, as a relay uses it. No method waits: `Pending` means that the task of `cx` is woken once asking
/// again is worth it.
pub trait LanSocket {
    /// Bytes that the host has sent, at most `room` of them; none after its FIN.
    ///
    /// # Errors
    /// The host has reset the connection, or it has timed out. An error is told once, and what came before it first.
    fn poll_read(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<Bytes>>;

    /// Hands over bytes of `chunks`, from the first on; returns how many were taken, at least one.
    ///
    /// # Errors
    /// The connection takes no more. What the host sent before may still be read.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Sends FIN.
    ///
    /// # Errors
    /// As [`Self::poll_write`].
    fn finish(&mut self) -> io::Result<()>;

    /// Error of a connection whose FIN has been read, once there is one.
    fn poll_hangup(&mut self, cx: &mut Context<'_>) -> Poll<io::Error>;
}

/// Flow whose tunnel may be lost at any time.
pub trait FlowAccess {
    /// Answers a question about the flow; `None` once its tunnel is lost.
    fn look<T>(&self, question: impl FnOnce(&Tunnel, FlowKey) -> T) -> Option<T>;

    /// Changes the flow; does nothing once its tunnel is lost.
    fn with(&mut self, change: impl FnOnce(&mut Tunnel, FlowKey, &mut Streams));
}

/// One relay.
#[derive(Debug)]
pub struct Relay {
    /// The LAN side has not sent FIN.
    reading: bool,
    /// The other end has not sent FIN.
    writing: bool,
    /// The flow knows that the LAN side takes no more for now.
    blocked: bool,
    /// The LAN side was lost while it was written to; what it said before may still have to be read.
    lost: Option<AbortCode>,
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            reading: true,
            writing: true,
            blocked: false,
            lost: None,
        }
    }
}

impl Relay {
    /// The LAN side has sent FIN: the relay reads it here, or whoever had the socket before has read it.
    pub fn on_lan_end(&mut self, flow: &mut impl FlowAccess) {
        self.reading = false;
        flow.with(|tunnel, flow, _| tunnel.finish(flow));
    }

    /// Moves what can be moved. `Ready` once nothing more is to be done for the flow; after [`Outcome::LanReset`] the flow has
    /// ended, after any other outcome it is to be released.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut impl FlowAccess,
        socket: &mut impl LanSocket,
    ) -> Poll<Outcome> {
        for _ in 0..TURN {
            let mut moved = false;
            if let Poll::Ready(step) = self.poll_out(cx, flow, socket) {
                match step {
                    Ok(()) => moved = true,
                    Err(outcome) => return Poll::Ready(outcome),
                }
            }
            if let Poll::Ready(step) = self.poll_in(cx, flow, socket) {
                match step {
                    Ok(()) => moved = true,
                    Err(outcome) => return Poll::Ready(outcome),
                }
            }
            if !self.reading && !self.writing {
                let is_aborted = flow.look(Tunnel::is_aborted) == Some(true);
                return Poll::Ready(match is_aborted {
                    true => Outcome::PeerReset,
                    false => Outcome::Closed,
                });
            }
            if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// LAN side → tunnel.
    fn poll_in(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut impl FlowAccess,
        socket: &mut impl LanSocket,
    ) -> Poll<Result<(), Outcome>> {
        if !self.reading {
            let error = ready!(socket.poll_hangup(cx));
            return Poll::Ready(self.lan_ended(flow, &error));
        }
        let room = flow.look(Tunnel::capacity).unwrap_or(0);
        if room == 0 {
            if flow.look(Tunnel::is_sending) == Some(false) {
                // The other end takes nothing more, so nothing is read; a reset has to be heard all the same.
                let error = ready!(socket.poll_hangup(cx));
                return Poll::Ready(self.lan_ended(flow, &error));
            }
            return Poll::Pending;
        }
        Poll::Ready(match ready!(socket.poll_read(cx, room)) {
            // The write has taken the error: this is no FIN.
            Ok(data) if data.is_empty() && self.lost.is_some() => {
                self.lan_ended(flow, &io::ErrorKind::ConnectionReset.into())
            }
            Ok(data) if data.is_empty() => {
                self.on_lan_end(flow);
                Ok(())
            }
            Ok(data) => {
                flow.with(|tunnel, flow, _| tunnel.push(flow, data));
                Ok(())
            }
            Err(error) => self.lan_ended(flow, &error),
        })
    }

    /// Tunnel → LAN side.
    fn poll_out(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut impl FlowAccess,
        socket: &mut impl LanSocket,
    ) -> Poll<Result<(), Outcome>> {
        match flow.look(Tunnel::incoming).unwrap_or(Incoming::Gone) {
            Incoming::Blocked => Poll::Pending,
            Incoming::Data | Incoming::End(End::Fin) if self.lost.is_some() => {
                // Both hosts are gone: nobody grants credit for what this one said last.
                match flow.look(Tunnel::is_aborted) {
                    Some(true) => Poll::Ready(Err(Outcome::PeerReset)),
                    _ => Poll::Pending,
                }
            }
            Incoming::Data => self.poll_write(cx, flow, socket),
            Incoming::End(End::Fin) if self.writing => {
                self.writing = false;
                Poll::Ready(match socket.finish() {
                    Ok(()) => Ok(()),
                    Err(error) => self.lan_failed(flow, &error),
                })
            }
            // The host has its end in order, and then the reset.
            Incoming::End(End::Fin) => match flow.look(Tunnel::is_aborted) {
                Some(true) => Poll::Ready(Err(Outcome::PeerReset)),
                _ => Poll::Pending,
            },
            Incoming::End(End::Abort(_)) => Poll::Ready(Err(Outcome::PeerReset)),
            Incoming::Refused(code) => Poll::Ready(Err(Outcome::Refused(code))),
            Incoming::Gone => Poll::Ready(Err(Outcome::TunnelLost)),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut impl FlowAccess,
        socket: &mut impl LanSocket,
    ) -> Poll<Result<(), Outcome>> {
        let written = flow.look(|tunnel, flow| {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            for (slice, chunk) in slices.iter_mut().zip(tunnel.ready(flow)) {
                *slice = IoSlice::new(chunk);
                count += 1;
            }
            socket.poll_write(cx, &slices[..count])
        });
        match written.unwrap_or(Poll::Pending) {
            Poll::Ready(Ok(n)) => {
                self.blocked = false;
                flow.with(|tunnel, flow, _| tunnel.consume(flow, n as u64));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(self.lan_failed(flow, &error)),
            Poll::Pending => {
                if !std::mem::replace(&mut self.blocked, true) {
                    flow.with(|tunnel, flow, _| tunnel.blocked(flow));
                }
                Poll::Pending
            }
        }
    }

    /// The LAN side cannot be written to any more. Data that came before its reset is still in the socket: the abort follows
    /// when that has been read.
    fn lan_failed(&mut self, flow: &mut impl FlowAccess, error: &io::Error) -> Result<(), Outcome> {
        if !self.reading {
            return self.lan_ended(flow, error);
        }
        self.lost = Some(abort_code(error));
        Ok(())
    }

    /// The LAN side was reset, timed out or became unreachable, and all it said has been read.
    fn lan_ended(&self, flow: &mut impl FlowAccess, error: &io::Error) -> Result<(), Outcome> {
        let code = self.lost.unwrap_or_else(|| abort_code(error));
        flow.with(|tunnel, flow, quic| tunnel.abort(quic, flow, code));
        Err(Outcome::LanReset)
    }
}

/// Code by which the other end hears of a host's connection that failed with `error`.
pub fn abort_code(error: &io::Error) -> AbortCode {
    match error.kind() {
        io::ErrorKind::TimedOut => AbortCode::TimedOut,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            AbortCode::Unreachable
        }
        _ => AbortCode::Reset,
    }
}
