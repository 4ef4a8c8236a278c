//! The wires below QUIC that are TLS connections over TCP 443, for networks that let nothing else pass (`PROTOCOL.md` §17).
//!
//! ```text
//!  Driver ─ send ─► outbox ─► TlsWire::carry ─► TLS ─► TCP            each wire has a task of its own;
//!  Engine ◄──────────────────── TlsWire::carry ◄─ TLS ◄─ TCP            the outbox is what its task has not taken
//! ```
//!
//! The engine hears how many bytes wait, and gives a connection no turn while that is enough: what TCP has taken cannot be
//! overtaken any more, and TCP takes more than its path does unless it is told not to (`TCP_NOTSENT_LOWAT`).

mod late;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bentpipe_proto::stream::{Deframer, PREFACE, StreamFault, frame};
use bentpipe_tunnel::engine::{Arrival, Output, is_over_tcp};
use bytes::BytesMut;
use tokio::net::TcpStream;

use self::late::LateSegments;
use super::Shard;
use crate::tls::TlsSocket;

/// Payload that one pass through a wire reads before others get a turn, in bytes.
const TURN: usize = 128 * 1024;

/// Payload that is written into TLS in one go, in bytes: a record of TLS has room for 16 KiB.
const RECORD: usize = 16 * 1024;

/// Least and most bytes that the kernel may hold unsent.
const UNSENT: [u64; 2] = [2 * 1400, 256 * 1024];

/// Outboxes of the wires of a shard, by the address that the engine knows the peer by; `None`: what is for it is lost.
#[derive(Default)]
pub(super) struct TlsWires(RefCell<BTreeMap<SocketAddr, Option<Rc<Outbox>>>>);

/// Datagrams for the peer, in the stream's form.
struct Outbox {
    /// TCP connection that they leave by.
    tcp: Rc<TcpStream>,
    late: Cell<LateSegments>,
    bytes: RefCell<Vec<u8>>,
    /// Bytes that the wire's task has taken, and TCP has not.
    behind: Cell<usize>,
    /// Wakes the wire's task.
    waker: RefCell<Option<Waker>>,
}

impl Outbox {
    fn new(tcp: &Rc<TcpStream>) -> Rc<Self> {
        Rc::new(Self {
            tcp: tcp.clone(),
            late: Cell::default(),
            bytes: RefCell::default(),
            behind: Cell::default(),
            waker: RefCell::default(),
        })
    }
}

/// Sends a batch by the wire that leads to its destination; false if that is the UDP socket.
pub(super) fn send(shard: &Shard, output: &Output, bytes: &[u8]) -> bool {
    let remote = output.destination;
    let wire = shard.tls.0.borrow().get(&remote).cloned();
    let outbox = match wire {
        Some(Some(outbox)) => outbox,
        // The wire has ended: the datagrams are lost, as in a network.
        Some(None) => return true,
        None => return is_over_tcp(remote),
    };
    let datagrams = &bytes[..output.size];
    let segment = output.segment_size.unwrap_or(output.size).max(1);
    let mut waiting = outbox.bytes.borrow_mut();
    for datagram in datagrams.chunks(segment) {
        frame(datagram, &mut waiting);
    }
    let waits = (waiting.len() + outbox.behind.get()) as u64;
    shard.engine.borrow_mut().set_waiting(remote, Some(waits));
    if let Some(waker) = outbox.waker.borrow().as_ref() {
        waker.wake_by_ref();
    }
    true
}

impl Shard {
    /// Has what is for `remote` leave by UDP from now on; what still comes by TLS is taken.
    pub(crate) fn leave_tls(&self, remote: SocketAddr) {
        self.tls.0.borrow_mut().remove(&remote);
        self.with(|engine| engine.set_waiting(remote, None));
    }

    /// Share of the TCP segments from `remote` that came behind a missing one, since the TLS connection was opened, 0 to 1;
    /// `None` if there is no such connection, or the kernel does not tell.
    pub(crate) fn blocked_ratio(&self, remote: SocketAddr) -> Option<f64> {
        let outbox = self.tls.0.borrow().get(&remote).cloned()??;
        let mut late = outbox.late.get();
        late.count(&outbox.tcp)?;
        outbox.late.set(late);
        Some(late.ratio())
    }

    /// Has what is for `remote` be lost until a TLS connection leads there: to a tunnel that is an outage.
    pub(crate) fn lose(&self, remote: SocketAddr) {
        self.tls.0.borrow_mut().insert(remote, None);
        self.with(|engine| engine.set_waiting(remote, Some(0)));
    }
}

/// Reason why a wire ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireEnd {
    /// The peer has closed the TLS connection.
    #[error("the peer has closed the TLS connection")]
    Closed,
    /// The connection broke.
    #[error("the TLS connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The peer sends something else than datagrams.
    #[error(transparent)]
    Fault(#[from] StreamFault),
}

/// Wire over one TLS connection; dropping it ends the connection, and datagrams to its peer leave by UDP again.
pub(crate) struct TlsWire {
    shard: Rc<Shard>,
    /// Address that the engine knows the peer by.
    remote: SocketAddr,
    socket: TlsSocket,
    outbox: Rc<Outbox>,
    /// Bytes that were taken from the outbox and that TLS has not taken.
    pending: Vec<u8>,
    /// Bytes that TLS has taken and TCP has not.
    unflushed: usize,
    deframer: Deframer,
    /// Bytes that the kernel may hold unsent, as it was told.
    unsent: u64,
}

