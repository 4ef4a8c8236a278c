//! Between one TCP socket and one flow of the tunnel: the same code at both ends.
//!
//! Reads the socket while the flow has room, writes it as data comes in order, and carries every way
//! a connection can end: FIN each way on its own, RST after the bytes before it, silence as a reset.
//! The sockets carry SO_LINGER 0 from birth, so that a crash of the daemon is a reset and never
//! passes for a clean end; it is cleared just before an orderly close.

mod handle;
pub(crate) mod split;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{AbortCode, ReplyCode};
use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

pub(crate) use handle::FlowHandle;

use bentpipe_tunnel::transport::{Incoming, Tunnel};

/// Chunks handed to the kernel in one call; a chunk is one datagram's payload.
const MAX_SLICES: usize = 64;

/// Reads and writes before other flows get a turn.
const TURN: usize = 16;

/// How long a LAN host that does not read may hold up a reset.
const RESET_PATIENCE: Duration = Duration::from_secs(60);

/// How a flow ended, for the front end and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Both directions ended with FIN.
    Closed,
    /// The LAN side was reset or timed out; the other end hears of it.
    LanReset,
    /// The other end was reset; so was the LAN side, after the bytes before it.
    PeerReset,
    /// The server could not or would not connect; the LAN side was reset.
    Refused(ReplyCode),
    /// The tunnel was lost; the LAN side was reset.
    TunnelLost,
}

/// Prepares a socket for relaying: no delay, keepalive, reset on any close but an orderly one, and urgent data in its place.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_linger(Some(Duration::ZERO))?;
    // The urgent byte (telnet's interrupt, FTP's ABOR) is part of the stream (RFC 6093 §3); without this option the kernel
    // keeps it back from `read`, and a relay loses it.
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_nodelay(true)?;
    // A host that vanished without FIN is noticed within three minutes and a half.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(90))
        .with_interval(Duration::from_secs(15));
    #[cfg(target_os = "linux")]
    let keepalive = keepalive.with_retries(8);
    socket.set_tcp_keepalive(&keepalive)
}

type Hangup = Pin<Box<dyn Future<Output = io::Result<Ready>>>>;

/// One relay.
pub(crate) struct Relay {
    flow: FlowHandle,
    socket: Rc<TcpStream>,
    reading: bool,
    /// Ready when the LAN side is reset after its FIN, which nobody would see otherwise.
    hangup: Option<Hangup>,
    writing: bool,
    /// The LAN side was lost while it was written to; what it said before may still have to be read.
    lost: Option<AbortCode>,
}

impl Relay {
    /// `socket` must have been [`prepare`]d.
    #[must_use]
    pub(crate) fn new(flow: FlowHandle, socket: TcpStream) -> Self {
        Self {
            flow,
            socket: Rc::new(socket),
            reading: true,
            hangup: None,
            writing: true,
            lost: None,
        }
    }

    /// The LAN side had sent FIN before the relay began.
    #[must_use]
    pub(crate) fn half_closed(mut self) -> Self {
        self.end_of_lan();
        self
    }

    fn end_of_lan(&mut self) {
        self.reading = false;
        let socket = self.socket.clone();
        self.hangup = Some(Box::pin(async move { socket.ready(Interest::ERROR).await }));
        self.flow.with(|tunnel, flow, _| tunnel.finish(flow));
    }

