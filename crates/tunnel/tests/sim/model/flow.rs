//! One flow as the model knows it: what both hosts have said, and so what each may hear.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{AbortCode, ReplyCode};
use bentpipe_testbed::world::World;
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bytes::Bytes;

use super::dice::Dice;

/// Length of the piece of content that is repeated, in bytes; prime, so that no power of two is a period.
const PERIOD: u64 = 65_521;

/// Most bytes that a host writes in one turn.
const PIECE: u64 = 60_000;

/// Time after which the server does not hear any more of a flow that was opened and left.
const UNHEARD: Duration = Duration::from_secs(60);

/// End of the tunnel, and so engine, at which a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    /// Index among a flow's hosts.
    fn index(self) -> usize {
        self as usize
    }

    pub(super) fn engine(self, world: &mut World) -> &mut Engine {
        match self {
            Self::Client => &mut world.terminals[0].engine,
            Self::Server => &mut world.server,
        }
    }
}

/// Way in which a host takes what comes.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// At once.
    Greedy,
    /// At most so many bytes in a turn.
    Slow(u64),
    /// Nothing before this instant.
    Stalled(Instant),
}

/// One of a flow's two hosts.
#[derive(Debug)]
struct Host {
    /// Flow at this end; `None` before it is known there.
    at: Option<(ConnectionId, FlowKey)>,
    /// Bytes written so far.
    pushed: u64,
    /// Bytes that it means to write before FIN.
    plan: u64,
    /// It has said FIN.
    finished: bool,
    /// It was reset.
    reset: bool,
    /// Bytes read so far.
    read: u64,
    /// The other host's FIN has come.
    heard_fin: bool,
    pace: Pace,
    /// It takes no more part, and hears nothing.
    left: bool,
}

impl Host {
    fn new(dice: &mut Dice, now: Instant) -> Self {
        Self {
            at: None,
            pushed: 0,
            plan: dice.size(),
            finished: false,
            reset: false,
            read: 0,
            heard_fin: false,
            pace: match dice.below(10) {
                0..6 => Pace::Greedy,
                6..8 => Pace::Slow(1 + dice.below(20_000)),
                _ => Pace::Stalled(now + Duration::from_millis(dice.below(8_000))),
            },
            left: false,
        }
    }
}

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    number: u64,
    hosts: [Host; 2],
    /// The server's answer, other than yes.
    refusal: Option<ReplyCode>,
    /// The server answers at this instant, once it has heard of the flow.
    answers: Option<Instant>,
    /// Either end's daemon has forgotten the tunnel.
    lost: bool,
    /// Since when the client's host has left a flow that the server has not heard of.
    unheard: Option<Instant>,
    heard: Heard,
}

/// What hosts have heard, counted: a run in which nothing happens shows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) bytes: u64,
    pub(super) ends: u64,
    pub(super) resets: u64,
    pub(super) refusals: u64,
    pub(super) losses: u64,
}

impl AddAssign for Heard {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.ends += other.ends;
        self.resets += other.resets;
        self.refusals += other.refusals;
        self.losses += other.losses;
    }
}

impl Flow {
    /// Opens flow `number` through the tunnel `id`; `None` if the tunnel takes none.
    pub(super) fn open(
        world: &mut World,
        dice: &mut Dice,
        number: u64,
        id: ConnectionId,
        lost: bool,
    ) -> Option<Self> {
        let mut hosts = [Host::new(dice, world.now), Host::new(dice, world.now)];
        let first = hosts[0].plan.min(dice.below(3_000));
        let (tunnel, quic) = world.terminals[0].engine.connection(id)?.parts();
        let bytes = content(number, Side::Client, 0, first);
        let key = tunnel
            .open(
                quic,
                bentpipe_testbed::world::source(number),
                None,
                bytes.into(),
            )
            .ok()?;
        hosts[0].at = Some((id, key));
        hosts[0].pushed = first;
        Some(Self {
            number,
            hosts,
            refusal: None,
            answers: None,
            lost,
            unheard: None,
            heard: Heard::default(),
        })
    }

    /// The server has heard of the flow.
    pub(super) fn on_opened(&mut self, dice: &mut Dice, now: Instant, at: (ConnectionId, FlowKey)) {
        let host = &mut self.hosts[Side::Server.index()];
        assert!(host.at.is_none(), "opened twice");
        host.at = Some(at);
        // Whoever hears of the flow has not forgotten its tunnel.
        self.lost = false;
        if dice.one_in(20) {
            self.refusal = Some(ReplyCode::Refused);
        }
        let dials = if dice.one_in(4) { dice.below(3_000) } else { 0 };
        self.answers = Some(now + Duration::from_millis(dials));
    }

