//! DNS of the LAN: queries over UDP and TCP, to an address of ours or intercepted on their way to a resolver.
//!
//! ```text
//!   udp.rs, tcp.rs ─► Dns ─ proto/dns/forwarder ─┬► tunnel, a stream for each question
//!                                                └► near.rs: name servers of the site
//! ```
//!
//! This module gives the forwarder sockets, the clock and the tunnel; the forwarder decides what is asked and answered.

mod held;
mod near;
mod own;
mod tcp;
mod udp;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_proto::dns::{Config, Forwarder, Room, Scope, Source, Ticket};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep_until;

use super::direct::Decisions;
use crate::client::Session;
use crate::config::{ClientDns, Place, Placed};
use crate::net::listen::{ListenFamilies, listen};
use crate::process::{self, RunError, Sleep};
use crate::status;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::QueryKey;
use held::Held;
use near::Near;

/// Age that the list of this machine's own addresses may have.
const LOCAL_FOR: Duration = Duration::from_secs(5);

/// Query with who asks, and whom.
#[derive(Clone, Copy, Debug)]
struct Question {
    host: IpAddr,
    /// The address that the query was sent to, if it was not sent to a listener of ours.
    resolver: Option<IpAddr>,
}

/// Goal of an answer.
#[derive(Clone)]
enum Asker {
    Udp(udp::UdpAsker),
    Tcp(mpsc::UnboundedSender<Vec<u8>>),
}

/// The terminal's DNS.
pub(crate) struct Dns {
    session: Rc<Session>,
    forwarder: RefCell<Forwarder<Asker>>,
    asked: RefCell<HashMap<(ConnectionId, QueryKey), Ticket>>,
    held: Rc<Held>,
    near: Near,
    sleep: RefCell<Sleep>,
    /// Instant at which the addresses of this machine were last read.
    local_read: Cell<Option<Instant>>,
    /// True if rules go by names, so that answers may have to wait.
    learns: bool,
    /// The forwarder's next timeout may be another.
    changed: Notify,
}

