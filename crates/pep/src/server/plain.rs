//! A server with `transport = "plain"`: each TCP connection from a listed prefix is one flow. It begins with OPEN; REPLY
//! says how connecting to the destination ended, and then both are relayed (`PROTOCOL.md` §12).
//!
//! Whoever can send from such a prefix is believed. What may be dialled is checked as for a tunnel's client.

use std::cell::RefCell;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{
    DecodeError, Destination, MAX_OPEN, Open, Reply, ReplyCode, StreamKind,
};
use bytes::Bytes;
use ipnet::IpNet;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::config::{PlainServer, Role, Transport};
use crate::congestion_control::CongestionControl;
use crate::events;
use crate::metrics::Metrics;
use crate::net::dial::{Dialler, Rights};
use crate::net::judge::Judge;
use crate::net::listen::{accept, listen_each};
use crate::net::nat64::Translations;
use crate::net::policy::Policy;
use crate::net::resolver::Resolver;
use crate::process::{self, RunError};
use crate::relay::split::{Far, OpenSplit, Split, Splits, read_some};
use crate::relay::{delivered, first_bytes, prepare};
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::status::{self, ClientStatus, Side, StatusReport, TunnelState};
use crate::stop::{self, StopSignal};

/// For OPEN to come: it leaves right after the connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Stream kind, length and body of an OPEN.
const LONGEST_OPEN: usize = MAX_OPEN + 16;
/// Between looks at whether all is over.
const POLL: Duration = Duration::from_millis(20);

/// Client that may use the server, and what it has used.
struct SplitClient {
    name: String,
    source: Vec<IpNet>,
    rights: Rights,
    max_flows: u64,
    splits: Rc<Splits>,
}

struct SplitServer {
    config: PlainServer,
    clients: RefCell<Vec<Rc<SplitClient>>>,
    /// Clients that the file lists no more and that have open flows.
    unlisted: RefCell<Vec<Rc<SplitClient>>>,
    controller: Option<CongestionControl>,
    dialler: Dialler,
    started: Instant,
}

/// Runs the server until SIGINT or SIGTERM.
pub(super) fn run(config: PlainServer) -> Result<(), RunError> {
    Needs::of_plain_server(&config).enter()?;
    let runtime = process::runtime()?;
    LocalSet::new().block_on(&runtime, serve(config))
}

async fn serve(config: PlainServer) -> Result<(), RunError> {
    let server = Rc::new(SplitServer {
        clients: RefCell::new(clients(&config, &[])),
        unlisted: RefCell::default(),
        controller: CongestionControl::find(config.controller.as_ref())?,
        dialler: Dialler::new(
            Rc::new(Judge::new(Translations::none())),
            Rc::new(Resolver::new(&[])),
            config.connect_timeout,
        ),
        started: process::now(),
        config,
    });
    let config = &server.config;
    let mut tasks = Vec::new();
    for listener in listen_each(&config.listen)? {
        let server = server.clone();
        tasks.push(accept(listener, move |socket, peer| {
            server.clone().take(socket, peer)
        }));
    }
    // Signals first: whoever sees the status socket may send them, and ask for metrics.
    let mut stop = StopSignal::take()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let metrics = Metrics::bind(config.metrics.as_ref(), None)?;
    let status = process::status_socket(Role::Server, config.status_socket.as_ref())?;
    process::raise_file_limit();
    sandbox::announce();
    let listening = process::join(&config.listen);
    tracing::warn!(
        "transport = \"plain\": what crosses is neither encrypted nor authenticated, and clients are known by their addresses alone"
    );
    tracing::info!(target: events::STATE, "ready: splitting TCP on {listening}");
    let manager = ServiceManager::find();
    manager.ready();
    tokio::select! {
        () = status.serve(|| server.report()) => {}
        () = metrics.serve(|| server.report()) => {}
        () = manager.inform(&[], || server.report()) => {}
        () = async {
            loop {
                tokio::select! {
                    () = stop.wait() => break,
                    Some(()) = hangup.recv() => {
                        manager.reloading();
                        server.reload();
                        manager.ready();
                    }
                }
            }
            stop::tell_of_first(config.drain_timeout);
            manager.stopping(config.drain_timeout);
            tasks.iter().for_each(tokio::task::JoinHandle::abort);
            stop.drain(config.drain_timeout, server.until_idle()).await;
        } => {}
    }
    Ok(())
}