    /// One of the daemons has lost all that it knew of the tunnel.
    pub(super) fn on_lost(&mut self, side: Side) {
        self.lost = true;
        self.hosts[side.index()].left = true;
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// What both hosts have heard.
    pub(super) fn heard(&self) -> Heard {
        let bytes = self.hosts.iter().map(|host| host.read).sum();
        Heard {
            bytes,
            ..self.heard
        }
    }

    /// Nobody takes part any more. A server that has forgotten the tunnel may never hear of the flow.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let [client, server] = &self.hosts;
        let unheard = client.left && self.lost && server.at.is_none();
        let since = *self.unheard.get_or_insert(now);
        self.unheard = unheard.then_some(since);
        client.left && server.left || unheard && now > since + UNHEARD
    }

    /// The host at `side` is reset; as its relay, or `policy`, has it.
    pub(super) fn abort(&mut self, world: &mut World, side: Side, policy: bool) {
        let host = &mut self.hosts[side.index()];
        let waits = side == Side::Server && self.answers.is_some();
        let Some((id, key)) = host.at.filter(|_| !host.left && !waits) else {
            return;
        };
        if let Some(held) = side.engine(world).connection(id) {
            let (tunnel, quic) = held.parts();
            match policy {
                true => tunnel.revoke(quic, key, AbortCode::Internal),
                false => tunnel.abort(quic, key, AbortCode::Reset),
            }
        }
        (host.reset, host.left) = (true, true);
    }

    /// Both hosts do what they can. Without `hurry` they keep their pace.
    pub(super) fn turn(&mut self, world: &mut World, dice: &mut Dice, hurry: bool) {
        if self.answers.is_some_and(|at| at <= world.now) {
            self.answers = None;
            self.answer(world);
        }
        for side in [Side::Client, Side::Server] {
            let host = &self.hosts[side.index()];
            let waits = side == Side::Server && self.answers.is_some();
            if let Some(at) = host.at.filter(|_| !host.left && !waits) {
                self.read(world, side, at, hurry);
                self.write(world, dice, side, at, hurry);
                self.leave(world, side, at);
            }
        }
    }

    fn answer(&mut self, world: &mut World) {
        let host = &mut self.hosts[Side::Server.index()];
        let Some((id, key)) = host.at.filter(|_| !host.left) else {
            return;
        };
        let Some(held) = world.server.connection(id) else {
            return;
        };
        let (tunnel, quic) = held.parts();
        tunnel.reply(quic, key, self.refusal.unwrap_or(ReplyCode::Ok), None);
        host.left = self.refusal.is_some();
    }

    fn read(
        &mut self,
        world: &mut World,
        side: Side,
        (id, key): (ConnectionId, FlowKey),
        hurry: bool,
    ) {
        let now = world.now;
        let mut allowance = match self.hosts[side.index()].pace {
            _ if hurry => u64::MAX,
            Pace::Greedy => u64::MAX,
            Pace::Slow(bytes) => bytes,
            Pace::Stalled(until) if until > now => 0,
            Pace::Stalled(_) => u64::MAX,
        };
        loop {
            let engine = side.engine(world);
            let incoming = engine
                .peek(id)
                .map_or(Incoming::Gone, |held| held.tunnel.incoming(key));
            match incoming {
                Incoming::Data => {
                    let taken = self.take(world, side, (id, key), allowance);
                    allowance -= taken;
                    if taken == 0 {
                        return;
                    }
                }
                Incoming::Blocked => return,
                Incoming::End(End::Fin) => return self.on_fin(side),
                Incoming::End(End::Abort(_)) => self.on_abort(side),
                Incoming::Refused(code) => self.on_refused(side, code),
                Incoming::Gone => self.on_gone(side),
            }
            if self.hosts[side.index()].left {
                return self.release(world, side, (id, key));
            }
        }
    }

