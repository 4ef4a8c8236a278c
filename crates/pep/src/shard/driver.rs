//! The task of a shard: it moves datagrams between wires and engine, and gives the engine its clock.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bentpipe_tunnel::engine::{Arrival, ConnectionNotice, Event, Output};
use bentpipe_tunnel::transport::TunnelEvent;
use quinn_udp::RecvMeta;

use super::alarm::Alarm;
use super::exits::Exits;
use super::handover::Neighbours;
use super::pulse::{Pulse, PulseView};
use super::rests::Rests;
use super::udp::{Sent, UdpWire};
use super::{Shard, tls};

/// Batches sent or received before flows and timers get a turn.
const TURN: usize = 64;
/// Bytes sent and received before flows get a turn. What has come should still be in the CPU's cache when flows pass it on, and
/// its memory be free again for what comes next.
const TURN_BYTES: u64 = 256 << 10;
/// Nothing waits longer to be read.
const OLDEST: Duration = Duration::from_secs(1);

/// Moves datagrams between the wires and the engine.
pub(crate) struct Driver {
    shard: Rc<Shard>,
    udp: UdpWire,
    alarm: Alarm,
    neighbours: Option<Neighbours>,
    pulse: Pulse,
    /// A batch that the UDP socket had no room for.
    stuck: Option<(Output, Vec<u8>)>,
    spare: Vec<u8>,
    /// For how long nothing is done that can wait for others.
    rests: Rests,
}

impl Driver {
    /// Takes over a bound, non-blocking socket, and the `exits` beside it; `pulse` counts the turns.
    pub(crate) fn new(
        shard: Rc<Shard>,
        (socket, exits): (std::net::UdpSocket, Exits),
        neighbours: Option<Neighbours>,
        pulse: Pulse,
    ) -> io::Result<Self> {
        let udp = UdpWire::new(socket, exits)?;
        if let Some(neighbours) = &neighbours {
            shard.with(|engine| engine.report_to(neighbours.placement()));
        }
        Ok(Self {
            shard,
            udp,
            alarm: Alarm::new()?,
            neighbours,
            pulse,
            stuck: None,
            spare: Vec::new(),
            rests: Rests::default(),
        })
    }

    /// Takes over the socket of a process's only shard, whose turns are counted in the pulse that is returned. The kernel reports
    /// ICMP errors, so that it can be told why nobody answers.
    pub(crate) fn of_only_shard(
        shard: Rc<Shard>,
        socket: std::net::UdpSocket,
    ) -> io::Result<(Self, PulseView)> {
        let pulse = Pulse::default();
        let view = pulse.view();
        let mut driver = Self::new(shard, (socket, Exits::default()), None, pulse)?;
        driver.udp.hear_failures();
        Ok((driver, view))
    }

