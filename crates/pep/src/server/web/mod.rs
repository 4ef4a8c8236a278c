//! Pages that are fetched ahead (`PROTOCOL.md` §19), at the server: the origin's answer, and behind it the objects of the page.
//!
//! ```text
//!   flow ══ pipe ── REQUEST ──► Job ──┬── fetch: the page ──► origin
//!   flow ══ pipe ◄── frames ◄─ queues ┴── fetch: an object, six at one time
//! ```
//!
//! The page's frames pass those of objects, so that a promise precedes its object, and no object delays the page. With an origin
//! that the client names in TLS, all of it is in a TLS connection to that origin, whose certificate is verified here. Of an origin of
//! DSSL objects come sealed, and are handed on as they are (`hubbed`).

mod fetch;
mod hubbed;
mod origins;
mod refused;
mod relayed;
mod secure;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_sealed::dssl::SessionId;
use bentpipe_web::{Ahead, Frame, FrameReader, Request, Scheme, Verdict, judge};
use rustls::pki_types::{DnsName, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::clients::Client;
use super::flows::FlowRights;
use crate::relay::{FlowHandle, Outcome, PIPE, relay_in_process};
use crate::status;
use crate::throttle::Throttle;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::FlowKey;
use origins::{Origins, ReachedOrigin, TlsName};
use secure::Unfetched;

/// Time that a client has for its request once its stream is open.
const REQUEST: Duration = Duration::from_secs(10);

/// Pages of one client whose objects are fetched at one time; those beyond come without.
const MAX_PAGES: usize = 16;

/// Frames that wait for the flow in each queue, 16 KiB each at most.
const QUEUE: usize = 4;

/// Counts of one client's pages.
#[derive(Default)]
struct Account {
    /// Pages whose objects are being fetched.
    active: usize,
    requests: u64,
    pages: u64,
    crowded: u64,
    promised: u64,
    failed: status::ObjectsFailed,
    /// Origins whose TLS was not believed.
    refused: u64,
    /// Sessions of DSSL that are open.
    hubs: usize,
    /// Sessions of DSSL whose K2 was asked for, and what was dropped of them.
    sealed: status::SealedPages,
}

/// Client of a stream.
#[derive(Clone)]
struct PageClient {
    id: ConnectionId,
    client: Arc<Client>,
}

/// Pages of one shard's clients.
pub(super) struct ServedPages {
    rights: Rc<FlowRights>,
    origins: Origins,
    /// TLS with origins, where that is spoken for clients.
    tls: Option<TlsConnector>,
    /// Pages in clear are fetched for clients.
    clear: bool,
    /// TLS with origins of DSSL, where this server is a hub.
    hub: Option<TlsConnector>,
    /// Lines about origins that are not believed.
    complaints: Throttle,
    /// Lines about origins of DSSL that give this server no keys.
    hub_complaints: Throttle,
    accounts: RefCell<HashMap<ConnectionId, Account>>,
    /// Origins that connections are being opened to ahead of objects.
    opening: RefCell<HashSet<ObjectsOrigin>>,
}

/// Client, and the origin that its objects come from.
type ObjectsOrigin = (ConnectionId, SocketAddr, TlsName);

impl ServedPages {
    /// Pages of clients whose rights `rights` judges; in `clear` or not, over TLS as well, with origins that `trust` believes, and sealed ones of
    /// origins that `hub` does.
    pub(super) fn new(
        (rights, clear): (Rc<FlowRights>, bool),
        trust: Option<Arc<rustls::ClientConfig>>,
        hub: Option<Arc<rustls::ClientConfig>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            rights,
            origins: Origins::default(),
            tls: trust.map(TlsConnector::from),
            clear,
            hub: hub.map(TlsConnector::from),
            complaints: Throttle::new(),
            hub_complaints: Throttle::new(),
            accounts: RefCell::default(),
            opening: RefCell::default(),
        })
    }

    /// Serves a stream that a client has opened for a page of `destination`, or refuses it.
    pub(super) fn open(self: &Rc<Self>, id: ConnectionId, flow: FlowKey, destination: Destination) {
        if let Some(client) = self.rights.admit(id, flow) {
            let peer = PageClient { id, client };
            self.accounts.borrow_mut().entry(id).or_default();
            spawn_local(serve(self.clone(), peer, flow, destination));
        }
    }

    /// A tunnel is over.
    pub(super) fn forget(&self, id: ConnectionId) {
        self.accounts.borrow_mut().remove(&id);
        self.origins.forget(id);
    }

    /// Ends connections to origins that wait for another request; to be called every second.
    pub(super) fn tick(&self) {
        self.origins.sweep();
    }

    /// A client's part of `status`.
    pub(super) fn report(&self, id: ConnectionId) -> status::PagesAhead {
        let accounts = self.accounts.borrow();
        let Some(account) = accounts.get(&id) else {
            return status::PagesAhead::default();
        };
        status::PagesAhead {
            requests_total: account.requests,
            pages_total: account.pages,
            crowded_total: account.crowded,
            promised_total: account.promised,
            failed_total: account.failed.all(),
            failed_causes: account.failed,
            refused_total: account.refused,
            sealed: account.sealed,
            ..status::PagesAhead::default()
        }
    }

    fn account<T: Default>(&self, id: ConnectionId, change: impl FnOnce(&mut Account) -> T) -> T {
        // None is left of a client that has gone while a page of it ends.
        let mut accounts = self.accounts.borrow_mut();
        accounts.get_mut(&id).map(change).unwrap_or_default()
    }
}

