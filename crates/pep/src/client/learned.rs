//! What the client has learned of the paths to its servers and of their links, for the next connection over the same path.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_congestion::paths::PathKey;

use super::connections::Attempt;
use super::link::{Choice, LinkMeter, Seen};
use super::memory::ClientMemory;
use super::tunnels::Tunnels;
use crate::config::{ClientConfig, Role};
use crate::paths::PathMemory;
use crate::process;
use crate::status;
use bentpipe_tunnel::engine::Connection;

/// Age from which what was learned has been taken in already.
const FRESH: Duration = Duration::from_secs(5);

/// Knowledge of paths and links.
pub(super) struct Learned {
    config: Rc<ClientConfig>,
    tunnels: Rc<Tunnels>,
    links: RefCell<ClientMemory<Seen>>,
    /// Meter of what the tunnel shows of its link.
    meter: RefCell<LinkMeter>,
    paths: PathMemory,
    /// Networks on which UDP did not pass the last time: true.
    tls: RefCell<ClientMemory<bool>>,
}

impl Learned {
    /// What earlier runs have left in the state directory.
    pub(super) fn load(config: Rc<ClientConfig>, tunnels: Rc<Tunnels>) -> Self {
        Self {
            links: RefCell::new(ClientMemory::load(
                &config.state_dir,
                "links.json",
                "the link",
            )),
            meter: RefCell::default(),
            paths: PathMemory::load(&config.state_dir, Role::Client),
            tls: RefCell::new(ClientMemory::load(
                &config.state_dir,
                "wires.json",
                "whether UDP passes",
            )),
            config,
            tunnels,
        }
    }

    /// Memory of paths.
    pub(super) fn paths(&self) -> &PathMemory {
        &self.paths
    }

    fn path(&self, server: usize, source: Option<IpAddr>) -> Option<PathKey> {
        let server = self.config.servers[server].public_key;
        Some(PathKey::new(&server.to_string(), source?))
    }

    /// Chooses what to take the link to a server for.
    pub(super) fn choose(&self, server: usize, source: Option<IpAddr>) -> Choice {
        let path = self.path(server, source);
        let seen = path.and_then(|path| self.links.borrow().get(&path.to_string()));
        Choice::new(&self.config.links[0], seen)
    }

    /// True if UDP did not pass to a server from our address `source` the last time.
    pub(super) fn wants_tls(&self, server: usize, source: Option<IpAddr>) -> bool {
        let path = self.path(server, source);
        let known = path.and_then(|path| self.tls.borrow().get(&path.to_string()));
        known.unwrap_or(false)
    }

    /// Remembers whether the path of `attempt` lets UDP pass, or only TLS.
    pub(super) fn remember_wire(&self, attempt: &Attempt, tls: bool) {
        if let Some(path) = self.path(attempt.server, attempt.source)
            && (tls || self.wants_tls(attempt.server, attempt.source))
        {
            self.tls.borrow_mut().put(&path.to_string(), tls);
        }
    }

    /// Begins the connection of an attempt with what is known of its path.
    pub(super) fn resume(&self, attempt: &Attempt, connection: &mut Connection) {
        if let Some(path) = self.path(attempt.server, attempt.source) {
            self.paths.resume(&path, process::now(), connection);
        }
    }

    /// Measures the link of a new tunnel, of which nothing was seen yet.
    pub(super) fn begin(&self) {
        *self.meter.borrow_mut() = LinkMeter::default();
    }

    /// The link that `attempt` crosses, as it was chosen and is measured.
    pub(super) fn report(&self, attempt: &Attempt) -> status::LinkClass {
        attempt.choice.report(self.meter.borrow().seen())
    }

    /// Looks at the tunnel's RTT and remembers the link if that shows something new.
    pub(super) fn measure_link(&self) {
        let winner = self.tunnels.state().winner();
        let Some(attempt) = winner else {
            return;
        };
        let rtt = self.tunnels.look_at(attempt.id, |it| Some(it.rtt()));
        let Some((smoothed, least)) = rtt else {
            return;
        };
        let mut meter = self.meter.borrow_mut();
        meter.look(process::now(), least, smoothed);
        let path = self.path(attempt.server, attempt.source);
        let Some((path, seen)) = path.zip(meter.seen()) else {
            return;
        };
        let known = self.links.borrow().get(&path.to_string());
        if let Some(news) = attempt.choice.news(seen, known)
            && process::source_towards(attempt.address) == attempt.source
        {
            self.links.borrow_mut().put(&path.to_string(), news);
        }
    }

    /// Takes in what the tunnel shows of its path, unless we have moved to another network meanwhile.
    pub(super) fn learn_path(&self) {
        let winner = self.tunnels.state().winner();
        let Some(attempt) = winner else {
            return;
        };
        let now = process::now();
        let saved = self.tunnels.look_at(attempt.id, |it| it.saved(now));
        if let Some(saved) = saved.filter(|saved| saved.age < FRESH)
            && process::source_towards(attempt.address) == attempt.source
            && let Some(path) = self.path(attempt.server, attempt.source)
        {
            self.paths.learn(path, &saved);
        }
    }
}