    fn take(
        &mut self,
        world: &mut World,
        side: Side,
        (id, key): (ConnectionId, FlowKey),
        allowance: u64,
    ) -> u64 {
        let number = self.number;
        let [host, other] = self.pair(side);
        let engine = side.engine(world);
        let (tunnel, _) = engine.connection(id).expect("it was there").parts();
        tunnel.take_notice(key);
        let (mut taken, mut ready) = (0, 0);
        for chunk in tunnel.ready(key) {
            ready += chunk.len() as u64;
            let size = (chunk.len() as u64).min(allowance - taken);
            let wanted = content(number, opposite(side), host.read + taken, size);
            let same = chunk[..wanted.len()] == wanted;
            assert!(
                same,
                "{side:?} reads something else at {}",
                host.read + taken
            );
            taken += size;
            if taken == allowance {
                break;
            }
        }
        if taken < ready {
            tunnel.blocked(key);
        }
        tunnel.consume(key, taken);
        host.read += taken;
        assert!(
            host.read <= other.pushed,
            "{side:?} reads what nobody has written"
        );
        taken
    }

    fn on_fin(&mut self, side: Side) {
        let [host, other] = self.pair(side);
        // A reset that follows FIN may come after it, or in its place.
        assert!(other.finished, "{side:?} hears a FIN that nobody said");
        assert_eq!(host.read, other.pushed, "{side:?} hears FIN too early");
        let first = !std::mem::replace(&mut host.heard_fin, true);
        self.heard.ends += u64::from(first);
    }

    fn on_abort(&mut self, side: Side) {
        let lost = self.lost;
        let [host, other] = self.pair(side);
        assert!(
            other.reset || lost,
            "{side:?} hears a reset that nobody said"
        );
        assert_eq!(
            host.read, other.pushed,
            "{side:?} lacks bytes before a reset"
        );
        host.left = true;
        self.heard.resets += 1;
    }

    fn on_refused(&mut self, side: Side, code: ReplyCode) {
        assert_eq!(
            (side, Some(code)),
            (Side::Client, self.refusal),
            "refused by nobody"
        );
        let [host, _] = self.pair(side);
        assert_eq!(host.read, 0, "bytes before a refusal");
        host.left = true;
        self.heard.refusals += 1;
    }

    fn on_gone(&mut self, side: Side) {
        assert!(
            self.lost,
            "{side:?} has lost its flow and no tunnel was lost: {self:?}"
        );
        self.hosts[side.index()].left = true;
        self.heard.losses += 1;
    }

    fn write(
        &mut self,
        world: &mut World,
        dice: &mut Dice,
        side: Side,
        (id, key): (ConnectionId, FlowKey),
        hurry: bool,
    ) {
        let number = self.number;
        let [host, _] = self.pair(side);
        let idles = !hurry && dice.one_in(3);
        if host.finished || host.left || idles {
            return;
        }
        let Some(held) = side.engine(world).connection(id) else {
            return;
        };
        let (tunnel, _) = held.parts();
        let most = (host.plan - host.pushed).min(tunnel.capacity(key) as u64);
        let size = if hurry {
            most
        } else {
            most.min(1 + dice.below(PIECE))
        };
        if size > 0 {
            let bytes = content(number, side, host.pushed, size);
            tunnel.push(key, Bytes::from(bytes));
            host.pushed += size;
        }
        if host.pushed == host.plan && (hurry || dice.one_in(4)) {
            tunnel.finish(key);
            host.finished = true;
        }
    }

    /// A host that has said and heard FIN is gone.
    fn leave(&mut self, world: &mut World, side: Side, at: (ConnectionId, FlowKey)) {
        let [host, _] = self.pair(side);
        if !host.left && host.heard_fin && host.finished {
            host.left = true;
            self.release(world, side, at);
        }
    }

    fn release(&self, world: &mut World, side: Side, (id, key): (ConnectionId, FlowKey)) {
        if let Some(held) = side.engine(world).connection(id) {
            let (tunnel, quic) = held.parts();
            tunnel.release(quic, key);
        }
    }

    /// The host at `side`, and the other one.
    fn pair(&mut self, side: Side) -> [&mut Host; 2] {
        let [client, server] = &mut self.hosts;
        match side {
            Side::Client => [client, server],
            Side::Server => [server, client],
        }
    }
}

fn opposite(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

/// `size` bytes that the host at `side` of flow `number` writes from `offset` on; no two flows or places are alike.
#[expect(clippy::cast_possible_truncation, reason = "bytes")]
fn content(number: u64, side: Side, offset: u64, size: u64) -> Vec<u8> {
    let key = number * 2 + side.index() as u64;
    let byte = |at: u64| {
        let place = at % PERIOD;
        (place ^ (place >> 8) ^ (at / PERIOD) ^ key.wrapping_mul(0x9e37)) as u8
    };
    (offset..offset + size).map(byte).collect()
}