/// Stream of one request.
struct Job {
    pages: Rc<ServedPages>,
    peer: PageClient,
    /// Address that the page comes from, and its objects.
    to: SocketAddr,
    name: TlsName,
    request: Request,
    /// Objects of the page, once it is known to be one.
    ahead: RefCell<Option<Ahead>>,
    page: mpsc::Sender<Frame>,
    objects: mpsc::Sender<Frame>,
}

/// Serves a page's stream to its end.
async fn serve(pages: Rc<ServedPages>, peer: PageClient, flow: FlowKey, destination: Destination) {
    let (rights, id, client) = (&pages.rights, peer.id, peer.client.clone());
    let handle = FlowHandle::new(rights.shard().clone(), id, flow);
    let (ours, theirs) = duplex(PIPE);
    let work = async {
        let worked = Box::pin(work(pages.clone(), peer, flow, &destination, ours));
        match worked.await {
            // What was written last is still to leave.
            Ok(()) => std::future::pending().await,
            Err(code) => rights.reply(id, flow, code, None),
        }
    };
    let outcome = tokio::select! {
        outcome = relay_in_process(handle, theirs) => outcome,
        () = work => Outcome::Closed,
    };
    rights.leave(id, flow);
    tracing::debug!(client = client.name, %destination, ?outcome, "page ended");
}

/// A connection for `flow` to where a page is, with the rights that its client has then.
async fn reach_for(
    pages: &ServedPages,
    peer: &PageClient,
    flow: FlowKey,
    destination: &Destination,
) -> Result<ReachedOrigin, ReplyCode> {
    let origin = reach(pages, peer, destination).await?;
    let entered = pages.rights.enter(peer.id, flow, origin.tcp().1);
    entered.map_err(|refused| refused.code)?;
    Ok(origin)
}

/// A connection to where a page is: one that waits, or a new one.
async fn reach(
    pages: &ServedPages,
    peer: &PageClient,
    destination: &Destination,
) -> Result<ReachedOrigin, ReplyCode> {
    if let Host::Ip(ip) = destination.host {
        let to = SocketAddr::new(ip, destination.port);
        let permitted = pages.rights.permits(&peer.client, to);
        if let Some(origin) = pages.origins.take(peer.id, to).filter(|_| permitted) {
            return Ok(ReachedOrigin::Waiting(origin));
        }
    }
    let (tcp, to) = pages.rights.dial(&peer.client, destination).await?;
    Ok(ReachedOrigin::Fresh(tcp, to))
}

