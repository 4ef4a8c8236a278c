//! Between one TCP socket and one outer connection of SLE (`PROTOCOL.md` §18): the sockets and tasks of `sealed/sle/conn`, at
//! both ends.
//!
//! ```text
//!   LAN host ── socket ──► Conn ── records ──► outer connection
//!   LAN host ◄─ socket ◄── Conn ◄─ records ◄── outer connection
//! ```
//!
//! Both sockets carry SO_LINGER 0 until their end is known to be in order, so a crash of the daemon resets them.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bentpipe_proto::tunnel::{AbortCode, Reply, ReplyCode};
use bentpipe_sealed::sle::{Action, Conn, Outcome as End};
use bentpipe_tunnel::relay::{LanSocket as _, abort_code};
use bytes::{Buf as _, Bytes};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, sleep_until};

use super::{FIRST_BYTES, LanSide, Outcome, delivered};
use crate::process;
use crate::shard::Shard;
use crate::sle_traffic::{OpenFlow, SleTraffic};

/// Looks at all sockets of a flow before others get a turn.
const TURN: usize = 16;

/// One flow over one outer connection.
pub(crate) struct SealedFlow {
    conn: Conn,
    outer: Outer,
    /// First bytes of the application for which there was no room yet (client).
    first: Option<First>,
    /// The server's answer, once it is here (client).
    reply: Option<Reply>,
    /// Told of the server's answer (client).
    on_answer: Option<Box<dyn FnOnce()>>,
    /// Time for which REPLY waits for the first bytes of the origin (server).
    held: Option<Pin<Box<Sleep>>>,
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
    counted: OpenFlow,
}

/// Outer connection.
struct Outer {
    side: LanSide,
    /// Bytes read for which the flow had no room.
    unread: Bytes,
    /// The outer connection takes no more; what it brought may still have to be read.
    deaf: bool,
    /// The outer connection has ended.
    gone: bool,
}

/// Bytes that an application had said before its flow began.
struct First {
    bytes: Bytes,
    /// The application has sent FIN behind them.
    ended: bool,
}

/// Host's connection at this end.
struct HostSide {
    side: LanSide,
    /// The host has not sent FIN.
    reading: bool,
    /// The host was lost while it was written to; what it said before may still have to be read.
    lost: Option<AbortCode>,
}

impl SealedFlow {
    /// A flow whose state is `conn`, over the connection `outer` of which `unread` was read already. `outer` must have been
    /// [`super::prepare`]d.
    pub(crate) fn new(
        conn: Conn,
        (outer, unread): (TcpStream, Bytes),
        shard: &Rc<Shard>,
        traffic: &Arc<SleTraffic>,
    ) -> Self {
        Self {
            conn,
            outer: Outer {
                side: LanSide::new(outer, shard),
                unread,
                deaf: false,
                gone: false,
            },
            first: None,
            reply: None,
            on_answer: None,
            held: None,
            timer: None,
            counted: traffic.open(),
        }
    }

    /// Client: takes the first bytes of the application, and whether it has ended there.
    pub(crate) fn say_first(&mut self, first: Bytes, ended: bool) {
        self.first = Some(First {
            bytes: first,
            ended,
        });
        self.say();
    }

    /// First bytes of the application → Conn; true if something has changed.
    fn say(&mut self) -> bool {
        let Some(First { bytes, ended }) = &mut self.first else {
            return false;
        };
        let now = process::now();
        let taken = self.conn.on_lan(now, bytes);
        bytes.advance(taken);
        let said = bytes.is_empty();
        if said {
            if *ended {
                self.conn.on_lan_end(now);
            }
            self.first = None;
        }
        said || taken > 0
    }

    /// Client: `told` hears of the server's answer.
    pub(crate) fn on_answer(&mut self, told: Box<dyn FnOnce()>) {
        self.on_answer = Some(told);
    }

    /// Client: waits for the server's answer.
    ///
    /// # Errors
    /// Code of the refusal; INTERNAL if the outer connection broke.
    pub(crate) async fn reply(&mut self) -> Result<Reply, ReplyCode> {
        poll_fn(|cx| self.poll_until(cx, None, |flow| flow.reply.is_some())).await;
        let reply = self.reply.ok_or(ReplyCode::Internal)?;
        match reply.code {
            ReplyCode::Ok => Ok(reply),
            code => Err(code),
        }
    }

