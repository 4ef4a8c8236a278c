//! The tunnel to the other PEP: one of the two connects and does so again, the other takes what comes.

mod attending;
mod dialing;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_congestion::paths::PathKey;
use bentpipe_proto::tunnel::CloseCode;
use quinn_proto::crypto::ClientConfig;
use tokio::sync::Notify;

use super::redial::Redial;
use super::silence::Silence;
use crate::config::{MeetingPlace, PepConfig, Role, ServerAddress};
use crate::events;
use crate::keys::PrivateKey;
use crate::net::lookup::Lookups;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::sampler::Sampler;
use crate::shard::Shard;
use crate::status::{self, TunnelState};
use crate::throttle::Throttle;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{Connection, ConnectionId, ConnectionNotice, Event, Unreachable};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::TunnelEvent;

/// Reasons for the lack of a tunnel of which the log is told each once, until there is one.
const MAX_REASONS: usize = 16;

/// News of the tunnel for the relays.
pub(super) enum PeerNews {
    None,
    /// The tunnel stands.
    Up,
    /// A connection is over, and its streams with it.
    Lost(ConnectionId),
}

/// State of the link.
struct LinkState {
    /// Connection that carries flows.
    tunnel: Option<ConnectionId>,
    /// Connection that is to become the tunnel.
    attempt: Option<ConnectionId>,
    redial: Redial,
    sampler: Sampler,
    /// Instant at which the tunnel ended, or the process began.
    since: Instant,
    last_error: Option<String>,
    /// Reasons for the lack of a tunnel that the log was told since there was one.
    told: BTreeSet<String>,
    silence: Silence,
    /// Attempt of which the network, or this machine's kernel, has said why it is not answered.
    explained: Option<(ConnectionId, Unreachable)>,
    stopping: bool,
}

/// The link to the other PEP.
pub(super) struct PeerLink {
    config: Rc<PepConfig>,
    shard: Rc<Shard>,
    /// The socket takes addresses of IPv4 in their IPv6 form.
    dual_stack: bool,
    /// TLS and address, at the PEP that connects.
    dials: Option<(Arc<dyn ClientConfig>, ServerAddress)>,
    lookups: Lookups,
    state: RefCell<LinkState>,
    /// Throttle of the line about others who knock.
    strangers: Throttle,
    changed: Notify,
    paths: PathMemory,
}

impl PeerLink {
    /// Link that is not up yet.
    pub(super) fn new(
        config: Rc<PepConfig>,
        key: &PrivateKey,
        key_log: Option<Arc<dyn rustls::KeyLog>>,
        (shard, dual_stack): (Rc<Shard>, bool),
    ) -> Result<Self, RunError> {
        let dials = match &config.peer.meeting {
            MeetingPlace::Here(_) => None,
            MeetingPlace::There(address) => {
                let peer = config.peer.public_key;
                let classical = config.identity.allow_classical;
                let crypto = identity::client_crypto(key, peer, classical, key_log);
                Some((crypto.map_err(RunError::key)?, address.clone()))
            }
        };
        let now = process::now();
        Ok(Self {
            paths: PathMemory::load(&config.state_dir, Role::Pep),
            config,
            shard,
            dual_stack,
            dials,
            lookups: Lookups::default(),
            state: RefCell::new(LinkState {
                tunnel: None,
                attempt: None,
                redial: Redial::new(now),
                sampler: Sampler::new(now),
                since: now,
                last_error: None,
                told: BTreeSet::new(),
                silence: Silence::default(),
                explained: None,
                stopping: false,
            }),
            strangers: Throttle::new(),
            changed: Notify::new(),
        })
    }

    pub(super) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    pub(super) fn paths(&self) -> &PathMemory {
        &self.paths
    }

    /// Connection that carries flows.
    pub(super) fn tunnel(&self) -> Option<ConnectionId> {
        self.state.borrow().tunnel
    }

    /// Path to the other PEP.
    fn path(&self, connection: &Connection) -> PathKey {
        let peer = self.config.peer.public_key.to_string();
        PathKey::new(&peer, connection.peer().ip())
    }

