//! Between one TCP socket and one outer connection of SLE (`PROTOCOL.md` §18): the sockets and tasks of `sealed/sle/conn`, at
//! both ends.
//!
//! ```text
//!   LAN host ── socket ──► Conn ── records ──► outer connection
//!   LAN host ◄─ socket ◄── Conn ◄─ records ◄── outer connection
//! ```
//!
//! Both sockets carry SO_LINGER 0 until their end is known to be in order, so a crash of the daemon resets them.

mod host;
mod outer;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bentpipe_proto::tunnel::{Reply, ReplyCode};
use bentpipe_sealed::sle::{Action, Conn, Outcome as End};
use bytes::{Buf as _, Bytes};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, sleep_until};

use super::{FIRST_BYTES, LanSide, Outcome};
use crate::process;
use crate::shard::Shard;
use crate::sle_traffic::{OpenFlow, SleTraffic};
use host::HostSide;
use outer::Outer;

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
    /// The peer has ended its direction before there was a host to tell.
    shut_due: bool,
    /// Told of the server's answer (client).
    on_answer: Option<Box<dyn FnOnce()>>,
    /// Time for which REPLY waits for the first bytes of the origin (server).
    held: Option<Pin<Box<Sleep>>>,
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
    counted: OpenFlow,
}

/// Bytes that an application had said before its flow began.
struct First {
    bytes: Bytes,
    /// The application has sent FIN behind them.
    ended: bool,
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
            outer: Outer::new(LanSide::new(outer, shard), unread),
            first: None,
            reply: None,
            shut_due: false,
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
        let side = LanSide {
            on_first_byte,
            ..LanSide::new(lan, self.shard())
        };
        let mut lan = HostSide::new(side, reading);
        if std::mem::take(&mut self.shut_due) {
            lan.shut(&mut self.conn);
        }
        poll_fn(|cx| self.poll_until(cx, Some(&mut lan), |_| false)).await;
        let outcome = self.outcome();
        match outcome {
            Outcome::PeerReset => Box::pin(lan.delivered()).await,
            Outcome::Closed => lan.close_in_order(),
            Outcome::LanReset | Outcome::Refused(_) | Outcome::TunnelLost => {}
        }
        outcome
    }

    fn shard(&self) -> &Rc<Shard> {
        self.outer.shard()
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
                Action::ShutLan => match lan.as_deref_mut() {
                    Some(lan) => lan.shut(&mut self.conn),
                    None => self.shut_due = true,
                },
                // By dropping the socket, once the flow is over.
                Action::ResetLan => {}
                Action::CloseOuter => self.outer.close_in_order(),
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
