//! One flow as the model knows it: what both hosts have said, and so what each may hear from its relay.

use std::ops::AddAssign;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{AbortCode, ReplyCode};
use bentpipe_testbed::world::World;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::relay::{FlowAccess as _, Outcome, Relay};
use bentpipe_tunnel::transport::FlowKey;

use super::dice::Dice;
use super::end::{At, End, Side};
use super::host::{Host, Phase};
use super::origin::Dialling;

/// Time after which the server does not hear any more of a flow that was opened and left.
const UNHEARD: Duration = Duration::from_secs(60);

/// Bytes of a request that is answered with a download.
const REQUEST: u64 = 100;

/// Turns of a relay and its host while the model's clock stands still.
const TURNS: usize = 8;

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    number: u64,
    ends: [End; 2],
    /// The server's answer, other than yes.
    refusal: Option<ReplyCode>,
    /// Its origin is there at once.
    prompt: bool,
    /// Under way from when the server has heard of the flow until it answers.
    dialling: Option<Dialling>,
    /// Either end's daemon has forgotten the tunnel.
    lost: bool,
    /// A daemon has closed the tunnel in order.
    stopped: bool,
    /// Since when the client's end is over, for a flow that the server has not heard of.
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
        let now = world.now;
        let hosts = [0, 1].map(|index| Host::new(dice, now, number, index));
        let most = dice.below(3_000);
        let flow = Self::between(world, hosts, (number, id), most)?;
        Some(Self { lost, ..flow })
    }

    /// Opens flow `number` through the tunnel `id`, by which a host that is served at once downloads `bytes`.
    pub(super) fn download(
        world: &mut World,
        dice: &mut Dice,
        (number, id, lost): (u64, ConnectionId, bool),
        bytes: u64,
    ) -> Option<Self> {
        let now = world.now;
        let hosts = [0, 1].map(|index| {
            let plan = if index == 0 { REQUEST } else { bytes };
            Host::greedy(dice, now, (number, index), plan)
        });
        let flow = Self::between(world, hosts, (number, id), REQUEST)?;
        Some(Self {
            prompt: true,
            lost,
            ..flow
        })
    }

    fn between(
        world: &mut World,
        hosts: [Host; 2],
        (number, id): (u64, ConnectionId),
        most: u64,
    ) -> Option<Self> {
        let mut ends = hosts.map(End::new);
        let first = ends[0].host.first_bytes(most);
        let (tunnel, quic) = world.terminals[0].engine.connection(id)?.parts();
        let source = bentpipe_testbed::world::source(number);
        let key = tunnel.open(quic, source, None, first).ok()?;
        ends[0].place = Some((id, key));
        ends[0].relay = Some(Relay::default());
        ends[0].wake_if(true);
        Some(Self {
            number,
            ends,
            refusal: None,
            prompt: false,
            dialling: None,
            lost: false,
            stopped: false,
            unheard: None,
            heard: Heard::default(),
        })
    }

    /// The server has heard of the flow.
    pub(super) fn on_opened(
        &mut self,
        dice: &mut Dice,
        now: Instant,
        place: (ConnectionId, FlowKey),
    ) {
        let end = &mut self.ends[Side::Server.index()];
        assert!(end.place.is_none(), "opened twice");
        end.place = Some(place);
        // Whoever hears of the flow has not forgotten its tunnel; a close may be on its way.
        self.lost &= self.stopped;
        self.dialling = Some(Dialling::begin(dice, now, self.prompt));
    }

    /// One of the daemons has lost all that it knew of the tunnel.
    pub(super) fn on_lost(&mut self, side: Side) {
        self.lost = true;
        let end = &mut self.ends[side.index()];
        (end.relay, end.over) = (None, true);
        self.dialling = None;
    }

    /// A daemon has closed its tunnels in order, or too `late` for the flow.
    pub(super) fn on_stopped(&mut self, late: bool) {
        let unheard = self.ends[Side::Server.index()].place.is_none();
        self.lost |= late || unheard;
        self.stopped = true;
    }

    /// The relay of the flow at `place`, if that is this one's, is to look at it.
    pub(super) fn on_notice(&self, side: Side, place: (ConnectionId, FlowKey)) {
        let end = &self.ends[side.index()];
        end.wake_if(end.place == Some(place));
    }

    /// Bytes that have come to the client's host.
    pub(super) fn downloaded(&self) -> u64 {
        self.ends[Side::Client.index()].host.arrived()
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// What both hosts have heard.
    pub(super) fn heard(&self) -> Heard {
        let bytes = self.ends.iter().map(|end| end.host.arrived()).sum();
        Heard {
            bytes,
            ..self.heard
        }
    }

    /// Nobody takes part any more. A server that has forgotten the tunnel may never hear of the flow.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let [client, server] = &self.ends;
        let unheard = client.over && self.lost && server.place.is_none();
        let since = *self.unheard.get_or_insert(now);
        self.unheard = unheard.then_some(since);
        client.over && server.over || unheard && now > since + UNHEARD
    }

    /// The host at `side` resets its connection.
    pub(super) fn reset(&mut self, side: Side) {
        let end = &mut self.ends[side.index()];
        end.host.reset();
        end.wake_if(true);
    }

    /// The server withdraws the rights to the flow.
    pub(super) fn revoke(&mut self, world: &mut World) {
        let end = &mut self.ends[Side::Server.index()];
        if let Some(place) = end.place.filter(|_| end.relay.is_some()) {
            let engine = &mut world.server;
            let mut at = At { engine, place };
            at.with(|tunnel, flow, quic| tunnel.revoke(quic, flow, AbortCode::Denied));
            end.revoked = true;
        }
    }

    /// Whether a host has reset its connection.
    pub(super) fn was_reset(&self) -> bool {
        self.ends.iter().any(|end| end.host.has_reset())
    }

    /// Both hosts and their relays do what they can.
    pub(super) fn turn(&mut self, world: &mut World, dice: &mut Dice, phase: Phase) {
        if let Some(code) = self.dialling.as_mut().and_then(|it| it.poll(world.now)) {
            self.dialling = None;
            self.answer(world, code);
        }
        for side in [Side::Client, Side::Server] {
            let end = &mut self.ends[side.index()];
            let said = end.host.write(dice, phase);
            end.wake_if(said);
            for _ in 0..TURNS {
                let end = &mut self.ends[side.index()];
                let took = end.host.read(world.now, phase);
                end.wake_if(took);
                self.relay(world, side);
            }
        }
    }

    fn answer(&mut self, world: &mut World, code: ReplyCode) {
        self.refusal = (code != ReplyCode::Ok).then_some(code);
        let end = &mut self.ends[Side::Server.index()];
        let Some(place) = end.place.filter(|_| !end.over) else {
            return;
        };
        let engine = &mut world.server;
        let mut at = At { engine, place };
        at.with(|tunnel, flow, quic| tunnel.reply(quic, flow, code, None));
        end.relay = self.refusal.is_none().then(Relay::default);
        end.wake_if(true);
        end.over = self.refusal.is_some();
    }

    /// The relay at `side` has its turn.
    fn relay(&mut self, world: &mut World, side: Side) {
        let end = &mut self.ends[side.index()];
        let (Some(place), Some(relay)) = (end.place, &mut end.relay) else {
            return;
        };
        let engine = side.engine(world);
        // A shard wakes the relays of a connection that it has lost.
        let is_woken = end.alarm.is_due();
        if !is_woken && engine.peek(place.0).is_some() {
            return;
        }
        let mut at = At { engine, place };
        at.with(|tunnel, flow, _| tunnel.take_notice(flow));
        let heard = end.host.heard_fin();
        let waker = Waker::from(Arc::clone(&end.alarm));
        let mut cx = Context::from_waker(&waker);
        let polled = relay.poll(&mut cx, &mut at, &mut end.host);
        if let Poll::Ready(outcome) = polled
            && outcome != Outcome::LanReset
        {
            at.with(|tunnel, flow, quic| tunnel.release(quic, flow));
        }
        self.check(side);
        if !heard && self.ends[side.index()].host.heard_fin() {
            self.on_fin(side);
        }
        if let Poll::Ready(outcome) = polled {
            self.on_outcome(side, outcome);
        }
    }

    fn check(&self, side: Side) {
        let [end, other] = self.pair(side);
        assert!(
            end.host.arrived() <= other.host.taken(),
            "{side:?} hears what nobody has said"
        );
    }

    fn on_fin(&mut self, side: Side) {
        let [end, other] = self.pair(side);
        // A reset that follows FIN may come after it, or in its place.
        assert!(
            other.host.has_finished(),
            "{side:?}: a FIN that nobody said"
        );
        assert_eq!(
            end.host.arrived(),
            other.host.sent(),
            "{side:?} hears FIN too early"
        );
        self.heard.ends += 1;
    }

    fn on_outcome(&mut self, side: Side, outcome: Outcome) {
        let [end, other] = self.pair(side);
        let (arrived, sent) = (end.host.arrived(), other.host.sent());
        match outcome {
            Outcome::Closed => {
                let both = end.host.heard_fin() && end.host.has_finished();
                assert!(both, "{side:?}: closed with an end open");
            }
            Outcome::LanReset => assert!(end.host.has_reset(), "{side:?}: nobody has reset it"),
            Outcome::PeerReset => {
                let said = other.host.has_reset() || other.revoked || self.lost;
                assert!(said, "{side:?} hears a reset that nobody said");
                // Whoever has reset its own connection hears no more.
                let cut = !other.host.has_reset() || other.revoked || end.host.has_reset();
                let whole = cut || arrived == sent;
                assert!(whole, "{side:?} lacks bytes before a reset: {self:?}");
            }
            Outcome::Refused(code) => {
                let said = (side, Some(code)) == (Side::Client, self.refusal);
                assert!(said, "refused by nobody");
                assert_eq!(arrived, 0, "bytes before a refusal");
            }
            Outcome::TunnelLost => {
                // The close may overtake the word of a reset, and is one to the host.
                let known = self.lost || end.revoked || self.stopped && other.host.has_reset();
                assert!(
                    known,
                    "{side:?} has lost its flow and no tunnel was lost: {self:?}"
                );
            }
        }
        self.heard.resets += u64::from(outcome == Outcome::PeerReset);
        self.heard.refusals += u64::from(matches!(outcome, Outcome::Refused(_)));
        self.heard.losses += u64::from(outcome == Outcome::TunnelLost);
        let end = &mut self.ends[side.index()];
        (end.relay, end.over) = (None, true);
    }

    /// The end at `side`, and the other one.
    fn pair(&self, side: Side) -> [&End; 2] {
        let [client, server] = &self.ends;
        match side {
            Side::Client => [client, server],
            Side::Server => [server, client],
        }
    }
}