    /// Client: true once the server has answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.is_some()
    }

    /// True if the flow ended otherwise than its two sides wanted.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.conn.outcome(), Some(End::Broken(_)))
    }

    /// Server: so many bytes were read before the flow began.
    pub(crate) fn count_received(&self, bytes: usize) {
        self.counted.received(bytes);
    }

    /// Server: ready once nobody is left to dial for.
    pub(crate) async fn gone(&mut self) {
        poll_fn(|cx| self.poll_until(cx, None, |_| false)).await;
    }

    /// Server: the dial has succeeded, with this answer. What the origin says soon leaves with it: a lone small segment is
    /// acknowledged sooner than full ones, and HyStart of the TCPs on the way would take that for the round trip.
    pub(crate) fn on_dialled(&mut self, reply: &Reply) {
        self.conn.on_dialled(&encoded(reply));
        self.held = Some(Box::pin(sleep(FIRST_BYTES)));
    }

    /// Server: refuses the flow, and ends with the outer connection.
    pub(crate) async fn refuse(mut self, code: ReplyCode) {
        let reply = Reply {
            code,
            bound: None,
            credit: 0,
        };
        self.conn.on_refused(process::now(), &encoded(&reply));
        self.gone().await;
    }

    /// Relays between `lan`, which must have been [`super::prepare`]d, and the outer connection until the flow is over.
    /// `on_first_byte` is told of the first byte for the host.
    pub(crate) async fn run(
        &mut self,
        lan: TcpStream,
        reading: bool,
        on_first_byte: Option<Box<dyn FnOnce()>>,
    ) -> Outcome {
        let mut lan = HostSide {
            side: LanSide {
                on_first_byte,
                ..LanSide::new(lan, self.shard())
            },
            reading,
            lost: None,
        };
        poll_fn(|cx| self.poll_until(cx, Some(&mut lan), |_| false)).await;
        let outcome = self.outcome();
        match outcome {
            Outcome::PeerReset => Box::pin(delivered(&lan.side.socket)).await,
            Outcome::Closed => lan.side.close_in_order(),
            Outcome::LanReset | Outcome::Refused(_) | Outcome::TunnelLost => {}
        }
        outcome
    }

    fn shard(&self) -> &Rc<Shard> {
        &self.outer.side.shard
    }

    /// Way in which the flow ended, in the words of a relay.
    fn outcome(&self) -> Outcome {
        match self.conn.outcome() {
            Some(End::Closed) => Outcome::Closed,
            Some(End::Aborted(_)) => Outcome::LanReset,
            Some(End::PeerAborted(_)) => Outcome::PeerReset,
            Some(End::Refused) => {
                let code = self.reply.map_or(ReplyCode::Internal, |reply| reply.code);
                Outcome::Refused(code)
            }
            Some(End::Broken(fault)) => {
                tracing::debug!("sealed flow broken: {fault}");
                Outcome::TunnelLost
            }
            None => Outcome::TunnelLost,
        }
    }

    /// Moves what can be moved. Ready once the flow is over, or `enough`.
    fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        mut lan: Option<&mut HostSide>,
        enough: impl Fn(&Self) -> bool,
    ) -> Poll<()> {
        for _ in 0..TURN {
            let mut moved = self.say();
            if !self.is_held(cx) {
                moved |= self.outer.write(cx, &mut self.conn, &self.counted);
            }
            moved |= self.outer.read(cx, &mut self.conn, &self.counted);
            if let Some(lan) = lan.as_deref_mut() {
                moved |= lan.write(cx, &mut self.conn);
                if self.first.is_none() && lan.read(cx, &mut self.conn, &self.counted) {
                    self.held = None;
                    moved = true;
                }
            }
            moved |= self.act(lan.as_deref_mut());
            moved |= self.poll_timer(cx);
            if self.conn.outcome().is_some() || enough(self) {
                // What the end itself asks for.
                self.act(lan.as_deref_mut());
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes the steps that the state machine asks for; true if there were any.
    fn act(&mut self, mut lan: Option<&mut HostSide>) -> bool {
        let mut acted = false;
        while let Some(action) = self.conn.poll_action() {
            acted = true;
            match action {
                Action::Replied(body) => {
                    self.reply = Some(decoded(&body));
                    if let Some(told) = self.on_answer.take() {
                        told();
                    }
                }
                Action::ShutLan => {
                    if let Some(lan) = lan.as_deref_mut() {
                        lan.shut(&mut self.conn);
                    }
                }
                // By dropping the socket, once the flow is over.
                Action::ResetLan => {}
                Action::CloseOuter => self.outer.side.close_in_order(),
                Action::ResetOuter if self.is_broken() => self.counted.broke(),
                // It was reset from birth on.
                Action::ResetOuter => {}
            }
        }
        acted
    }

    /// True while REPLY waits for the first bytes of the origin.
    fn is_held(&mut self, cx: &mut Context<'_>) -> bool {
        let held = self.held.as_mut();
        let waits = held.is_some_and(|timer| timer.as_mut().poll(cx).is_pending());
        if !waits {
            self.held = None;
        }
        waits
    }

    /// Looks after the deadline of the state machine; true if it has passed.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.conn.deadline() else {
            self.timer = None;
            return false;
        };
        match &mut self.timer {
            Some((set, _)) if *set == due => {}
            Some((set, timer)) => {
                *set = due;
                timer.as_mut().reset(due.into());
            }
            None => self.timer = Some((due, Box::pin(sleep_until(due.into())))),
        }
        let passed = self
            .timer
            .as_mut()
            .is_some_and(|(_, timer)| timer.as_mut().poll(cx).is_ready());
        if passed {
            self.timer = None;
            self.conn.handle_timeout(process::now());
        }
        passed
    }
}