impl TlsWire {
    /// Leads what is for `remote` through `socket` from now on.
    pub(crate) fn new(shard: &Rc<Shard>, remote: SocketAddr, socket: TlsSocket) -> Self {
        Self::resumed(shard, remote, socket, Deframer::default())
    }

    /// Goes on with a connection of which `deframer` has read the beginning.
    pub(crate) fn resumed(
        shard: &Rc<Shard>,
        remote: SocketAddr,
        socket: TlsSocket,
        deframer: Deframer,
    ) -> Self {
        let outbox = Outbox::new(socket.tcp());
        shard
            .tls
            .0
            .borrow_mut()
            .insert(remote, Some(outbox.clone()));
        shard.with(|engine| engine.set_waiting(remote, Some(0)));
        let mut wire = Self {
            shard: shard.clone(),
            remote,
            socket,
            outbox,
            pending: PREFACE.to_vec(),
            unflushed: 0,
            deframer,
            unsent: 0,
        };
        wire.bound_unsent(UNSENT[0]);
        wire
    }

    /// Gives the engine a datagram of the peer's that was read before.
    pub(crate) fn deliver(&self, now: Instant, datagram: BytesMut) {
        self.shard.on_received(datagram.len());
        self.shard
            .with(|engine| engine.handle_datagram(now, self.arrival(now, datagram)));
    }

    /// Moves datagrams until the wire ends. Those that `is_ours` denies are dropped: another shard has their connection.
    pub(crate) async fn carry(&mut self, is_ours: impl Fn(&[u8]) -> bool) -> WireEnd {
        poll_fn(|cx| match self.poll(cx, &is_ours) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        })
        .await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        is_ours: &impl Fn(&[u8]) -> bool,
    ) -> Result<(), WireEnd> {
        *self.outbox.waker.borrow_mut() = Some(cx.waker().clone());
        self.send(cx)?;
        if self.receive(cx, is_ours)? {
            // Others get their turn first.
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Sends what waits, as far as TCP takes it.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), WireEnd> {
        loop {
            if self.pending.is_empty() {
                std::mem::swap(&mut self.pending, &mut self.outbox.bytes.borrow_mut());
            }
            let flushed = self.socket.poll_flush(cx)?.is_ready();
            if flushed {
                self.unflushed = 0;
            }
            if !flushed || self.pending.is_empty() {
                break;
            }
            let record = self.pending.len().min(RECORD);
            let taken = self.socket.write(&self.pending[..record])?;
            self.pending.drain(..taken);
            self.unflushed += taken;
        }
        if !self.leads() {
            return Ok(());
        }
        let behind = self.unflushed + self.pending.len();
        self.outbox.behind.set(behind);
        let waiting = behind + self.outbox.bytes.borrow().len();
        let remote = self.remote;
        let usage = self.shard.with(|engine| {
            engine.set_waiting(remote, Some(waiting as u64));
            engine.wire_use(remote)
        });
        self.bound_unsent(usage.map_or(UNSENT[0], |usage| usage.room));
        Ok(())
    }

    /// True while datagrams for the peer are led here: another wire may have taken the place, or UDP.
    fn leads(&self) -> bool {
        let wires = self.shard.tls.0.borrow();
        let leading = wires.get(&self.remote).and_then(Option::as_ref);
        leading.is_some_and(|outbox| Rc::ptr_eq(outbox, &self.outbox))
    }

    /// Tells the kernel how many bytes it may hold unsent, if that has changed much.
    fn bound_unsent(&mut self, room: u64) {
        let [least, most] = UNSENT;
        let room = room.clamp(least, most);
        if room / 2 < self.unsent && self.unsent < room * 2 {
            return;
        }
        self.unsent = room;
        #[cfg(target_os = "linux")]
        {
            let socket = socket2::SockRef::from(&**self.socket.tcp());
            let _ = socket.set_tcp_notsent_lowat(u32::try_from(room).unwrap_or(u32::MAX));
        }
    }

    /// Takes what has come; true if there may be more.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        is_ours: &impl Fn(&[u8]) -> bool,
    ) -> Result<bool, WireEnd> {
        let mut read = 0;
        while read < TURN {
            self.take_datagrams(is_ours)?;
            let shard = self.shard.clone();
            let mut scratch = shard.scratch().borrow_mut();
            let count = match self.socket.poll_read(cx, &mut scratch)? {
                Poll::Ready(0) => return Err(WireEnd::Closed),
                Poll::Ready(count) => count,
                Poll::Pending => return Ok(false),
            };
            read += count;
            self.deframer.push(&scratch[..count]);
        }
        Ok(true)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the shell; the engine gets its clock as an argument"
    )]
    fn take_datagrams(&mut self, is_ours: &impl Fn(&[u8]) -> bool) -> Result<(), WireEnd> {
        let now = Instant::now();
        while let Some(datagram) = self.deframer.read()? {
            if is_ours(&datagram) {
                self.deliver(now, datagram);
            }
        }
        Ok(())
    }

    fn arrival(&self, now: Instant, data: BytesMut) -> Arrival {
        Arrival {
            at: now,
            remote: self.remote,
            local: None,
            ecn: None,
            data,
        }
    }
}

impl Drop for TlsWire {
    fn drop(&mut self) {
        self.socket.close();
        if self.leads() {
            self.shard.leave_tls(self.remote);
        }
    }
}
