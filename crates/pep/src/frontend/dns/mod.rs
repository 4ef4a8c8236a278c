//! DNS of the LAN: queries over UDP and TCP, to an address of ours or intercepted on their way to a resolver.
//!
//! ```text
//!   udp.rs, tcp.rs ─► Dns ─ proto/dns/forwarder ─► tunnel, a stream for each question
//! ```
//!
//! Sockets, the clock and the tunnel for the forwarder, which decides.

mod held;
mod tcp;
mod udp;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bentpipe_proto::dns::{Config, Forwarder, Room, Ticket};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep_until;

use super::direct::Decisions;
use crate::client::Session;
use crate::config::{ClientDns, Place, Placed};
use crate::engine::ConnectionId;
use crate::process::{self, RunError};
use crate::status;
use crate::transport::QueryKey;
use held::Held;

/// Where an answer goes.
#[derive(Clone)]
enum Asker {
    Udp(udp::Asker),
    Tcp(mpsc::UnboundedSender<Vec<u8>>),
}

/// The terminal's DNS.
pub(crate) struct Dns {
    session: Rc<Session>,
    forwarder: RefCell<Forwarder<Asker>>,
    asked: RefCell<HashMap<(ConnectionId, QueryKey), Ticket>>,
    held: Rc<Held>,
    /// Whether rules go by names, so that answers may have to wait.
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
            learns,
            changed: Notify::new(),
        });
        for &address in &config.listen {
            tasks.push(udp::start(&dns, address, &config.place)?);
            tasks.push(tcp::start(&dns, super::listen(address, &config.place)?));
        }
        #[cfg(target_os = "linux")]
        if intercepts {
            for address in super::tproxy::local_addresses(config.port) {
                tasks.push(udp::intercept(&dns, address, &config.place)?);
                let listener = super::tproxy::listener(address, &config.place)?;
                tasks.push(tcp::start(&dns, listener));
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
    fn handle(&self, to: Asker, message: &[u8], room: Room) -> Option<Vec<u8>> {
        let now = process::now();
        let again = self.learns.then(|| to.clone());
        let mut forwarder = self.forwarder.borrow_mut();
        let answer = forwarder.handle_query(now, to, message, room);
        let Some(answer) = answer else {
            drop(forwarder);
            self.session.want();
            self.pump();
            return None;
        };
        let Some(asker) = again else {
            return Some(answer);
        };
        self.give(&mut forwarder, vec![(asker, answer)]);
        None
    }

    /// The tunnel's answer to a question.
    pub(crate) fn on_answer(&self, id: ConnectionId, query: QueryKey, message: Option<Bytes>) {
        let ticket = self.asked.borrow_mut().remove(&(id, query));
        if let Some(ticket) = ticket {
            let mut forwarder = self.forwarder.borrow_mut();
            forwarder.handle_answer(process::now(), ticket, message.as_deref());
            drop(forwarder);
            self.pump();
        }
    }

    /// The figures of `status`.
    pub(crate) fn status(&self) -> status::Dns {
        let forwarder = self.forwarder.borrow();
        let (stats, (entries, bytes)) = (forwarder.stats(), forwarder.size());
        status::Dns {
            queries_total: stats.queries,
            local_total: stats.local,
            stale_total: stats.stale,
            failed_total: stats.failed,
            asked_total: stats.asked,
            prefetched_total: stats.prefetched,
            cached_answers: entries as u64,
            cached_bytes: bytes as u64,
        }
    }

    fn on_tunnel(&self) {
        let (usable, families) = (self.session.answers_dns(), self.session.families());
        let mut forwarder = self.forwarder.borrow_mut();
        forwarder.set_tunnel(process::now(), usable, families);
        drop(forwarder);
        self.pump();
    }

    /// Carries out what the forwarder has decided.
    fn pump(&self) {
        let mut forwarder = self.forwarder.borrow_mut();
        while let Some((ticket, message)) = forwarder.poll_transmit() {
            match self.session.ask(&message) {
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
        let mut changes = self.session.changes();
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
