//! What the session tells its operator: one log line for each change of state, and `status`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_congestion::Kind as ControllerKind;
use bentpipe_proto::tunnel::CloseCode;
use quinn_proto::ConnectionError;

use super::tunnels::Tunnels;
use crate::events;
use crate::process;
use crate::sampler::{Sampler, refused};
use crate::status::{self, PacketKinds as Carried, Tunnel, TunnelState};
use bentpipe_tunnel::engine::identity::{self, PublicKey};
use bentpipe_tunnel::engine::{Connection, Engine};
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
struct News {
    told: Told,
    since: Instant,
    last_error: Option<String>,
    /// Lines of this kind and server are in the log since there was a tunnel.
    logged: Vec<(Told, usize)>,
}

impl News {
    /// Nothing was told until `now`.
    fn new(now: Instant) -> Self {
        Self {
            told: Told::Nothing,
            since: now,
            last_error: None,
            logged: Vec::new(),
        }
    }

    /// Time for which the state has lasted.
    fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// State of the session, and the time since which it holds. A tunnel may be `silent` since some time; `stopped`: none is
    /// wanted.
    fn state(&self, stopped: bool, silent: Option<Instant>) -> (TunnelState, Instant) {
        let state = match (stopped, silent) {
            (true, _) => TunnelState::Draining,
            (false, Some(_)) => TunnelState::Silent,
            (false, None) => state_of(self.told),
        };
        (state, silent.unwrap_or(self.since))
    }

