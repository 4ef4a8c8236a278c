//! Between one TCP socket and one flow of the tunnel: the sockets and tasks of `tunnel/relay.rs`, at both ends.
//!
//! The sockets carry SO_LINGER 0 from birth, so that a crash of the daemon is a reset and never
//! passes for a clean end; it is cleared just before an orderly close.

mod framed;
mod handle;
pub(crate) mod over_tcp;
mod pipe;
mod sealed;
pub(crate) mod split;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bentpipe_tunnel::relay::{LanSocket, Relay as Machine};
use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

pub(crate) use bentpipe_tunnel::relay::Outcome;
pub(crate) use framed::{Parting, relay_framed};
pub(crate) use handle::FlowHandle;
pub(crate) use pipe::{PIPE, relay_in_process};
pub(crate) use sealed::SealedFlow;

use crate::shard::Shard;

/// Time for which bytes are waited for that should leave with others: a request in the flight of OPEN, an answer in that of REPLY.
const FIRST_BYTES: Duration = Duration::from_millis(3);

/// Time for which a LAN host that does not read may hold up a reset.
const RESET_PATIENCE: Duration = Duration::from_secs(60);

/// Time between looks whether a host that waits for an answer has ended its direction.
const LOOK: Duration = Duration::from_secs(5);

/// Looks in a row after which a host that has ended its direction is taken to be gone.
const LOOKS: u32 = 3;

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

/// Reads what `socket` says within [`FIRST_BYTES`], as far as `scratch` takes it, and whether it has ended there.
pub(crate) async fn first_bytes(
    socket: &TcpStream,
    scratch: &RefCell<impl AsMut<[u8]>>,
) -> io::Result<(Bytes, bool)> {
    // A socket that is only called readable has said nothing yet.
    let Ok(said) = timeout(FIRST_BYTES, socket.peek(&mut [0])).await else {
        return Ok((Bytes::new(), false));
    };
    said?;
    let mut scratch = scratch.borrow_mut();
    let scratch = scratch.as_mut();
    match socket.try_read(scratch) {
        Ok(0) => Ok((Bytes::new(), true)),
        Ok(n) => Ok((Bytes::copy_from_slice(&scratch[..n]), false)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((Bytes::new(), false)),
        Err(error) => Err(error),
    }
}

type Hangup = Pin<Box<dyn Future<Output = io::Result<Ready>>>>;

/// One relay, with its socket.
pub(crate) struct Relay {
    machine: Machine,
    flow: FlowHandle,
    lan: LanSide,
}

/// The socket, and the room that relays of a shard read into.
struct LanSide {
    socket: Rc<TcpStream>,
    shard: Rc<Shard>,
    /// Ready when the LAN side is reset after its FIN, which nobody would see otherwise.
    hangup: Option<Hangup>,
    /// Told once the LAN side has its first byte.
    on_first_byte: Option<Box<dyn FnOnce()>>,
}

impl LanSide {
    fn new(socket: TcpStream, shard: &Rc<Shard>) -> Self {
        Self {
            socket: Rc::new(socket),
            shard: shard.clone(),
            hangup: None,
            on_first_byte: None,
        }
    }

    /// Lets the kernel end the connection in order.
    fn close_in_order(&self) {
        let _ = SockRef::from(&*self.socket).set_linger(None);
    }
}

impl Relay {
    /// `socket` must have been [`prepare`]d.
    #[must_use]
    pub(crate) fn new(flow: FlowHandle, socket: TcpStream) -> Self {
        let lan = LanSide::new(socket, flow.shard());
        Self {
            machine: Machine::default(),
            flow,
            lan,
        }
    }

    /// Calls `told` once the LAN side has its first byte.
    #[must_use]
    pub(crate) fn on_first_byte(mut self, told: impl FnOnce() + 'static) -> Self {
        self.lan.on_first_byte = Some(Box::new(told));
        self
    }

    /// The LAN side had sent FIN before the relay began.
    #[must_use]
    pub(crate) fn half_closed(mut self) -> Self {
        self.machine.on_lan_end(&mut self.flow);
        self
    }

    /// Relays until the flow is over.
    pub(crate) async fn run(mut self) -> Outcome {
        let outcome = poll_fn(|cx| {
            self.flow.watch(cx);
            self.machine.poll(cx, &mut self.flow, &mut self.lan)
        })
        .await;
        let socket = &self.lan.socket;
        match outcome {
            // Apart: few flows end so, and all would keep room for its timer.
            Outcome::PeerReset => Box::pin(delivered(socket)).await,
            Outcome::Closed => self.lan.close_in_order(),
            Outcome::LanReset => self.flow.detach(),
            Outcome::Refused(_) | Outcome::TunnelLost => {}
        }
        outcome
    }
}

impl LanSocket for LanSide {
    fn poll_read(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<Bytes>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            let mut scratch = self.shard.scratch().borrow_mut();
            let room = room.min(scratch.len());
            match self.socket.try_read(&mut scratch[..room]) {
                Ok(n) => return Poll::Ready(Ok(Bytes::copy_from_slice(&scratch[..n]))),
                // The readiness was stale and is cleared now: ask again to be woken.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.socket.try_write_vectored(chunks) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    if let Some(told) = self.on_first_byte.take().filter(|_| written.is_ok()) {
                        told();
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        SockRef::from(&*self.socket).shutdown(Shutdown::Write)
    }

    fn poll_hangup(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let socket = &self.socket;
        let hangup = self.hangup.get_or_insert_with(|| {
            let socket = socket.clone();
            Box::pin(async move { socket.ready(Interest::ERROR).await })
        });
        let _ = ready!(hangup.as_mut().poll(cx));
        let error = SockRef::from(&**socket).take_error().ok().flatten();
        Poll::Ready(error.unwrap_or(io::ErrorKind::ConnectionReset.into()))
    }
}

/// Waits until the other end of `socket` has everything that precedes a reset: closing with SO_LINGER 0
/// throws away what the kernel has not delivered yet. Whoever has reset the connection itself is not waited for.
pub(crate) async fn delivered(socket: &TcpStream) {
    tokio::select! {
        () = emptied(socket) => {}
        // The kernel goes on counting what it had for a connection that was reset.
        _ = socket.ready(Interest::ERROR) => {}
    }
}

/// Waits until the other end of `socket`, which waits for an answer, is gone: it has reset the connection, or has ended its direction
/// and hears nothing for [`LOOKS`] times [`LOOK`]. A program that has closed its socket cannot be told from one that still reads before
/// something is written to it.
pub(crate) async fn abandoned(socket: &TcpStream) {
    let mut looks = 0;
    while looks < LOOKS {
        tokio::select! {
            _ = socket.ready(Interest::ERROR) => return,
            () = sleep(LOOK) => looks = if is_half_closed(socket) { looks + 1 } else { 0 },
        }
    }
}

/// True if the other end of `socket` has ended its direction, whether or not everything before that end has been read.
fn is_half_closed(socket: &TcpStream) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    let state = pin!(socket.ready(Interest::READABLE)).poll(&mut cx);
    matches!(state, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}

/// Waits until the kernel has nothing of `socket` to deliver, or the other end takes nothing for [`RESET_PATIENCE`].
async fn emptied(socket: &TcpStream) {
    let mut left = u32::MAX;
    let mut idle = Duration::ZERO;
    let mut pause = Duration::from_millis(1);
    while idle < RESET_PATIENCE {
        match unsent(socket) {
            Ok(0) | Err(_) => return,
            Ok(now) if now < left => (left, idle) = (now, Duration::ZERO),
            Ok(_) => idle += pause,
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
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
