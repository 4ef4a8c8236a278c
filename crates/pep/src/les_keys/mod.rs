//! K2 of LES on its way from clients to PEPs, Q4 of `PROTOCOL.md` §20.1: lines over a UDP socket, and the door at which a PEP
//! takes them.
//!
//! ```text
//!  client/les ─► KeyLines ══ UDP, QUIC, both ends by their keys ══► KeyDoor ─► Grants: opens and writes header zones
//!                                                                      ╰─ KeyEvent ─► the PEP
//! ```

mod door;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::task::yield_now;
use tokio::time::sleep_until;

use crate::process;
use crate::shard::{Exits, Sent, UdpWire};
use bentpipe_tunnel::engine::{ConnectionId, Output};
use bentpipe_tunnel::lines::{LineNotice, Lines};

#[cfg(target_os = "linux")]
pub(crate) use door::{KeyDoor, KeyEvent};

/// Lines, and the socket that they cross.
pub(crate) struct KeyLines {
    lines: RefCell<Lines>,
    wire: RefCell<UdpWire>,
    /// Datagram that the socket had no room for.
    unsent: RefCell<Option<(Output, Vec<u8>)>>,
    waker: RefCell<Option<Waker>>,
}

impl KeyLines {
    /// Lines over a bound, non-blocking socket. To be called inside a runtime.
    ///
    /// # Errors
    /// The socket cannot be waited for.
    pub(crate) fn new(socket: std::net::UdpSocket, lines: Lines) -> io::Result<Self> {
        Ok(Self {
            lines: RefCell::new(lines),
            wire: RefCell::new(UdpWire::new(socket, Exits::default())?),
            unsent: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    /// Acts on the lines; what comes of it is sent soon.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Lines, Instant) -> T) -> T {
        let done = act(&mut self.lines.borrow_mut(), process::now());
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
        done
    }

    /// Drives the lines, and hands their news to `take`; never ends but with an error.
    pub(crate) async fn drive(
        &self,
        mut take: impl FnMut(ConnectionId, LineNotice),
    ) -> io::Result<()> {
        loop {
            loop {
                let notice = self.lines.borrow_mut().poll_notice();
                let Some((id, notice)) = notice else { break };
                take(id, notice);
            }
            let due = self.lines.borrow_mut().poll_timeout();
            let timer = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                moved = poll_fn(|cx| self.poll_move(cx)) => {
                    moved?;
                    // Whoever floods this socket does not keep the others of this thread from theirs.
                    yield_now().await;
                }
                () = timer => self.lines.borrow_mut().handle_timeout(process::now()),
            }
        }
    }

    /// Sends and receives what there is; ready once anything has moved.
    fn poll_move(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        let sent = self.flush(cx)?;
        let mut wire = self.wire.borrow_mut();
        let now = process::now();
        let received = wire.poll_receive(
            cx,
            now,
            |meta, bytes| {
                let from = (meta.addr, meta.dst_ip);
                let mut lines = self.lines.borrow_mut();
                for datagram in bytes.chunks(meta.stride.max(1)) {
                    lines.handle_datagram(now, from, datagram);
                }
            },
            |_| {},
        )?;
        match sent || received {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Sends what waits; true if there was anything.
    fn flush(&self, cx: &mut Context<'_>) -> io::Result<bool> {
        let (mut wire, now) = (self.wire.borrow_mut(), process::now());
        let mut any = false;
        loop {
            let next = self.unsent.borrow_mut().take();
            let next = next.or_else(|| self.lines.borrow_mut().poll_output());
            let Some((output, bytes)) = next else {
                return Ok(any);
            };
            match wire.poll_send(cx, now, (&output, &bytes), |_| {})? {
                Sent::Done => any = true,
                Sent::Full { again } => {
                    *self.unsent.borrow_mut() = Some((output, bytes));
                    if !again {
                        return Ok(any);
                    }
                }
            }
        }
    }

    /// Sends the last words at once, as far as the socket has room.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.flush(&mut Context::from_waker(Waker::noop())) {
            tracing::debug!("the last words of lines were not sent: {error}");
        }
    }
}
