//! What the session tells its operator: one log line for each change of state, and `status`.

use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{CloseCode, PacketKinds};
use quinn_proto::ConnectionError;
use tokio::time::interval;

use super::session::Session;
use crate::events;
use crate::process;
use crate::sampler::refused;
use crate::status::{self, TunnelState};
use bentpipe_tunnel::engine::{ConnectionId, Engine, identity};
use bentpipe_tunnel::text::printable;

/// State that the log was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    Ready,
    /// The tunnel is down, or an attempt failed.
    Trying,
    /// An attempt is not answered.
    Unanswered,
    Refused,
}

/// News that the operator was told of the tunnel, and the time since which they hold.
#[derive(Debug)]
pub(super) struct News {
    told: Told,
    since: Instant,
    last_error: Option<String>,
    /// Lines of this kind and server are in the log since there was a tunnel.
    logged: Vec<(Told, usize)>,
}

impl News {
    /// Nothing was told until `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            told: Told::Nothing,
            since: now,
            last_error: None,
            logged: Vec::new(),
        }
    }

    /// Time for which the state has lasted.
    pub(super) fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// The client has stopped by itself, and says why.
    pub(super) fn on_stopped(&mut self, now: Instant, why: String) {
        self.last_error = Some(why);
        self.told = Told::Nothing;
        self.since = now;
    }

    /// The operator is told of the tunnel, or why there is none.
    fn on_told(&mut self, now: Instant, told: Told, text: &str) {
        let before = std::mem::replace(&mut self.told, told);
        if state_of(before) != state_of(told) || told == Told::Ready {
            self.since = now;
        }
        self.last_error = (told != Told::Ready).then(|| text.to_owned());
        if told == Told::Ready {
            self.logged.clear();
        }
    }

    /// An attempt at `server` has failed for this reason; false if a line of its kind is in the log.
    fn is_new(&mut self, server: usize, told: Told, why: &str) -> bool {
        let is_new = !self.logged.contains(&(told, server));
        if is_new {
            self.logged.push((told, server));
        } else {
            self.last_error = Some(why.to_owned());
            self.told = told;
        }
        is_new
    }
}

impl Session {
    /// Explains the end of a connection to the operator. Only a peer that has `proven` the server's key is believed: whoever
    /// sees an Initial packet can answer it.
    pub(super) fn explain(&self, reason: &ConnectionError, proven: bool) -> (Told, String) {
        let closed = |reason: &ConnectionError| {
            use ConnectionError::{ApplicationClosed, ConnectionClosed};
            matches!(reason, ConnectionClosed(_) | ApplicationClosed(_))
        };
        if closed(reason) && !proven {
            let text = format!(
                "something at the server's address, or on the way, closes connections without having shown the server's \
                 key: {}",
                printable(reason)
            );
            return (Told::Trying, text);
        }
        if identity::is_unknown_client(reason) {
            let mend = format!(
                "the server does not know this client; add a [[client]] with public_key = \"{}\" to its configuration",
                self.public_key
            );
            return (Told::Refused, mend);
        }
        if identity::is_wrong_server(reason) {
            let mend = "the server shows another key than `public_key` in [server]: put in what `bentpipe pubkey` \
                        prints for the server's key file, or find out who answers there";
            return (Told::Refused, mend.to_owned());
        }
        if is_replaced(reason) {
            let mend = "another process has connected with this client's key; give every client a key of its own";
            return (Told::Refused, mend.to_owned());
        }
        (Told::Trying, printable(reason))
    }

    /// Logs a change of state of the tunnel.
    pub(super) fn tell(&self, told: Told, text: &str) {
        self.news.borrow_mut().on_told(process::now(), told, text);
        match told {
            Told::Ready => tracing::info!(target: events::STATE, "ready: tunnel to {text}"),
            Told::Trying => tracing::warn!("tunnel is down, trying: {text}"),
            Told::Unanswered => tracing::warn!("{text}"),
            Told::Refused => tracing::error!("{text}; trying on"),
            Told::Nothing => {}
        }
    }

    /// Logs what came of an attempt at a server: once for each kind until there is a tunnel.
    pub(super) fn tell_of(&self, server: usize, told: Told, text: &str) {
        if self.tunnels.ready().is_some() {
            // The silence of the present tunnel is what matters.
            return tracing::debug!("{text}");
        }
        let is_new = self.news.borrow_mut().is_new(server, told, text);
        if is_new {
            self.tell(told, text);
        }
    }

    /// Says so if the server sends with another controller than it was asked to.
    pub(super) fn compare_controllers(&self, id: ConnectionId) {
        let used = self.tunnels.shard().peek(|engine| {
            let hello = engine.peek(id)?.tunnel.remote()?;
            hello.forward.controller.clone()
        });
        let wished = self.config.links[0].forward.controller;
        if let (Some(used), Some(wished)) = (used, wished)
            && used != wished.name()
        {
            let used = printable(used);
            tracing::warn!("the server uses {used} on the forward link; it does not know {wished}");
        }
    }

    /// Says which address families the server reaches from now on.
    pub(super) fn tell_families(&self) {
        let families = status::Families::from(self.families());
        tracing::info!("the server reaches {families}");
    }