/// Reads the first frames of a stream, connects to the origin at `destination`, and answers them. A hub says REPLY before it is
/// connected: its terminal waits for that, and whatever fails then leaves the pages whole.
///
/// # Errors
/// There is no connection to the origin, and REPLY has not been sent.
async fn work(
    pages: Rc<ServedPages>,
    peer: PageClient,
    flow: FlowKey,
    destination: &Destination,
    pipe: DuplexStream,
) -> Result<(), ReplyCode> {
    let (mut read, write) = tokio::io::split(pipe);
    let mut reaching = Box::pin(reach_for(&pages, &peer, flow, destination));
    let named = Notify::new();
    let mut opening = Box::pin(async {
        let opening = timeout(REQUEST, read_opening(&mut read, &pages, &named)).await;
        opening.ok().flatten()
    });
    let (mut opened, mut origin) = (None, None);
    tokio::select! {
        biased;
        first = &mut opening => opened = Some(first),
        // A request would have come with the name.
        () = named.notified() => {}
        reached = &mut reaching => origin = Some(reached?),
    }
    let asks = opened.is_some() && !matches!(opened, Some(Some((Some(_), Opening::Hub(..)))));
    if origin.is_none() && asks {
        origin = Some(reaching.as_mut().await?);
    }
    let bound = origin.as_ref().and_then(|it| it.tcp().0.local_addr().ok());
    pages.rights.reply(peer.id, flow, ReplyCode::Ok, bound);
    let mut reached = origin.map(Ok);
    let opened = match opened {
        Some(opened) => opened,
        None if reached.is_some() => opening.as_mut().await,
        None => {
            let (opened, late) = tokio::join!(opening.as_mut(), reaching.as_mut());
            reached = Some(late);
            opened
        }
    };
    drop(opening);
    let reached = async {
        match reached {
            Some(reached) => reached,
            None => reaching.await,
        }
    };
    match opened {
        Some((Some(name), Opening::Hub(session, frames))) => {
            let stream = (frames, read, write);
            hubbed::serve(&pages, &peer, (reached, name), session, stream).await;
        }
        // REPLY has been sent: without a connection the stream ends.
        Some((name, Opening::Get(request))) => {
            if let Ok(origin) = reached.await {
                let stream = (read, write);
                answer(pages.clone(), peer.clone(), (origin, name), request, stream).await;
            }
        }
        Some((name, Opening::Relay(frames))) => {
            if let Ok(origin) = reached.await {
                relayed::relay(&pages, &peer, (origin, name), frames, (read, write)).await;
            }
        }
        Some((None, Opening::Hub(..))) | None => {
            tracing::debug!(client = peer.client.name, %destination, "page without a request");
        }
    }
    Ok(())
}