/// Body of a REPLY.
fn encoded(reply: &Reply) -> Vec<u8> {
    let mut body = Vec::with_capacity(32);
    reply.encode(&mut body);
    body
}

/// REPLY with this body; one that cannot be read is a refusal without a better code.
fn decoded(body: &[u8]) -> Reply {
    match Reply::decode(body) {
        Ok(Some((reply, _))) => reply,
        _ => Reply {
            code: ReplyCode::Internal,
            bound: None,
            credit: 0,
        },
    }
}

/// Number of a code on the wire.
fn byte(code: AbortCode) -> u8 {
    u8::try_from(code.code()).unwrap_or(u8::MAX)
}

impl Outer {
    /// Conn → outer connection; true if something has changed.
    fn write(&mut self, cx: &mut Context<'_>, conn: &mut Conn, counted: &OpenFlow) -> bool {
        if self.deaf || self.gone || conn.outer_output().is_empty() {
            return false;
        }
        match self
            .side
            .poll_write(cx, &[IoSlice::new(conn.outer_output())])
        {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                counted.sent(count);
                conn.outer_written(process::now(), count);
                true
            }
            Poll::Ready(Err(_)) => {
                self.deaf = true;
                true
            }
        }
    }

    /// Outer connection → Conn; true if something has changed.
    fn read(&mut self, cx: &mut Context<'_>, conn: &mut Conn, counted: &OpenFlow) -> bool {
        let room = counted.room(conn.outer_room());
        if self.gone || room == 0 && self.unread.is_empty() {
            return false;
        }
        if self.unread.is_empty() {
            match self.side.poll_read(cx, room) {
                Poll::Pending => return false,
                Poll::Ready(Ok(bytes)) if bytes.is_empty() => {
                    self.gone = true;
                    // A write has taken the error: this is no end in order.
                    match self.deaf {
                        true => conn.on_outer_reset(),
                        false => conn.on_outer_end(),
                    }
                    return true;
                }
                Poll::Ready(Ok(bytes)) => {
                    counted.received(bytes.len());
                    self.unread = bytes;
                }
                Poll::Ready(Err(_)) => {
                    self.gone = true;
                    conn.on_outer_reset();
                    return true;
                }
            }
        }
        let taken = conn.on_outer(process::now(), &self.unread);
        self.unread.advance(taken);
        taken > 0
    }
}

impl HostSide {
    /// Conn → host; true if something has changed.
    fn write(&mut self, cx: &mut Context<'_>, conn: &mut Conn) -> bool {
        let held = conn.lan_output().len();
        if held == 0 {
            return false;
        }
        let now = process::now();
        if self.lost.is_some() {
            // Nobody takes it, and the peer's last words, which come behind, must not wait for that.
            conn.lan_written(now, held);
            return true;
        }
        match self.side.poll_write(cx, &[IoSlice::new(conn.lan_output())]) {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                conn.lan_written(now, count);
                true
            }
            Poll::Ready(Err(error)) => {
                self.lose(conn, abort_code(&error));
                true
            }
        }
    }

    /// Host → Conn; true if something has changed.
    fn read(&mut self, cx: &mut Context<'_>, conn: &mut Conn, counted: &OpenFlow) -> bool {
        if !self.reading {
            if self.lost.is_none()
                && let Poll::Ready(error) = self.side.poll_hangup(cx)
            {
                self.lose(conn, abort_code(&error));
                return true;
            }
            return false;
        }
        let room = counted.room(conn.lan_room());
        if room == 0 {
            return false;
        }
        let now = process::now();
        match self.side.poll_read(cx, room) {
            Poll::Pending => false,
            Poll::Ready(Ok(bytes)) if bytes.is_empty() => {
                self.reading = false;
                match self.lost {
                    // A write has taken the error: this is no FIN.
                    Some(code) => conn.abort(now, byte(code)),
                    None => conn.on_lan_end(now),
                }
                true
            }
            Poll::Ready(Ok(bytes)) => {
                conn.on_lan(now, &bytes);
                true
            }
            Poll::Ready(Err(error)) => {
                self.reading = false;
                self.lose(conn, abort_code(&error));
                true
            }
        }
    }

    /// Tells the host that the peer has ended its direction.
    fn shut(&mut self, conn: &mut Conn) {
        if self.lost.is_some() {
            return;
        }
        match self.side.finish() {
            Ok(()) => conn.on_lan_shut(process::now()),
            Err(error) => self.lose(conn, abort_code(&error)),
        }
    }

    /// The host is lost: the peer hears of it once all that the host said before has been read.
    fn lose(&mut self, conn: &mut Conn, code: AbortCode) {
        let code = *self.lost.get_or_insert(code);
        if !self.reading {
            conn.abort(process::now(), byte(code));
        }
    }
}