    /// Takes in what the tunnel shows of its path.
    pub(super) fn learn(&self) {
        let now = process::now();
        let Some(id) = self.tunnel() else { return };
        let learned = self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            Some((self.path(connection), connection.saved(now)?))
        });
        if let Some((path, saved)) = learned {
            self.paths.learn(path, &saved);
        }
    }

    /// Takes the engine's news about connections.
    pub(super) fn on_event(&self, event: Event) -> PeerNews {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.on_ready(id),
            ConnectionNotice::Tunnel(TunnelEvent::Goaway) => {
                tracing::info!("the other PEP is stopping: new flows pass untouched");
                PeerNews::None
            }
            ConnectionNotice::Fault(fault) => self.on_over(id, &printable(fault)),
            ConnectionNotice::Lost(reason) => {
                let text = if identity::is_unknown_client(&reason) {
                    "the other PEP does not know this one's key; set what `bentpipe pubkey` prints for it there".to_owned()
                } else if identity::is_wrong_server(&reason) {
                    "the other PEP shows another key than `public_key` of `[peer]`".to_owned()
                } else {
                    printable(reason)
                };
                self.on_over(id, &text)
            }
            ConnectionNotice::UnknownKey(key, address) => {
                let address = process::canonical(address);
                if self.strangers.is_due(process::now()) {
                    tracing::warn!(
                        "{address} shows the key {key}, which is not `public_key` of `[peer]`, and is refused"
                    );
                }
                PeerNews::None
            }
            ConnectionNotice::Unreachable(said) => {
                self.on_unreachable(id, said);
                PeerNews::None
            }
            // Outages that last are told by `attend`.
            ConnectionNotice::Connected
            | ConnectionNotice::Outage(_)
            | ConnectionNotice::Tunnel(_) => PeerNews::None,
        }
    }

    /// The network, or this machine's kernel, says that the other PEP cannot be reached.
    fn on_unreachable(&self, id: ConnectionId, said: Unreachable) {
        let mut state = self.state.borrow_mut();
        let before = state.explained.filter(|(of, _)| *of == id);
        // A firewall of this machine may refuse with an ICMP error of its own as well, which says less.
        let said = before
            .map(|(_, said)| said)
            .filter(|said| said.own_fault().is_some())
            .unwrap_or(said);
        state.explained = Some((id, said));
        drop(state);
        let own = said.own_fault();
        self.tell(&own.unwrap_or_else(|| format!("no answer from the other PEP: {said}")));
    }

    fn on_ready(&self, id: ConnectionId) -> PeerNews {
        let now = process::now();
        let mut state = self.state.borrow_mut();
        let unwanted = self.dials.is_some() && state.attempt != Some(id);
        let before = if unwanted {
            Some(id)
        } else {
            state.attempt = None;
            state.redial.on_ready();
            state.sampler = Sampler::new(now);
            state.last_error = None;
            state.told.clear();
            state.silence.end();
            state.tunnel.replace(id)
        };
        let lacked = now.saturating_duration_since(state.since).as_secs();
        drop(state);
        if unwanted {
            self.close_one(id, CloseCode::NoError);
            return PeerNews::None;
        }
        let told = self.shard.change(id, |connection| {
            if self.dials.is_none() {
                self.paths.resume(&self.path(connection), now, connection);
            }
            let carries = connection.tunnel.agreement().carries_segments();
            (connection.peer(), carries)
        });
        if let Some((address, carries)) = told {
            let address = process::canonical(address);
            let lacked = before
                .is_none()
                .then(|| format!(" after {lacked} s without one"));
            let lacked = lacked.unwrap_or_default();
            tracing::info!(target: events::STATE, %address, "the tunnel to the other PEP is up{lacked}");
            if !carries {
                tracing::warn!("the other end relays no segments: is it a PEP, too?");
            }
        }
        match before {
            // The other PEP is a new process: what it had acknowledged for is lost.
            Some(old) => {
                self.close_one(old, CloseCode::Replaced);
                PeerNews::Lost(old)
            }
            None => PeerNews::Up,
        }
    }

    /// A connection is over.
    fn on_over(&self, id: ConnectionId, reason: &str) -> PeerNews {
        let mut state = self.state.borrow_mut();
        let was_tunnel = state.tunnel == Some(id);
        let was_attempt = state.attempt == Some(id);
        if was_tunnel {
            state.tunnel = None;
            state.since = process::now();
            state.silence.end();
        }
        if was_attempt {
            state.attempt = None;
        }
        let stopping = state.stopping;
        drop(state);
        if (was_tunnel || was_attempt) && !stopping {
            self.fail(reason);
        }
        match was_tunnel {
            true => PeerNews::Lost(id),
            false => PeerNews::None,
        }
    }

    /// No tunnel is up, for `reason`; another attempt follows.
    fn fail(&self, reason: &str) {
        self.state.borrow_mut().redial.on_failed(process::now());
        self.changed.notify_one();
        self.tell(reason);
    }

    /// Tells the log, unless it has been told so since there was a tunnel: attempts may fail for two reasons in turn.
    fn tell(&self, reason: &str) {
        let mut state = self.state.borrow_mut();
        state.last_error = Some(reason.to_owned());
        let new = state.told.len() < MAX_REASONS && state.told.insert(reason.to_owned());
        drop(state);
        if new {
            tracing::warn!(target: events::STATE, "no tunnel to the other PEP, flows pass untouched: {reason}");
        }
    }

    fn close_one(&self, id: ConnectionId, code: CloseCode) {
        let now = process::now();
        self.shard.change(id, |connection| {
            connection.close(now, code.code(), String::new());
        });
    }

    /// No new flows; the other PEP hears of it.
    pub(super) fn drain(&self) {
        self.state.borrow_mut().stopping = true;
        if let Some(id) = self.tunnel() {
            self.shard
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Closes the tunnel.
    pub(super) fn close(&self) {
        self.learn();
        let tunnel = self.state.borrow_mut().tunnel.take();
        if let Some(id) = tunnel {
            self.close_one(id, CloseCode::Shutdown);
        }
        self.paths.tunnel_ended();
    }

    /// The tunnel's part of `status`.
    pub(super) fn report(&self) -> status::Session {
        let now = process::now();
        let mut state = self.state.borrow_mut();
        if let Some(id) = state.tunnel {
            let sampler = &mut state.sampler;
            let sampled = self.shard.peek(|engine| {
                let connection = engine.peek(id)?;
                Some(sampler.sample(now, connection, TunnelState::Ready))
            });
            if let Some(mut session) = sampled {
                // A PEP reaches nobody by itself.
                session.tunnel.families = None;
                self.report_silence(&mut session.tunnel, id, state.silence.since());
                return session;
            }
        }
        let peer = self.dials.as_ref().map(|(_, address)| address.to_string());
        let next = state.redial.next().filter(|_| self.dials.is_some());
        status::Session {
            tunnel: status::Tunnel {
                state: TunnelState::Connecting,
                peer,
                since_s: now.saturating_duration_since(state.since).as_secs(),
                next_attempt_s: next.map(|next| next.saturating_duration_since(now).as_secs()),
                last_error: state.last_error.clone(),
                ..status::Tunnel::default()
            },
            ..status::Session::default()
        }
    }
}