    /// Says so if all but TCP was to cross, and not all does.
    pub(super) fn compare_packets(&self, id: ConnectionId) {
        let carried = |engine: &Engine| {
            let tunnel = &engine.peek(id)?.tunnel;
            let kinds = tunnel.remote()?.carried;
            Some(tunnel.carries_packets().then_some(kinds))
        };
        if !self.has_device() {
            return;
        }
        match self.tunnels.shard().peek(carried) {
            Some(None) => {
                tracing::warn!("the server carries TCP only: UDP, ICMP and all else are dropped");
            }
            Some(Some(PacketKinds::Sockets)) => {
                tracing::warn!("the server carries TCP, UDP and ping only: all else is refused");
            }
            Some(Some(PacketKinds::Udp)) => {
                tracing::warn!(
                    "the server carries TCP and UDP only: ping and all else are refused"
                );
            }
            Some(Some(PacketKinds::All)) | None => {}
        }
    }

    /// Keeps the figures of `status` fresh; never ends.
    pub(crate) async fn sample(&self) {
        let mut tick = interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            self.learn_path();
            if self.tunnels.ready().is_some() {
                self.measure_link();
            }
            self.look_at_meter();
            self.tunnels.shard().share_memory();
            let now = process::now();
            if let Some(id) = self.tunnels.ready() {
                let sampled = self.tunnels.shard().peek(|engine| {
                    let connection = engine.peek(id)?;
                    Some(
                        self.sampler
                            .borrow_mut()
                            .sample(now, connection, TunnelState::Ready),
                    )
                });
                if let Some(sampled) = sampled {
                    *self.latest.borrow_mut() = sampled;
                }
            } else {
                at_rest(&mut self.latest.borrow_mut());
            }
        }
    }

    /// Figures that are sums over all tunnels: one epoch for all of them, the start of the client.
    fn fill_totals(&self, session: &mut status::Session) {
        let totals = self.tunnels.shard().peek(Engine::totals);
        session.ledger_bytes = Some(totals.ledger);
        session.flows.opened_total = totals.flows.opened;
        session.flows.refused_total = totals.flows.refused;
        session.flows.refused = refused(&totals.flows.refusals);
        session.bytes = status::Volumes {
            lan_in: totals.flows.lan_in,
            lan_out: totals.flows.lan_out,
            wire_in: totals.ledger.received.udp(),
            wire_out: totals.ledger.sent.udp(),
        };
        if let Some(packets) = &mut session.packets {
            packets.count(&totals.packets);
        }
    }

    /// The client's part of `status`.
    pub(crate) fn status(&self) -> status::Session {
        let mut session = self.latest.borrow().clone();
        let now = process::now();
        let seconds = |since| now.saturating_duration_since(since).as_secs();
        let silent = self.tunnels.silent_since();
        let news = self.news.borrow();
        session.tunnel.state = match news.told {
            _ if self.is_stopped() => TunnelState::Draining,
            _ if silent.is_some() => TunnelState::Silent,
            told => state_of(told),
        };
        session.tunnel.since_s = seconds(silent.unwrap_or(news.since));
        let heard = self.tunnels.ready().and_then(|id| self.tunnels.heard(id));
        session.tunnel.last_heard_s = heard.map(seconds);
        let next = self.retry.borrow().next().filter(|_| !self.is_stopped());
        session.tunnel.next_attempt_s =
            next.map(|next| next.saturating_duration_since(now).as_secs());
        session.tunnel.last_error.clone_from(&news.last_error);
        let winner = self.tunnels.state().winner();
        session.tunnel.link = winner.map(|tunnel| {
            let measured = self.meter.borrow().seen();
            tunnel.choice.report(measured)
        });
        session.flows.waiting = self.waiting.get();
        self.fill_totals(&mut session);
        session.metering = self.metering();
        session.publish = self.published.report();
        session.associations = self.front().socks5.as_ref().map(|_| self.relays.report());
        if let Some(device) = self.device.get() {
            let packets = session.packets.get_or_insert_default();
            packets.dropped.no_tunnel = device.without_tunnel();
            let routes = self.routes.borrow();
            // What the server routes and this client does not want is not let in.
            packets.routed.clone_from(&routes.routed);
            packets.unrouted.clone_from(&routes.refused);
        }
        session.memory.ceiling = self.config.memory.as_u64();
        let peer = &self.config.servers[0].address;
        session.tunnel.peer.get_or_insert_with(|| peer.to_string());
        session
    }
}

/// Takes from the last figures of a tunnel that has ended what nothing has any more.
fn at_rest(last: &mut status::Session) {
    last.tunnel.send_rate_bit_s = 0;
    last.tunnel.recv_rate_bit_s = 0;
    last.tunnel.rtt_ms = None;
    last.flows.active = 0;
    last.memory.used = 0;
}

/// The state that `status` shows.
const fn state_of(told: Told) -> TunnelState {
    match told {
        Told::Ready => TunnelState::Ready,
        Told::Refused => TunnelState::Refused,
        Told::Trying | Told::Unanswered | Told::Nothing => TunnelState::Connecting,
    }
}

/// True if the server closed the connection for a newer one of another process with our key.
pub(super) fn is_replaced(reason: &ConnectionError) -> bool {
    let replaced = |code: u64| code == CloseCode::Replaced.code();
    matches!(reason, ConnectionError::ApplicationClosed(close) if replaced(close.error_code.into_inner()))
}

#[cfg(test)]
mod tests {
    use quinn_proto::{ApplicationClose, VarInt};

    use super::*;

    #[test]
    fn only_a_takeover_is_one() {
        let closed = |code: CloseCode| {
            ConnectionError::ApplicationClosed(ApplicationClose {
                error_code: VarInt::from_u64(code.code()).expect("codes are small"),
                reason: bytes::Bytes::new(),
            })
        };
        assert!(is_replaced(&closed(CloseCode::Replaced)));
        assert!(!is_replaced(&closed(CloseCode::Shutdown)));
        assert!(!is_replaced(&ConnectionError::TimedOut));
    }
}
