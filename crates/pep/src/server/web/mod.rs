//! Pages that are fetched ahead (`PROTOCOL.md` §19), at the server: the origin's answer, and behind it the objects of the page.
//!
//! ```text
//!   flow ══ pipe ── REQUEST ──► Job ──┬── fetch: the page ──► origin
//!   flow ══ pipe ◄── frames ◄─ queues ┴── fetch: an object, six at one time
//! ```
//!
//! The page's frames pass those of objects, so that a promise precedes its object, and no object delays the page.

mod fetch;
mod origins;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_web::{Ahead, Frame, FrameReader, Request, Verdict, judge};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, duplex};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;

use super::clients::Client;
use super::flows::FlowRights;
use crate::relay::{FlowHandle, Outcome, PIPE, relay_in_process};
use crate::status;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::FlowKey;
use origins::{OriginSocket, Origins};

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
    promised: u64,
    failed: u64,
}

/// Pages of one shard's clients.
pub(super) struct ServedPages {
    rights: Rc<FlowRights>,
    origins: Origins,
    accounts: RefCell<HashMap<ConnectionId, Account>>,
}

impl ServedPages {
    /// Pages of clients whose rights `rights` judges.
    pub(super) fn new(rights: Rc<FlowRights>) -> Rc<Self> {
        Rc::new(Self {
            rights,
            origins: Origins::default(),
            accounts: RefCell::default(),
        })
    }

    /// Serves a stream that a client has opened for a page of `destination`, or refuses it.
    pub(super) fn open(self: &Rc<Self>, id: ConnectionId, flow: FlowKey, destination: Destination) {
        if let Some(client) = self.rights.admit(id, flow) {
            spawn_local(serve(self.clone(), (id, flow), client, destination));
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
        let account = accounts.get(&id);
        let of = |figure: fn(&Account) -> u64| account.map_or(0, figure);
        status::PagesAhead {
            requests_total: of(|account| account.requests),
            promised_total: of(|account| account.promised),
            failed_total: of(|account| account.failed),
            ..status::PagesAhead::default()
        }
    }

    fn account<T>(&self, id: ConnectionId, change: impl FnOnce(&mut Account) -> T) -> T {
        change(self.accounts.borrow_mut().entry(id).or_default())
    }
}

/// Stream of one request.
struct Job {
    pages: Rc<ServedPages>,
    id: ConnectionId,
    client: Arc<Client>,
    /// Address that the page comes from, and its objects.
    to: SocketAddr,
    request: Request,
    /// Objects of the page, once it is known to be one.
    ahead: RefCell<Option<Ahead>>,
    page: mpsc::Sender<Frame>,
    objects: mpsc::Sender<Frame>,
}

/// Serves a page's stream to its end.
async fn serve(
    pages: Rc<ServedPages>,
    (id, flow): (ConnectionId, FlowKey),
    client: Arc<Client>,
    destination: Destination,
) {
    let rights = &pages.rights;
    let handle = FlowHandle::new(rights.shard().clone(), id, flow);
    let reaching = Box::pin(reach(&pages, id, &client, &destination));
    let reached = tokio::select! {
        reached = reaching => reached,
        () = handle.gone() => return,
    };
    let entered = reached.and_then(|origin| {
        let entered = rights.enter(id, flow, origin.to);
        entered.map_err(|refused| refused.code)?;
        Ok(origin)
    });
    let origin = match entered {
        Ok(origin) => origin,
        Err(code) => return rights.reply(id, flow, code, None),
    };
    rights.reply(id, flow, ReplyCode::Ok, origin.stream.local_addr().ok());
    let (ours, theirs) = duplex(PIPE);
    let work = async {
        Box::pin(work(pages.clone(), id, client.clone(), origin, ours)).await;
        // What was written last is still to leave.
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = relay_in_process(handle, theirs) => outcome,
        () = work => Outcome::Closed,
    };
    rights.leave(id, flow);
    tracing::debug!(client = client.name, %destination, ?outcome, "page ended");
}

/// A connection to where a page is: one that waits, or a new one.
async fn reach(
    pages: &ServedPages,
    id: ConnectionId,
    client: &Client,
    destination: &Destination,
) -> Result<OriginSocket, ReplyCode> {
    if let Host::Ip(ip) = destination.host {
        let to = SocketAddr::new(ip, destination.port);
        let permitted = pages.rights.permits(client, to);
        if let Some(stream) = pages.origins.take(id, to).filter(|_| permitted) {
            let used = true;
            return Ok(OriginSocket { stream, to, used });
        }
    }
    let (stream, to) = pages.rights.dial(client, destination).await?;
    let used = false;
    Ok(OriginSocket { stream, to, used })
}

async fn work(
    pages: Rc<ServedPages>,
    id: ConnectionId,
    client: Arc<Client>,
    origin: OriginSocket,
    pipe: DuplexStream,
) {
    let (mut read, mut write) = tokio::io::split(pipe);
    let Ok(Some(request)) = timeout(REQUEST, read_request(&mut read)).await else {
        tracing::debug!(client = client.name, to = %origin.to, "page without a request");
        return;
    };
    let ((page, mut of_page), (objects, mut of_objects)) =
        (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
    pages.account(id, |account| account.requests += 1);
    let mut fetches = JoinSet::new();
    let job = Rc::new(Job {
        pages,
        id,
        client,
        to: origin.to,
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

/// First frame of a stream, if it is a request that may be answered ahead.
async fn read_request(read: &mut ReadHalf<DuplexStream>) -> Option<Request> {
    let (mut frames, mut bytes) = (FrameReader::default(), [0; 4096]);
    loop {
        match frames.read() {
            Ok(Some(Frame::Request(head))) => {
                return match judge(&head) {
                    Verdict::Get(request, used) if used == head.len() => Some(request),
                    _ => None,
                };
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
        match read.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => frames.push(&bytes[..read]),
        }
    }
}

impl Job {
    /// Begins to look for objects, if that is a page of which some are fetched.
    fn look_ahead(&self, ahead: Option<Ahead>) {
        let Some(ahead) = ahead else {
            return;
        };
        let admitted = self.pages.account(self.id, |account| {
            let admitted = account.active < MAX_PAGES;
            account.active += usize::from(admitted);
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
        let count = promises.len() as u64;
        if count > 0 {
            self.pages
                .account(self.id, |account| account.promised += count);
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

    fn end(&self, object: u64, failed: bool) {
        if let Some(ahead) = self.ahead.borrow_mut().as_mut() {
            ahead.end(object);
        }
        if failed {
            self.pages.account(self.id, |account| account.failed += 1);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.ahead.get_mut().is_some() {
            let leave = |account: &mut Account| account.active = account.active.saturating_sub(1);
            self.pages.account(self.id, leave);
        }
    }
}