    /// Relays until the flow is over.
    pub(crate) async fn run(mut self) -> Outcome {
        let outcome = poll_fn(|cx| self.poll(cx)).await;
        match outcome {
            // Apart: few flows end so, and all would keep room for its timer.
            Outcome::PeerReset => Box::pin(delivered(&self.socket)).await,
            Outcome::Closed => {
                let _ = SockRef::from(&*self.socket).set_linger(None);
            }
            Outcome::LanReset | Outcome::Refused(_) | Outcome::TunnelLost => {}
        }
        outcome
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.flow.watch(cx);
        for _ in 0..TURN {
            let mut moved = false;
            if let Poll::Ready(step) = self.poll_out(cx) {
                match step {
                    Ok(()) => moved = true,
                    Err(outcome) => return Poll::Ready(outcome),
                }
            }
            if let Poll::Ready(step) = self.poll_in(cx) {
                match step {
                    Ok(()) => moved = true,
                    Err(outcome) => return Poll::Ready(outcome),
                }
            }
            if !self.reading && !self.writing {
                return Poll::Ready(Outcome::Closed);
            }
            if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// LAN socket → tunnel.
    fn poll_in(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Outcome>> {
        if !self.reading {
            return self.poll_hangup(cx);
        }
        let room = self.flow.look(Tunnel::capacity);
        if room == 0 {
            return Poll::Pending;
        }
        if let Err(error) = ready!(self.socket.poll_read_ready(cx)) {
            return Poll::Ready(self.lan_ended(&error));
        }
        let mut scratch = self.flow.shard().scratch().borrow_mut();
        let room = room.min(scratch.len());
        let read = self.socket.try_read(&mut scratch[..room]);
        let data = read
            .as_ref()
            .map_or(Bytes::new(), |&n| Bytes::copy_from_slice(&scratch[..n]));
        drop(scratch);
        Poll::Ready(match read {
            // The write has taken the error: this is no FIN.
            Ok(0) if self.lost.is_some() => self.lan_ended(&io::ErrorKind::ConnectionReset.into()),
            Ok(0) => {
                self.end_of_lan();
                Ok(())
            }
            Ok(_) => {
                self.flow.with(|tunnel, flow, _| tunnel.push(flow, data));
                Ok(())
            }
            // The readiness was stale and is cleared now: ask again to be woken.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => self.lan_ended(&error),
        })
    }

    fn poll_hangup(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Outcome>> {
        let Some(hangup) = &mut self.hangup else {
            return Poll::Pending;
        };
        let _ = ready!(hangup.as_mut().poll(cx));
        self.hangup = None;
        let error = SockRef::from(&*self.socket).take_error().ok().flatten();
        Poll::Ready(self.lan_ended(&error.unwrap_or(io::ErrorKind::ConnectionReset.into())))
    }

    /// Tunnel → LAN socket.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Outcome>> {
        match self.flow.look(Tunnel::incoming) {
            Incoming::Blocked => Poll::Pending,
            Incoming::Data | Incoming::End(End::Fin) if self.lost.is_some() => Poll::Pending,
            Incoming::Data => {
                if let Err(error) = ready!(self.socket.poll_write_ready(cx)) {
                    return Poll::Ready(self.lan_failed(&error));
                }
                Poll::Ready(self.write())
            }
            Incoming::End(End::Fin) if self.writing => {
                self.writing = false;
                Poll::Ready(
                    match SockRef::from(&*self.socket).shutdown(Shutdown::Write) {
                        Ok(()) => Ok(()),
                        Err(error) => self.lan_failed(&error),
                    },
                )
            }
            Incoming::End(End::Fin) => Poll::Pending,
            Incoming::End(End::Abort(_)) => Poll::Ready(Err(Outcome::PeerReset)),
            Incoming::Refused(code) => Poll::Ready(Err(Outcome::Refused(code))),
            Incoming::Gone => Poll::Ready(Err(Outcome::TunnelLost)),
        }
    }

    fn write(&mut self) -> Result<(), Outcome> {
        let written = self.flow.look(|tunnel, flow| {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            for (slice, chunk) in slices.iter_mut().zip(tunnel.ready(flow)) {
                *slice = IoSlice::new(chunk);
                count += 1;
            }
            self.socket.try_write_vectored(&slices[..count])
        });
        match written {
            Ok(n) => {
                self.consume(n as u64);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.flow.with(|tunnel, flow, _| tunnel.blocked(flow));
                Ok(())
            }
            Err(error) => self.lan_failed(&error),
        }
    }

    fn consume(&self, n: u64) {
        self.flow.with(|tunnel, flow, _| tunnel.consume(flow, n));
    }

    /// The LAN side cannot be written to any more. Data that came before its reset is still in the socket: the
    /// abort follows when that has been read.
    fn lan_failed(&mut self, error: &io::Error) -> Result<(), Outcome> {
        if !self.reading {
            return self.lan_ended(error);
        }
        self.lost = Some(abort_code(error));
        Ok(())
    }

    /// The LAN side was reset, timed out or became unreachable, and all it said has been read.
    fn lan_ended(&mut self, error: &io::Error) -> Result<(), Outcome> {
        self.flow
            .abort(self.lost.unwrap_or_else(|| abort_code(error)));
        Err(Outcome::LanReset)
    }
}

/// Waits until the other end of `socket` has everything that precedes a reset: closing with SO_LINGER 0
/// throws away what the kernel has not delivered yet.
pub(crate) async fn delivered(socket: &TcpStream) {
    let mut left = u32::MAX;
    let mut idle = Duration::ZERO;
    let mut pause = Duration::from_millis(1);
    while idle < RESET_PATIENCE {
        match unsent(socket) {
            Ok(0) | Err(_) => return,
            Ok(now) if now < left => (left, idle) = (now, Duration::ZERO),
            Ok(_) => idle += pause,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn abort_code(error: &io::Error) -> AbortCode {
    match error.kind() {
        io::ErrorKind::TimedOut => AbortCode::TimedOut,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            AbortCode::Unreachable
        }
        _ => AbortCode::Reset,
    }
}

#[cfg(target_os = "linux")]
fn unsent(socket: &TcpStream) -> io::Result<u32> {
    bentpipe_sys::socket::unsent_bytes(socket)
}

/// Other systems do not tell; their users run the SOCKS and HTTP front ends on one host.
#[cfg(not(target_os = "linux"))]
fn unsent(_socket: &TcpStream) -> io::Result<u32> {
    Ok(0)
}