/// Sends the page that `request` asks for, and its objects.
async fn answer(
    pages: Rc<ServedPages>,
    peer: PageClient,
    (origin, name): (ReachedOrigin, TlsName),
    request: Request,
    (mut read, mut write): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
) {
    let ((page, mut of_page), (objects, mut of_objects)) =
        (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
    pages.account(peer.id, |account| account.requests += 1);
    if request.is_page() && matches!(origin, ReachedOrigin::Fresh(..)) {
        pages.connect_ahead(&peer, origin.tcp().1, &name);
    }
    let mut fetches = JoinSet::new();
    let job = Rc::new(Job {
        pages,
        peer,
        to: origin.tcp().1,
        name,
        request,
        ahead: RefCell::default(),
        page,
        objects,
    });
    fetches.spawn_local(job.clone().fetch_page(origin));
    let (mut bytes, mut nothing) = (Vec::new(), [0; 1]);
    while !fetches.is_empty() || !of_page.is_empty() || !of_objects.is_empty() {
        let frame = tokio::select! {
            biased;
            Some(frame) = of_page.recv() => Some(frame),
            Some(frame) = of_objects.recv() => Some(frame),
            // The client wants no more, or says what it may not.
            _ = read.read(&mut nothing) => break,
            Some(_) = fetches.join_next() => None,
        };
        if let Some(frame) = frame {
            bytes.clear();
            frame.encode(&mut bytes);
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        while let Some((object, request)) = job.next() {
            fetches.spawn_local(job.clone().fetch_object(object, request));
        }
    }
}

/// Client's wish for a stream.
enum Opening {
    /// A request that may be answered ahead.
    Get(Request),
    /// Bytes as they come; those that are here already are in the reader.
    Relay(FrameReader),
    /// Objects of a session of DSSL, whose name may follow.
    Hub(Option<SessionId>, FrameReader),
}

/// First frames of a stream, if they ask for what may be had; names of origins are for where TLS is spoken (`secure`), or where
/// this server is a `hub`. Rings `named` where a name has come alone: HUB is to follow.
async fn read_opening(
    read: &mut ReadHalf<DuplexStream>,
    pages: &ServedPages,
    named: &Notify,
) -> Option<(TlsName, Opening)> {
    let (mut frames, mut bytes) = (FrameReader::default(), [0; 4096]);
    let (clear, secure, hub) = (pages.clear, pages.tls.is_some(), pages.hub.is_some());
    // Bytes that have come, and those of the name.
    let (mut came, mut of_name) = (0, 0);
    let mut name = None;
    loop {
        match frames.read() {
            Ok(Some(Frame::Tls(host))) if (secure || hub) && name.is_none() => {
                name = Some(server_name(&host)?);
                let mut encoded = Vec::with_capacity(host.len() + 4);
                Frame::Tls(host).encode(&mut encoded);
                of_name = encoded.len();
            }
            Ok(Some(Frame::Hub(session))) if hub && name.is_some() => {
                let named = match session.is_empty() {
                    true => None,
                    false => Some(hubbed::session_of(&session)?),
                };
                return Some((name, Opening::Hub(named, frames)));
            }
            Ok(Some(Frame::Relay)) if secure && name.is_some() => {
                return Some((name, Opening::Relay(frames)));
            }
            Ok(Some(Frame::Request(head))) if if name.is_some() { secure } else { clear } => {
                let request = fit_request(&head, name.as_ref())?;
                return Some((name, Opening::Get(request)));
            }
            Ok(None) => {
                if hub && name.is_some() && came == of_name {
                    named.notify_one();
                }
                match read.read(&mut bytes).await {
                    Ok(0) | Err(_) => return None,
                    Ok(read) => {
                        frames.push(&bytes[..read]);
                        came += read;
                    }
                }
            }
            Ok(Some(_)) | Err(_) => return None,
        }
    }
}

fn server_name(host: &[u8]) -> Option<ServerName<'static>> {
    let name = DnsName::try_from(std::str::from_utf8(host).ok()?).ok()?;
    Some(ServerName::DnsName(name.to_owned()))
}

/// The request with this `head`, if it may be answered ahead by the origin `name`.
fn fit_request(head: &[u8], name: Option<&ServerName<'static>>) -> Option<Request> {
    let scheme = match name {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    let Verdict::Get(request, used) = judge(scheme, head) else {
        return None;
    };
    let own = name.is_none_or(|name| request.is_for(&name.to_str()));
    (used == head.len() && own).then_some(request)
}

impl Job {
    /// Begins to look for objects, if that is a page of which some are fetched.
    fn look_ahead(&self, ahead: Option<Ahead>) {
        let Some(ahead) = ahead else {
            return;
        };
        let admitted = self.pages.account(self.peer.id, |account| {
            let admitted = account.active < MAX_PAGES;
            account.active += usize::from(admitted);
            account.crowded += u64::from(!admitted);
            admitted
        });
        if admitted {
            *self.ahead.borrow_mut() = Some(ahead);
        }
    }

    /// Promises for what `payload` of the page links to.
    fn promises(&self, payload: &[u8]) -> Vec<Frame> {
        let mut ahead = self.ahead.borrow_mut();
        let promises = ahead.as_mut().map(|ahead| ahead.read(payload));
        let promises = promises.unwrap_or_default();
        if let Some(Frame::Promise { id, .. }) = promises.first() {
            self.pages.account(self.peer.id, |account| {
                account.pages += u64::from(*id == 1);
                account.promised += promises.len() as u64;
            });
        }
        promises
    }

    /// Object to fetch now.
    fn next(&self) -> Option<(u64, Request)> {
        self.ahead.borrow_mut().as_mut()?.begin()
    }

    /// An object takes so many bytes more; false if it may not.
    fn spend(&self, object: u64, bytes: usize) -> bool {
        let mut ahead = self.ahead.borrow_mut();
        ahead
            .as_mut()
            .is_some_and(|ahead| ahead.spend(object, bytes))
    }

    /// An object has ended, or has failed for a reason.
    fn end(&self, object: u64, failure: Option<&Unfetched>) {
        if let Some(ahead) = self.ahead.borrow_mut().as_mut() {
            ahead.end(object);
        }
        self.pages.account(self.peer.id, |account| {
            let failed = &mut account.failed;
            match failure {
                Some(Unfetched::Unreached) => failed.unreached += 1,
                Some(Unfetched::Silent) => failed.silent += 1,
                Some(Unfetched::Untrusted(_)) => failed.untrusted += 1,
                Some(Unfetched::Unfit) => failed.unfit += 1,
                // Nobody wants it any more.
                Some(Unfetched::Stream) | None => {}
            }
        });
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.ahead.get_mut().is_some() {
            let leave = |account: &mut Account| account.active = account.active.saturating_sub(1);
            self.pages.account(self.peer.id, leave);
        }
    }
}