    /// The client has stopped by itself, and says why.
    fn on_stopped(&mut self, now: Instant, why: String) {
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

/// Reporter of the session's state: to the log when it changes, to `status` when that is asked for.
pub(super) struct Reporter {
    tunnels: Rc<Tunnels>,
    /// News that the operator was told.
    news: RefCell<News>,
    sampler: RefCell<Sampler>,
    latest: RefCell<status::Session>,
}

impl Reporter {
    /// Nothing was told yet.
    pub(super) fn new(tunnels: Rc<Tunnels>) -> Self {
        let now = process::now();
        Self {
            tunnels,
            news: RefCell::new(News::new(now)),
            sampler: RefCell::new(Sampler::new(now)),
            latest: RefCell::default(),
        }
    }

    /// Time for which the state has lasted.
    pub(super) fn lasted(&self) -> Duration {
        self.news.borrow().lasted(process::now())
    }

    /// The client has stopped by itself, and says why.
    pub(super) fn on_stopped(&self, why: String) {
        self.news.borrow_mut().on_stopped(process::now(), why);
        self.sample();
    }

    /// Logs that there is a new tunnel, which crosses `link`; its figures begin.
    pub(super) fn tell_ready(&self, link: &status::LinkClass) {
        *self.sampler.borrow_mut() = Sampler::new(process::now());
        let text = format!("{}; link {link}", self.details().unwrap_or_default());
        self.tell(Told::Ready, &text);
        // The figures are the new tunnel's from its first moment.
        self.sample();
    }

    /// Logs why the tunnel is no more; nothing is shown as its figures any longer.
    pub(super) fn tell_down(&self, told: Told, reason: &str) {
        self.tell(told, reason);
        self.sample();
    }

    /// Facts about the tunnel's server and connection.
    fn details(&self) -> Option<String> {
        self.tunnels.look(|connection| {
            let hello = connection.tunnel.agreement().remote()?;
            let exchange = identity::key_exchange(connection.quic()).unwrap_or("unknown");
            let rtt = connection.rtt().0.as_millis();
            let resumed = connection
                .resumed()
                .map(|saved| format!(", resumed at {}", status::rate(saved.rate.as_u64())));
            Some(format!(
                "{} at {}{}, RTT {rtt} ms, {exchange}{}",
                printable(&hello.agent),
                connection.peer(),
                if connection.is_on_reliable_wire() {
                    " over TLS"
                } else {
                    ""
                },
                resumed.unwrap_or_default()
            ))
        })
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
    pub(super) fn compare_controllers(&self, wished: Option<ControllerKind>) {
        let used = self.tunnels.look(|connection| {
            // Over TLS the controller is the wire's, not the operator's.
            if connection.is_on_reliable_wire() {
                return None;
            }
            let hello = connection.tunnel.agreement().remote()?;
            hello.forward.controller.clone()
        });
        if let (Some(used), Some(wished)) = (used, wished)
            && used != wished.name()
        {
            let used = printable(used);
            tracing::warn!("the server uses {used} on the forward link; it does not know {wished}");
        }
    }

    /// Says which address families the server reaches from now on.
    pub(super) fn tell_families(&self) {
        let families = status::Families::from(self.tunnels.families());
        tracing::info!("the server reaches {families}");
    }

    /// Says so if not all crosses that is no TCP.
    pub(super) fn compare_packets(&self) {
        let carried = |connection: &Connection| {
            let kinds = connection.tunnel.agreement().remote()?.carried;
            Some(
                connection
                    .tunnel
                    .agreement()
                    .carries_packets()
                    .then_some(kinds),
            )
        };
        let kinds = self.tunnels.look(carried);
        let lack = kinds.and_then(|kinds| kinds.map_or(Carried::None, Carried::from).lack());
        if let Some(lack) = lack {
            tracing::warn!("{lack}");
        }
    }

    /// Takes the figures of the tunnel; to be called once a second.
    pub(super) fn sample(&self) {
        let now = process::now();
        let Some(id) = self.tunnels.ready() else {
            return at_rest(&mut self.latest.borrow_mut());
        };
        let mut sampler = self.sampler.borrow_mut();
        let sampled = self.tunnels.look_at(id, |connection| {
            sampler.tell_of_shed(now, connection, "");
            let session = sampler.sample(now, connection, TunnelState::Ready);
            Some((session, connection.remote()))
        });
        if let Some((mut sampled, remote)) = sampled {
            if let Some(receiving) = &mut sampled.tunnel.receiving {
                receiving.blocked_ratio = self.tunnels.shard().blocked_ratio(remote);
            }
            *self.latest.borrow_mut() = sampled;
        }
    }

    /// Figures that are sums over all tunnels: one epoch for all of them, the start of the client. The number of flows is of the same
    /// moment: a flow that has just been opened is not one that has ended.
    fn fill_totals(&self, session: &mut status::Session) {
        let active = |connection: &Connection| Some(connection.tunnel.flow_count() as u64);
        if let Some(active) = self.tunnels.look(active) {
            session.flows.active = active;
        }
        let totals = self.tunnels.shard().peek(Engine::totals);
        session.ledger_bytes = Some(totals.ledger);
        session.flows.opened_total = totals.flows.opened;
        session.flows.refused_total = totals.flows.refused;
        session.flows.refused = refused(&totals.flows.refusals);
        session.flows.shed_total = totals.flows.shed;
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

    /// The part of `status` about tunnels and bytes; `stopped`: no tunnel is wanted.
    pub(super) fn status(&self, stopped: bool) -> status::Session {
        let mut session = self.latest.borrow().clone();
        let now = process::now();
        let seconds = |since| now.saturating_duration_since(since).as_secs();
        let news = self.news.borrow();
        let (state, since) = news.state(stopped, self.tunnels.silent_since());
        session.tunnel.state = state;
        session.tunnel.since_s = seconds(since);
        let heard = self.tunnels.ready().and_then(|id| self.tunnels.heard(id));
        session.tunnel.last_heard_s = heard.map(seconds);
        session.tunnel.last_error.clone_from(&news.last_error);
        if state == TunnelState::Silent {
            session.tunnel.last_error = self.tunnels.own_fault();
        }
        self.fill_totals(&mut session);
        session
    }
}

/// Explains the end of a connection to the operator; `own` is this client's key. Only a peer that has `proven` the server's key is believed: whoever
/// sees an Initial packet can answer it.
pub(super) fn explain(reason: &ConnectionError, proven: bool, own: &PublicKey) -> (Told, String) {
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
            own
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

/// Takes from the last figures of a tunnel that has ended what nothing has any more.
fn at_rest(last: &mut status::Session) {
    last.tunnel = Tunnel::default();
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
    #[expect(
        clippy::disallowed_methods,
        reason = "one base instant; all else is virtual"
    )]
    fn what_matters_most_is_the_state() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut news = News::new(start);
        assert_eq!(news.state(false, None), (TunnelState::Connecting, start));
        news.on_told(at(2), Told::Unanswered, "no answer");
        assert_eq!(news.state(false, None), (TunnelState::Connecting, start));
        news.on_told(at(5), Told::Ready, "a server");
        assert_eq!(news.state(false, None), (TunnelState::Ready, at(5)));
        let silent = news.state(false, Some(at(9)));
        assert_eq!(silent, (TunnelState::Silent, at(9)));
        assert_eq!(news.state(true, Some(at(9))).0, TunnelState::Draining);
        assert_eq!(news.state(true, None), (TunnelState::Draining, at(5)));
        news.on_told(at(20), Told::Refused, "another key");
        assert_eq!(news.state(false, None), (TunnelState::Refused, at(20)));
    }

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