    /// Runs until the socket fails. `on_event` hears everything but the events of flows that have a task.
    pub(crate) async fn run(mut self, mut on_event: impl FnMut(Event)) -> io::Result<()> {
        poll_fn(|cx| self.poll(cx, &mut on_event)).await
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the shell gives the engine its clock"
    )]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        on_event: &mut impl FnMut(Event),
    ) -> Poll<io::Result<()>> {
        if self
            .shard
            .driver
            .borrow()
            .as_ref()
            .is_none_or(|known| !known.will_wake(cx.waker()))
        {
            *self.shard.driver.borrow_mut() = Some(cx.waker().clone());
        }
        self.pulse.beat();
        let turn_ends = self.shard.moved() + TURN_BYTES;
        for _ in 0..TURN {
            let now = Instant::now();
            let mut busy = self.receive(cx, now)?;
            busy |= self.receive_handovers(cx, now);
            if let Some(neighbours) = &mut self.neighbours {
                neighbours.publish(now, self.shard.moved());
            }
            self.shard.engine.borrow_mut().handle_timeout(now);
            busy |= self.dispatch(now, on_event);
            busy |= self.transmit(cx, now, turn_ends)?;
            busy |= self.dispatch(now, on_event);
            if self.shard.engine.borrow_mut().take_spent() {
                self.shard.spent.notify_one();
            }
            let rests = self.rests.poll_timeout(now);
            let due = self.shard.engine.borrow().poll_timeout();
            let due = due.into_iter().chain(rests).min();
            busy |= self.alarm.poll(cx, now, due).is_ready();
            if !busy {
                if self.work(now) {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            if self.shard.moved() >= turn_ends {
                break;
            }
        }
        self.work(Instant::now());
        // Relays must get their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does a piece of what can wait for others, unless it rests. True if there was something to do.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell measures what its own work takes"
    )]
    fn work(&mut self, now: Instant) -> bool {
        let mut engine = self.shard.engine.borrow_mut();
        if !engine.has_work() {
            self.rests.clear();
            return false;
        }
        if !self.rests.is_over(now) {
            return false;
        }
        let began = Instant::now();
        engine.work(now);
        let ended = Instant::now();
        let shared = engine.connections().nth(1).is_some();
        self.rests.worked(began, ended, shared);
        true
    }

    pub(super) fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<bool> {
        let (shard, neighbours) = (&self.shard, self.neighbours.as_ref());
        let take = |meta: &RecvMeta, bytes: &[u8]| {
            take_segments(shard, neighbours, now, meta, bytes);
        };
        let failed = |said| shard.engine.borrow_mut().handle_unreachable(said);
        self.udp.poll_receive(cx, now, take, failed)
    }

    fn receive_handovers(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(neighbours) = &mut self.neighbours else {
            return false;
        };
        let mut any = false;
        while let Poll::Ready(Some(datagram)) = neighbours.inbox.poll_recv(cx) {
            any = true;
            self.shard.engine.borrow_mut().handle_routed(now, datagram);
        }
        any
    }

    fn dispatch(&self, now: Instant, on_event: &mut impl FnMut(Event)) -> bool {
        let mut any = false;
        loop {
            let event = self.shard.engine.borrow_mut().poll_event(now);
            let Some(event) = event else { return any };
            any = true;
            match &event.notice {
                // A flow without a task is served where events are.
                ConnectionNotice::Tunnel(TunnelEvent::Flow(flow)) => {
                    if !self.shard.wake(event.connection, *flow) {
                        on_event(event);
                    }
                }
                ConnectionNotice::Lost(_) | ConnectionNotice::Fault(_) => {
                    self.shard.wake_all(event.connection);
                    on_event(event);
                }
                ConnectionNotice::Connected
                | ConnectionNotice::Tunnel(_)
                | ConnectionNotice::UnknownKey(..)
                | ConnectionNotice::Outage(_)
                | ConnectionNotice::Unreachable(_) => on_event(event),
            }
        }
    }

    /// Sends what the engine has, until the shard has moved `turn_ends` bytes; true if there was something.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Instant, turn_ends: u64) -> io::Result<bool> {
        let mut any = false;
        for _ in 0..TURN {
            let (output, bytes) = match self.stuck.take() {
                Some(stuck) => stuck,
                None => {
                    let mut buf = std::mem::take(&mut self.spare);
                    buf.clear();
                    let output = self.shard.engine.borrow_mut().poll_transmit(now, &mut buf);
                    let Some(output) = output else {
                        self.spare = buf;
                        return Ok(any);
                    };
                    (output, buf)
                }
            };
            let shard = &self.shard;
            if !tls::send(shard, &output, &bytes) {
                let failed = |said| shard.engine.borrow_mut().handle_unreachable(said);
                let sent = self.udp.poll_send(cx, now, (&output, &bytes), failed)?;
                if let Sent::Full { again } = sent {
                    self.stuck = Some((output, bytes));
                    return Ok(again);
                }
            }
            shard.on_sent(bytes.len());
            self.spare = bytes;
            any = true;
            if self.shard.moved() >= turn_ends {
                break;
            }
        }
        Ok(any)
    }
}

/// When the kernel had what was just read: many packets are read at one instant.
#[expect(
    clippy::disallowed_methods,
    reason = "the shell; the engine gets it as an argument"
)]
fn arrived(meta: &RecvMeta) -> Instant {
    let (read, clock) = (Instant::now(), SystemTime::now());
    let clock = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = meta.timestamp.and_then(|at| clock.checked_sub(at));
    // The wall clock may have been set meanwhile.
    age.filter(|age| *age <= OLDEST)
        .and_then(|age| read.checked_sub(age))
        .unwrap_or(read)
}

/// Splits what GRO joined and gives it to the engine.
fn take_segments(
    shard: &Shard,
    neighbours: Option<&Neighbours>,
    now: Instant,
    meta: &RecvMeta,
    bytes: &[u8],
) {
    shard.on_received(bytes.len());
    let at = arrived(meta);
    for segment in bytes.chunks(meta.stride.max(1)) {
        let arrival = Arrival {
            at,
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta
                .ecn
                .and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8)),
            data: shard.buffers.borrow_mut().copy(segment),
        };
        let mut engine = shard.engine.borrow_mut();
        let Some(neighbours) = neighbours else {
            engine.handle_datagram(now, arrival);
            continue;
        };
        let judge = |arrival: &Arrival| engine.judge(now, arrival);
        if let Some(routed) = neighbours.route(now, arrival, judge) {
            engine.handle_routed(now, routed);
        }
    }
}