impl Dns {
    /// Listens where `config` says, and for what is intercepted if `intercepts`; the tasks end with their handles.
    pub(super) fn start(
        config: &Placed<ClientDns>,
        intercepts: bool,
        session: &Rc<Session>,
        decisions: &Rc<Decisions>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Result<Rc<Self>, RunError> {
        let learns = !decisions.names().is_empty();
        let forwarder = Config {
            learns,
            ..config.forwarder()
        };
        let dns = Rc::new(Self {
            session: session.clone(),
            forwarder: RefCell::new(Forwarder::new(forwarder)),
            asked: RefCell::default(),
            held: Rc::new(Held::new(decisions)),
            near: Near::new(config, intercepts),
            sleep: RefCell::new(Sleep::new()),
            local_read: Cell::new(None),
            learns,
            changed: Notify::new(),
        });
        for &address in &config.listen {
            let ip = address.ip();
            if ip.is_unspecified() || Scope::of(ip) == Scope::Public {
                tracing::warn!(
                    "{address} answers DNS for everyone who reaches it; [dns] `listen` should be an address of the LAN"
                );
            }
            tasks.push(udp::start(&dns, address, &config.place)?);
            tasks.push(tcp::start(
                &dns,
                listen(address, ListenFamilies::One, &config.place)?,
                false,
            ));
        }
        #[cfg(target_os = "linux")]
        if intercepts {
            for address in super::tproxy::local_addresses(config.port) {
                tasks.push(udp::intercept(&dns, address, &config.place)?);
                let listener = super::tproxy::listener(address, &config.place)?;
                tasks.push(tcp::start(&dns, listener, true));
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = intercepts;
        tasks.push(spawn_local(dns.clone().follow()));
        tasks.push(spawn_local(dns.clone().keep_time()));
        tasks.push(spawn_local(dns.held.clone().teach()));
        Ok(dns)
    }

    /// A message of a host; what is answered at once is returned.
    fn handle(
        self: &Rc<Self>,
        to: Asker,
        asked: Question,
        message: &[u8],
        room: Room,
    ) -> Option<Vec<u8>> {
        let now = process::now();
        let slept = self.sleep.borrow_mut().look();
        let source = Source {
            to: to.clone(),
            host: asked.host,
            router: asked.resolver.and_then(|address| self.near.router(address)),
        };
        let again = self.learns.then(|| to.clone());
        let mut forwarder = self.forwarder.borrow_mut();
        if let Some(slept) = slept {
            forwarder.on_slept(now, slept);
        }
        let mut answer = forwarder.handle_query(now, source, message, room);
        if answer.is_none() {
            self.session.want();
        }
        if let Some(asker) = again
            && let Some(answer) = answer.take()
        {
            self.give(&mut forwarder, vec![(asker, answer)]);
        }
        drop(forwarder);
        // Also after an answer from the cache: what hosts ask next may cross already.
        self.pump();
        answer
    }

    /// The tunnel's answer to a question.
    pub(crate) fn on_answer(
        self: &Rc<Self>,
        id: ConnectionId,
        query: QueryKey,
        message: Option<Bytes>,
    ) {
        let ticket = self.asked.borrow_mut().remove(&(id, query));
        if let Some(ticket) = ticket {
            self.settle(ticket, message.as_deref());
        }
    }

    /// Takes what the tunnel or a name server of the site says.
    fn settle(self: &Rc<Self>, ticket: Ticket, message: Option<&[u8]>) {
        let now = process::now();
        let mut forwarder = self.forwarder.borrow_mut();
        let read = self.local_read.get();
        if read.is_none_or(|read| now.saturating_duration_since(read) > LOCAL_FOR) {
            self.local_read.set(Some(now));
            forwarder.set_local(near::local());
        }
        forwarder.handle_answer(now, ticket, message);
        drop(forwarder);
        self.pump();
    }

    /// The figures of `status`.
    pub(crate) fn status(&self) -> status::Dns {
        let forwarder = self.forwarder.borrow();
        let (stats, (entries, bytes)) = (forwarder.stats(), forwarder.size());
        status::Dns {
            queries_total: stats.queries,
            local_total: stats.local,
            stale_total: stats.stale,
            failed_total: stats.failed + self.held.withheld(),
            asked_total: stats.asked,
            prefetched_total: stats.prefetched,
            withheld_total: stats.withheld,
            evicted_total: stats.evicted,
            cached_answers: entries as u64,
            cached_bytes: bytes as u64,
        }
    }

    fn on_tunnel(self: &Rc<Self>) {
        let (usable, families) = (
            self.session.tunnels().answers_dns(),
            self.session.tunnels().families(),
        );
        let mut forwarder = self.forwarder.borrow_mut();
        forwarder.set_tunnel(process::now(), usable, families);
        drop(forwarder);
        self.pump();
    }

    /// Carries out what the forwarder has decided.
    fn pump(self: &Rc<Self>) {
        let mut forwarder = self.forwarder.borrow_mut();
        while let Some(ticket) = forwarder.poll_cancelled() {
            let mut asked = self.asked.borrow_mut();
            let place = asked.iter().find(|(_, one)| **one == ticket);
            if let Some(place) = place.map(|(place, _)| *place) {
                asked.remove(&place);
                self.session.tunnels().forget(place);
            }
        }
        while let Some((ticket, server, message)) = forwarder.poll_near() {
            let (this, resolver) = (self.clone(), self.near.resolver(server));
            spawn_local(async move {
                let answer = resolver.resolve(&message).await;
                this.settle(ticket, answer.as_deref());
            });
        }
        while let Some((ticket, message)) = forwarder.poll_transmit() {
            match self.session.tunnels().ask(&message) {
                Some(query) => {
                    self.asked.borrow_mut().insert(query, ticket);
                }
                None => forwarder.handle_answer(process::now(), ticket, None),
            }
        }
        let answers = std::iter::from_fn(|| forwarder.poll_answer()).collect();
        self.give(&mut forwarder, answers);
        self.changed.notify_one();
    }

    /// Gives out answers that the forwarder has just made.
    fn give(&self, forwarder: &mut Forwarder<Asker>, answers: Vec<(Asker, Vec<u8>)>) {
        let told: Vec<_> = std::iter::from_fn(|| forwarder.poll_learned()).collect();
        self.held.give(&told, answers);
    }

    /// Tells the forwarder whether there is a tunnel; never ends.
    async fn follow(self: Rc<Self>) {
        let mut changes = self.session.reach();
        loop {
            self.on_tunnel();
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The forwarder's clock; never ends.
    async fn keep_time(self: Rc<Self>) {
        loop {
            let due = self.forwarder.borrow().poll_timeout();
            let sleep = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep => {
                    self.forwarder.borrow_mut().handle_timeout(process::now());
                    self.pump();
                }
            }
        }
    }
}

fn bind_error(place: &Place, address: SocketAddr, source: io::Error) -> RunError {
    RunError::Bind {
        place: place.clone(),
        address,
        what: "UDP",
        source,
    }
}
