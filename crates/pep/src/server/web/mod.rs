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

mod account;
mod fetch;
mod hubbed;
mod opening;
mod origins;
mod refused;
mod relayed;
mod secure;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_web::{Ahead, Body, Frame, PAGE, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_local};
use tokio_rustls::TlsConnector;

use super::clients::Client;
use super::flows::FlowRights;
use crate::process;
use crate::reading::{PieceRead, read_piece};
use crate::relay::{FlowHandle, Outcome, PIPE, relay_in_process};
use crate::status;
use crate::throttle::Throttle;
use account::Account;
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
        if let Some((client, place)) = self.rights.admit(id, flow) {
            let peer = PageClient { id, client };
            self.accounts.borrow_mut().entry(id).or_default();
            let serving = serve(self.clone(), peer, flow, destination);
            spawn_local(async move {
                serving.await;
                drop(place);
            });
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
        accounts.get(&id).map(Account::report).unwrap_or_default()
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
    /// Memory of the page's decoder that the account has counted, bytes.
    held: Cell<usize>,
    page: mpsc::Sender<Frame>,
    objects: mpsc::Sender<Frame>,
}

/// Serves a page's stream to its end.
async fn serve(pages: Rc<ServedPages>, peer: PageClient, flow: FlowKey, destination: Destination) {
    let (rights, id, client) = (&pages.rights, peer.id, peer.client.clone());
    let handle = FlowHandle::new(rights.shard().clone(), id, flow);
    let (ours, theirs) = duplex(PIPE);
    let work = async {
        let worked = Box::pin(opening::work(pages.clone(), peer, flow, &destination, ours));
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
        held: Cell::default(),
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

    /// Takes in `payload` of the page, whose links are [`Self::promises`].
    fn push(&self, payload: &[u8]) {
        if let Some(ahead) = self.ahead.borrow_mut().as_mut() {
            ahead.push(payload);
        }
    }

    /// Promises for the next piece of what has come of the page; `None`: all of it is read, or the client has had its share of the processor.
    fn promises(&self) -> Option<Vec<Frame>> {
        let mut ahead = self.ahead.borrow_mut();
        let ahead = ahead.as_mut().filter(|ahead| ahead.has_more())?;
        if !self.may_read() {
            // What a page holds behind bytes that were left out cannot be told.
            ahead.stop_reading();
            self.settle(0);
            return None;
        }
        let PieceRead {
            promises,
            took,
            gave_up,
        } = read_piece(ahead);
        let fits = self.settle(ahead.held());
        if !fits {
            ahead.stop_reading();
            self.settle(0);
        }
        self.pages.account(self.peer.id, |account| {
            account.reading.spend(took);
            account.unread += u64::from(gave_up);
            account.crowded += u64::from(!fits);
            if let Some(Frame::Promise { id, .. }) = promises.first() {
                account.pages += u64::from(*id == 1);
                account.promised += promises.len() as u64;
            }
        });
        Some(promises)
    }

    /// Looks for no more links in the page, which is over.
    fn stop_reading(&self) {
        if let Some(ahead) = self.ahead.borrow_mut().as_mut() {
            ahead.stop_reading();
        }
        self.settle(0);
    }

    /// Counts that the page's decoder holds `now` bytes; false: that is more than the client's pages may hold.
    fn settle(&self, now: usize) -> bool {
        let before = self.held.replace(now);
        let settle = |account: &mut Account| account.memory.settle(before, now);
        self.pages.account(self.peer.id, settle)
    }

    /// True if the client has processor time left for links. If not, a page that is read no further is counted.
    fn may_read(&self) -> bool {
        self.pages.account(self.peer.id, |account| {
            let may = account.reading.is_left(process::now());
            account.unread += u64::from(!may);
            may
        })
    }

    /// Object to fetch now.
    fn next(&self) -> Option<(u64, Request)> {
        self.ahead.borrow_mut().as_mut()?.begin()
    }

    /// Sets bytes aside for an object with a head of `head` bytes, if its `body` says how long it is; false if they are too many.
    fn reserve(&self, object: u64, head: u64, body: Body) -> bool {
        match (object, body) {
            (PAGE, _) | (_, Body::Chunked | Body::UntilClose) => true,
            (_, Body::Length(length)) => {
                let mut ahead = self.ahead.borrow_mut();
                let bytes = head.saturating_add(length);
                ahead
                    .as_mut()
                    .is_some_and(|ahead| ahead.reserve(object, bytes))
            }
        }
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
        self.settle(0);
    }
}