/// The clients of `config`. Those that `before` has by the same name keep their flows and totals.
fn clients(config: &PlainServer, before: &[Rc<SplitClient>]) -> Vec<Rc<SplitClient>> {
    let splits = |name: &str| {
        let same = before.iter().find(|client| client.name == name);
        same.map_or_else(Splits::new, |client| client.splits.clone())
    };
    let client = |entry: &crate::config::PlainSource| {
        Rc::new(SplitClient {
            name: entry.name.get_ref().clone(),
            source: entry.source.clone(),
            rights: Rights::new(Policy {
                allow: entry.allow.clone(),
                only: entry.only.clone(),
            }),
            max_flows: entry.max_flows.into(),
            splits: splits(entry.name.get_ref()),
        })
    };
    config.clients.iter().map(client).collect()
}

impl SplitServer {
    /// The first client that lists the address.
    fn client_at(&self, peer: SocketAddr) -> Option<Rc<SplitClient>> {
        let address = peer.ip().to_canonical();
        let clients = self.clients.borrow();
        let at = |client: &&Rc<SplitClient>| client.source.iter().any(|net| net.contains(&address));
        clients.iter().find(at).cloned()
    }

    async fn take(self: Rc<Self>, socket: TcpStream, peer: SocketAddr) {
        // What goes wrong before the relay ends the connection with a reset, which is all there is to say.
        if prepare(&socket).is_err() {
            return;
        }
        let Some(client) = self.client_at(peer) else {
            tracing::debug!("{peer} is in no client's `source`");
            return;
        };
        if let Some(controller) = &self.controller {
            controller.apply(&socket);
        }
        let Ok(Ok((open, rest))) = Box::pin(timeout(PATIENCE, read_open(&socket))).await else {
            tracing::debug!(client = client.name, "{peer} sent no OPEN");
            return;
        };
        let destination = open.destination;
        // From now on it is one of the client's flows.
        let open = client.splits.begin();
        match self.dial(&client, &destination).await {
            Ok(origin) => {
                if let Some(controller) = &self.controller {
                    controller.apply(&origin);
                }
                Splits::count(&open.near_in, &rest);
                let Some(far) = answer(origin, rest, open).await else {
                    return turn_away(&socket, &reply(ReplyCode::Internal, None)).await;
                };
                let split = Split { near: socket, far };
                let outcome = split.run().await;
                tracing::debug!(client = client.name, %destination, ?outcome, "flow ended");
            }
            Err(code) => {
                let refused = &client.splits.refused;
                refused.set(refused.get() + 1);
                tracing::debug!(client = client.name, %destination, ?code, "flow refused");
                turn_away(&socket, &reply(code, None)).await;
            }
        }
    }

    /// Connects to `destination` with the rights of `client`, if it may have one more flow.
    async fn dial(
        &self,
        client: &SplitClient,
        destination: &Destination,
    ) -> Result<TcpStream, ReplyCode> {
        if client.splits.open() > client.max_flows {
            return Err(ReplyCode::LimitReached);
        }
        let dialled = Box::pin(self.dialler.dial(destination, &client.rights)).await;
        dialled.map(|(stream, _)| stream).map_err(|refused| {
            if let Some((address, denied)) = refused.denied {
                let name = &client.name;
                tracing::debug!("{address} is denied: {denied} of [[client]] {name}");
            }
            refused.code
        })
    }

    fn reload(&self) {
        match PlainServer::load(&self.config.file) {
            Ok(fresh) => {
                let listed = self.clients.take();
                let known = [listed, self.unlisted.take()].concat();
                let fresh = clients(&fresh, &known);
                tracing::info!(target: events::STATE, "reloaded: {} clients", fresh.len());
                self.clients.replace(fresh);
                self.keep_unlisted(known);
            }
            Err(error) => tracing::error!("not reloaded, the old list stays: {error}"),
        }
    }

