//! News of the engine about the client's connections, and what follows: one becomes the tunnel, one is lost, another takes its place.

use bentpipe_proto::tunnel::{CloseCode, LesBody, LesKind};

use super::Session;
use crate::client::connections::{Attempt, Lost, Ready};
use crate::client::report::{self, Told, is_replaced};
use crate::client::retry::{Failure, Retry};
use crate::process;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{Connection, ConnectionId, ConnectionNotice, Engine, Event};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::TunnelEvent;

impl Session {
    /// Takes the engine's news about connections.
    pub(crate) fn on_event(&self, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected | ConnectionNotice::UnknownKey(..) => {}
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.on_ready(id),
            ConnectionNotice::Tunnel(TunnelEvent::Goaway) => {
                let lost = self.tunnels.state_mut().on_goaway(id);
                if let Lost::Tunnel { next } = lost {
                    // Open flows may finish; new ones wait for a server that stays.
                    self.unready(next, "the server is stopping", false);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Packets) => {
                self.packet_road.on_packets(id);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Families) => {
                if self.tunnels.ready() == Some(id) {
                    self.reporter.tell_families();
                    self.tell_reach();
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::SleEpoch(epoch, _)) => {
                if let Some(sle) = &self.ways.sle {
                    sle.on_epoch(id, epoch);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Les(kind, body)) => self.on_les(id, kind, &body),
            ConnectionNotice::Tunnel(TunnelEvent::Published(entry, code)) => {
                if self.tunnels.ready() == Some(id) {
                    self.published.on_answer(entry, code);
                }
            }
            ConnectionNotice::Tunnel(
                TunnelEvent::Opened(..)
                | TunnelEvent::Inbound(..)
                | TunnelEvent::Segments(_)
                | TunnelEvent::Publish(_)
                | TunnelEvent::Flow(_)
                | TunnelEvent::Query(..)
                | TunnelEvent::Answer(..)
                | TunnelEvent::Enrol(_),
            ) => {}
            ConnectionNotice::Tunnel(TunnelEvent::Enrolled(code, at)) => {
                self.connector.on_enrolled(id, code, at);
            }
            ConnectionNotice::Outage(outage) => {
                if self.tunnels.state_mut().on_outage(id, outage) {
                    self.tell_reach();
                }
            }
            ConnectionNotice::Unreachable(said) => self.connector.on_unreachable(id, said),
            ConnectionNotice::Fault(fault) => {
                self.on_lost(id, (Told::Trying, Failure::Broken), &printable(fault));
            }
            ConnectionNotice::Lost(reason) => {
                let trusts = |engine: &Engine| engine.peek(id).is_some_and(Connection::trusts_last);
                let proven = self.tunnels.shard().peek(trusts);
                if proven
                    && identity::is_unknown_client(&reason)
                    && self.connector.turns_to_enrolment(id)
                {
                    return;
                }
                let (told, text) = report::explain(&reason, proven, self.servers.own_key());
                let failure = match told {
                    Told::Refused if is_replaced(&reason) => Failure::Replaced,
                    Told::Refused => Failure::Refused,
                    _ => Failure::Broken,
                };
                self.on_lost(id, (told, failure), &text);
            }
        }
    }

    /// Takes a message of LES; a server that breaks its rules loses the tunnel.
    fn on_les(&self, id: ConnectionId, kind: LesKind, body: &LesBody) {
        let Some(les) = self.packet_road.les() else {
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
            Ready::Unwanted => self.tunnels.close(id),
            Ready::Enrols => self.connector.name_own_key(id),
            Ready::Tunnel(attempt) => self.install(attempt),
            Ready::Beside(attempt) => self.challenge(attempt),
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
        if self.packet_road.has_device() {
            self.reporter.compare_packets();
        }
        if let Some(sle) = &self.ways.sle {
            sle.on_ready(&attempt);
        }
        self.packet_road.on_ready(&attempt);
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
        if let Some(sle) = &self.ways.sle {
            sle.on_lost();
        }
        self.packet_road.on_lost();
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
        self.reporter.tell(told, reason);
        self.schedule.wake();
        self.tell_reach();
    }
}
