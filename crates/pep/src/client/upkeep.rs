//! Work of the session: what follows from news of the engine, one connection becoming the tunnel, one being lost; and what is done
//! all the time: attempts while a tunnel is wanted, looks whether the tunnel's server is heard (`silence.rs`), whether bytes are
//! left, and at the figures of `status`.

use std::future::pending;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{CloseCode, LesBody, LesKind};
use quinn_proto::ConnectionError;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until};

use super::connections::{Attempt, Lost, Ready};
use super::report::{self, Told, is_replaced};
use super::retry::{Failure, Retry, Step};
use super::session::Session;
use super::silence;
use crate::process;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{Connection, ConnectionId, ConnectionNotice, Engine, Event};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::TunnelEvent;

/// Time from one look at the tunnel and the network to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Time from one sample of the figures of `status` to the next.
const SAMPLE: Duration = Duration::from_secs(1);

impl Session {
    /// Takes the engine's news about connections.
    pub(crate) fn on_event(&self, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected => {
                let attempt = self.tunnels.state().attempt_of(id);
                if let Some(attempt) = attempt.filter(|attempt| !attempt.enrols) {
                    self.packet_road().on_connected(&attempt);
                }
            }
            ConnectionNotice::UnknownKey(..) => {}
            ConnectionNotice::Tunnel(said) => self.on_said(id, said),
            ConnectionNotice::Outage(outage) => {
                if self.tunnels.state_mut().on_outage(id, outage) {
                    self.tell_reach();
                }
            }
            ConnectionNotice::Unreachable(said) => self.connector.on_unreachable(id, said),
            ConnectionNotice::Fault(fault) => {
                self.on_lost(id, (Told::Trying, Failure::Broken), &printable(fault));
            }
            ConnectionNotice::Lost(reason) => self.on_closed(id, &reason),
        }
    }

    /// Takes what a server says in a tunnel.
    fn on_said(&self, id: ConnectionId, said: TunnelEvent) {
        match said {
            TunnelEvent::Ready => self.on_ready(id),
            TunnelEvent::Goaway => self.on_goaway(id),
            TunnelEvent::Packets => self.packet_road().on_packets(id),
            TunnelEvent::Families => {
                if self.tunnels.ready() == Some(id) {
                    self.reporter.tell_families();
                    self.tell_reach();
                }
            }
            TunnelEvent::SleEpoch(epoch, _) => {
                if let Some(sle) = self.sle() {
                    sle.on_epoch(id, epoch);
                }
            }
            TunnelEvent::Les(kind, body) => self.on_les(id, kind, &body),
            TunnelEvent::Published(entry, code) => {
                if self.tunnels.ready() == Some(id) {
                    self.published.on_answer(entry, code);
                }
            }
            TunnelEvent::Enrolled(code, at) => self.connector.on_enrolled(id, code, at),
            TunnelEvent::Opened(..)
            | TunnelEvent::Inbound(..)
            | TunnelEvent::Segments(_)
            | TunnelEvent::Publish(_)
            | TunnelEvent::Flow(_)
            | TunnelEvent::Query(..)
            | TunnelEvent::Answer(..)
            | TunnelEvent::Enrol(_) => {}
        }
    }

    fn on_goaway(&self, id: ConnectionId) {
        let lost = self.tunnels.state_mut().on_goaway(id);
        match lost {
            // Open flows may finish; new ones wait for a server that stays.
            Lost::Tunnel { next } => {
                let why = "the server is stopping, or asks for a new tunnel";
                self.unready(next, why, false);
            }
            Lost::Challenger => {
                self.tunnels.close(id, "its server is stopping");
                self.schedule
                    .tell(|retry, now| retry.on_failed(now, Failure::Broken));
                self.schedule.wake();
            }
            Lost::Attempt(_) | Lost::Leaving | Lost::Unknown => {}
        }
    }

    /// A connection is over, for this `reason`: a server that does not know the client's key may be told of it with a code.
    fn on_closed(&self, id: ConnectionId, reason: &ConnectionError) {
        let trusts = |engine: &Engine| engine.peek(id).is_some_and(Connection::trusts_last);
        let proven = self.tunnels.shard().peek(trusts);
        if proven && identity::is_unknown_client(reason) && self.connector.turns_to_enrolment(id) {
            return;
        }
        let (told, text) = report::explain(reason, proven, self.servers.own_key());
        let failure = match told {
            Told::Refused if is_replaced(reason) => Failure::Replaced,
            Told::Refused => Failure::Refused,
            _ => Failure::Broken,
        };
        self.on_lost(id, (told, failure), &text);
    }

    /// Takes a message of LES; a server that breaks its rules loses the tunnel.
    fn on_les(&self, id: ConnectionId, kind: LesKind, body: &LesBody) {
        let Some(les) = self.packet_road().les() else {
            return;
        };
        if let Err(violation) = les.on_message(id, kind, body) {
            let now = process::now();
            self.tunnels.change(id, |connection| {
                let code = CloseCode::ProtocolViolation.code();
                connection.close(now, code, violation.to_string());
            });
            self.on_lost(id, (Told::Trying, Failure::Broken), &violation.to_string());
        }
    }

    fn on_ready(&self, id: ConnectionId) {
        let ready = self.tunnels.state_mut().on_ready(id);
        match ready {
            Ready::Unwanted => self.tunnels.close(id, "the client has another tunnel"),
            Ready::Enrols => self.connector.name_own_key(id),
            Ready::Tunnel(attempt) => self.install(attempt),
            Ready::Beside(attempt) => silence::challenge(self, attempt),
        }
    }

    /// The tunnel is the one of this attempt from now on.
    pub(super) fn install(&self, attempt: Attempt) {
        let id = attempt.id;
        self.tunnels.state_mut().install(attempt);
        self.schedule
            .tell(|retry, now| retry.on_ready(now, attempt.server));
        self.learned.begin();
        self.servers.remember(&attempt);
        self.wires.on_ready(&attempt);
        self.learned.measure_link();
        self.reporter.tell_ready(&self.learned.report(&attempt));
        let wished = self.config.links[0].forward.controller;
        self.reporter.compare_controllers(wished);
        if self.packet_road().has_device() {
            self.reporter.compare_packets();
        }
        if let Some(sle) = self.sle() {
            sle.on_ready(&attempt);
        }
        self.packet_road().on_ready(&attempt);
        self.published.ask(id);
        self.tell_reach();
    }

    fn on_lost(&self, id: ConnectionId, (told, failure): (Told, Failure), reason: &str) {
        let lost = self.tunnels.state_mut().on_lost(id);
        match lost {
            Lost::Challenger => self
                .schedule
                .tell(|retry, now| retry.on_failed(now, failure)),
            Lost::Tunnel { next } => {
                self.learned.paths().tunnel_ended();
                self.unready(next, reason, failure == Failure::Replaced);
            }
            Lost::Attempt(attempt) => {
                self.packet_road().on_failed(&attempt);
                self.schedule
                    .tell(|retry, now| retry.on_failed(now, failure));
                self.reporter.tell_of(attempt.server, told, reason);
            }
            Lost::Leaving => self.schedule.tell(Retry::on_changed),
            Lost::Unknown => {}
        }
        self.schedule.wake();
    }

    /// The tunnel is no more; `next` was ready beside it and follows.
    fn unready(&self, next: Option<Attempt>, reason: &str, replaced: bool) {
        self.published.forget();
        if let Some(sle) = self.sle() {
            sle.on_lost();
        }
        self.packet_road().on_lost();
        if let Some(next) = next {
            return self.install(next);
        }
        let lasted = self.reporter.lasted();
        self.schedule
            .tell(|retry, now| retry.on_lost(now, lasted, replaced));
        let told = if replaced {
            Told::Refused
        } else {
            Told::Trying
        };
        self.reporter.tell_down(told, reason);
        self.schedule.wake();
        self.tell_reach();
    }

    /// Makes attempts while a tunnel is wanted; never ends.
    pub(crate) async fn keep_up(&self) {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.is_stopped() {
                self.schedule.woken().await;
                continue;
            }
            match self.connector.poll() {
                Step::Start(start) => {
                    if self.connector.start(start, || self.is_stopped()).await {
                        // The rules must leave this address alone, too.
                        self.tell_reach();
                    }
                }
                Step::Unanswered => self.connector.tell_unanswered(),
                Step::GiveUp { answered } => self.connector.give_up(answered),
                Step::Wait(until) => self.wait(until, &mut tick).await,
            }
        }
    }

    async fn wait(&self, until: Option<Instant>, tick: &mut Interval) {
        let due = async {
            match until {
                Some(until) => sleep_until(until.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.schedule.woken() => {}
            _ = tick.tick() => {
                silence::watch(self);
                if !self.carries() {
                    self.connector.look_around().await;
                }
            }
        }
    }

    /// Waits for the engine to use up its allowance, and acts; never ends.
    pub(crate) async fn watch_allowance(&self) {
        loop {
            self.shard().until_spent().await;
            self.look_at_meter();
        }
    }

    /// Stops where the bytes are used up, goes on when a new period begins.
    fn look_at_meter(&self) {
        let look = self.meter.borrow_mut().look(self.shard());
        if look.resumes {
            tracing::info!(target: crate::events::STATE, "a new period of [metering] begins");
            self.schedule.tell(Retry::on_wanted);
            self.schedule.wake();
            self.tell_reach();
        }
        if let Some(why) = look.stops {
            tracing::error!("{why}");
            self.schedule.tell(|retry, _| retry.on_quiet());
            self.close();
            self.reporter.on_stopped(why);
            self.tell_reach();
        }
    }

    /// Looks whether this machine has slept: then the server is asked whether it still has the tunnel before anything else is opened in
    /// it, and no pause between attempts goes on.
    pub(super) fn look_for_sleep(&self) {
        let Some(slept) = self.tunnels.doubt_after_sleep() else {
            return;
        };
        tracing::info!(
            target: crate::events::STATE,
            "this machine has slept for {} s: connections wait until the server answers",
            slept.as_secs()
        );
        self.schedule.tell(Retry::on_changed);
        self.schedule.wake();
        self.tell_reach();
    }

    /// Keeps the figures of `status` fresh; never ends.
    pub(crate) async fn sample(&self) {
        let mut tick = interval(SAMPLE);
        loop {
            tick.tick().await;
            self.look_for_sleep();
            process::tell_of_connections();
            self.learned.learn_path();
            if self.tunnels.ready().is_some() {
                self.learned.measure_link();
            }
            if let Some(sle) = self.sle() {
                sle.tick();
            }
            if let Some(les) = self.packet_road().les()
                && les.tick()
            {
                self.tell_reach();
            }
            if let Some(pages) = self.pages() {
                pages.tick();
            }
            self.look_at_meter();
            self.shard().share_memory();
            self.reporter.sample();
        }
    }
}