    /// Goes on counting the open flows of those `known` clients that are listed no more.
    fn keep_unlisted(&self, mut known: Vec<Rc<SplitClient>>) {
        let clients = self.clients.borrow();
        let is_listed = |one: &Rc<SplitClient>| {
            let mut listed = clients.iter();
            listed.any(|now| Rc::ptr_eq(&now.splits, &one.splits))
        };
        known.retain(|one| one.splits.open() > 0 && !is_listed(one));
        self.unlisted.replace(known);
    }

    async fn until_idle(&self) {
        let busy = || {
            let clients = self.clients.borrow();
            let unlisted = self.unlisted.borrow();
            let mut all = clients.iter().chain(&*unlisted);
            all.any(|client| client.splits.open() > 0)
        };
        while busy() {
            sleep(POLL).await;
        }
    }

    fn report(&self) -> StatusReport {
        let up = process::now()
            .saturating_duration_since(self.started)
            .as_secs();
        let clients = self.clients.borrow();
        let status = |client: &Rc<SplitClient>| ClientStatus {
            name: client.name.clone(),
            shard: None,
            session: status::Session {
                tunnel: status::Tunnel {
                    state: TunnelState::Ready,
                    peer: Some(process::join(&client.source)),
                    since_s: up,
                    ..status::Tunnel::default()
                },
                flows: client.splits.flows(),
                bytes: client.splits.volumes().turned(),
                ..status::Session::default()
            },
        };
        let side = Side::Server {
            listen: self.config.listen.to_vec(),
            listen_tls: Vec::new(),
            listen_sle: Vec::new(),
            listen_les: Vec::new(),
            families: None,
            packets_limited: None,
            sle: None,
            les: None,
            tls: None,
            clients: clients.iter().map(status).collect(),
        };
        StatusReport {
            transport: Some(Transport::Plain),
            events: events::last(),
            sandbox: sandbox::entered(),
            ..StatusReport::new(self.config.file.clone(), up, side)
        }
    }
}

/// The OPEN at the start of `socket`, and what came with it.
async fn read_open(socket: &TcpStream) -> std::io::Result<(Open, Bytes)> {
    let mut bytes = Vec::with_capacity(LONGEST_OPEN);
    loop {
        let malformed = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        if let Some((open, used)) = Open::decode(&bytes).map_err(malformed)? {
            if open.page {
                return Err(malformed(DecodeError::StreamKind(StreamKind::Page.code())));
            }
            return Ok((open, Bytes::from(bytes).slice(used..)));
        }
        read_some(socket, &mut bytes, LONGEST_OPEN).await?;
    }
}

fn reply(code: ReplyCode, bound: Option<SocketAddr>) -> Bytes {
    let mut bytes = Vec::with_capacity(32);
    let reply = Reply {
        code,
        bound,
        credit: 0,
    };
    reply.encode(&mut bytes);
    bytes.into()
}

/// The origin's side of a split, with REPLY and what the origin says soon after `first`: a lone small segment is acknowledged
/// sooner than full ones, and HyStart would take that for the round trip. `None`: the origin was lost meanwhile.
async fn answer(origin: TcpStream, first: Bytes, open: OpenSplit) -> Option<Far> {
    let reply = reply(ReplyCode::Ok, origin.local_addr().ok());
    let sent = origin.try_write(&first).unwrap_or(0);
    // An end is found again by the lane.
    let (said, _) = first_bytes(&origin, open.scratch()).await.ok()?;
    Splits::count(&open.far_in, &said);
    let read = if said.is_empty() {
        reply
    } else {
        [reply, said].concat().into()
    };
    Some(Far {
        open,
        socket: origin,
        owed: first.slice(sent..),
        read,
        replies: false,
    })
}

/// Says why. The reset that ends it must not overtake that.
async fn turn_away(socket: &TcpStream, text: &[u8]) {
    if socket.try_write(text).is_ok_and(|n| n == text.len())
        && SockRef::from(socket).shutdown(Shutdown::Write).is_ok()
    {
        delivered(socket).await;
    }
}
