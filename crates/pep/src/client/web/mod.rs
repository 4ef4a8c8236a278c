//! Pages that are fetched ahead (`PROTOCOL.md` §19), at the client: a browser's requests are answered by what has come already,
//! or asked for by a stream each.
//!
//! ```text
//!   browser ── GET ──► serve ── in the store? ──► answer
//!                        │ no                       ▲
//!                        └── REQUEST ══ pipe ══► server
//!   browser ◄── the page ◄── receive ◄══ pipe ◄═ frames ── objects ──► store
//! ```
//!
//! Whatever is no plain GET goes as a flow of the tunnel from there on, with the bytes that were read. Of connections to port 443
//! those to hosts that are listed are answered in TLS, with the local CA (`meeting`, `trusted`), by HTTP/2 where the browser speaks it
//! (`multiplexed`); what is no plain GET there is relayed by frames (`relayed`). Those to origins of DSSL are asked by connections from
//! end to end, and objects of their pages come sealed (`dssl`).

mod browser;
mod dssl;
mod hello;
mod meeting;
mod multiplexed;
mod patience;
mod piped;
mod receive;
mod relayed;
mod road;
mod speech;
mod trusted;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_web::{Answer, Asked, Closing, Frame, PageId, Request, Scheme, Store};
use bytes::Bytes;
use tokio::io::duplex;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::attendance::Attendance;
use crate::config::ClientConfig;
use crate::keys::PrivateKey;
use crate::process::{self, RunError};
use crate::relay::{Outcome, PIPE, relay_in_process};
use crate::status;
use crate::throttle::Throttle;
pub(crate) use browser::{Browser, Parts};
use browser::{Gone, Next, TrustedParts};
use dssl::Dssl;
pub(crate) use meeting::Meeting;
use patience::Patience;
pub(crate) use road::{HubAtHand, PageRoad};
use trusted::Trusted;

/// TCP port of pages in clear.
const PORT: u16 = 80;

/// TCP port of pages over TLS.
const TLS_PORT: u16 = 443;

/// Time by which a page may be ahead of promises that come by another connection.
const EITHER_FIRST: Duration = Duration::from_millis(60);

/// Frames of a page that wait for a browser, 16 KiB each at most: as much as a socket takes.
const QUEUE: usize = 16;

/// Owner of an object: the LAN host that may be given it, and the address that its page came from.
type Owner = (Option<IpAddr>, Destination);

/// End of a browser's connection, or of our part in it.
pub(crate) enum Ending {
    /// The connection is over.
    Over(Outcome),
    /// The browser says what is not for us.
    Plain,
}

/// Pages of a client.
pub(crate) struct Pages {
    store: RefCell<Store<Owner>>,
    /// Hosts that are answered for in TLS.
    trusted: Option<Trusted>,
    /// Objects come ahead of pages in clear.
    clear: bool,
    /// Hosts among those whose pages nobody on the way reads.
    dssl: Option<Dssl>,
    /// Connections that were answered so.
    met: Cell<u64>,
    /// Lines about browsers that do not trust the CA.
    distrust: Throttle,
    /// Rings when an object has come, or will not.
    changed: Notify,
    requests: Cell<u64>,
    /// A server without pages is in the log.
    lacking_told: Cell<bool>,
    attendance: Rc<Attendance>,
}

impl Pages {
    /// Pages of a client with this configuration, which shows `key` to origins of DSSL and stops when `attendance` says so; `None`: none
    /// are fetched ahead.
    ///
    /// # Errors
    /// Nobody's certificates would be believed, and some have to be.
    pub(crate) fn new(
        config: &ClientConfig,
        key: &PrivateKey,
        attendance: &Rc<Attendance>,
    ) -> Result<Option<Rc<Self>>, RunError> {
        let (web, dssl) = (&config.front.web, Dssl::new(&config.front.dssl, key)?);
        let names = config.front.answered_names();
        let trusted = !names.is_empty();
        Ok((web.prefetch || dssl.is_some()).then(|| {
            Rc::new(Self {
                store: RefCell::default(),
                trusted: trusted.then(|| Trusted::new(names, &config.state_dir)),
                clear: web.prefetch,
                dssl,
                met: Cell::default(),
                distrust: Throttle::new(),
                changed: Notify::default(),
                requests: Cell::default(),
                lacking_told: Cell::default(),
                attendance: attendance.clone(),
            })
        }))
    }

    /// Scheme of the pages that a connection to `destination` may carry, if it may carry some.
    pub(crate) fn scheme_of(&self, destination: &Destination) -> Option<Scheme> {
        match destination.port {
            PORT if self.clear => Some(Scheme::Http),
            TLS_PORT if self.trusted.is_some() => Some(Scheme::Https),
            _ => None,
        }
    }

    /// Answers a browser until its connection is over, or says something else than plain GETs.
    pub(crate) async fn serve(
        self: &Rc<Self>,
        road: &impl PageRoad,
        browser: &mut Browser,
    ) -> Ending {
        loop {
            let request = match browser.next_request(&self.attendance).await {
                Next::Get(request) => request,
                Next::Plain => return Ending::Plain,
                Next::End => return Ending::Over(browser.close().await),
                Next::Lost => return Ending::Over(Outcome::LanReset),
            };
            let owner = browser.owner();
            let stored = tokio::select! {
                stored = self.stored(&owner, &request, browser.is_sealed()) => stored,
                () = browser.lost() => return Ending::Over(Outcome::LanReset),
            };
            let answered = match stored {
                Some(answer) => {
                    browser
                        .write_all(&answer.bytes)
                        .await
                        .map(|()| match answer.close {
                            true => Closing::InOrder,
                            false => Closing::Open,
                        })
                }
                None if browser.is_sealed() => dssl::fetch(self, road, browser, &request).await,
                None if !self.are_carried(road, browser).await => {
                    browser.put_back(&request);
                    return Ending::Plain;
                }
                None => self.fetch(road, browser, &request).await,
            };
            match answered {
                Ok(close) if close.closes() || request.closes() => {
                    return Ending::Over(browser.end(close).await);
                }
                Ok(_) => {}
                Err(Gone(outcome)) => return Ending::Over(outcome),
            }
        }
    }

    /// True if there is a server that knows pages. Without a server a flow is the better one to wait.
    async fn are_carried(&self, road: &impl PageRoad, browser: &Browser) -> bool {
        if browser.name().is_some() {
            return road.carries_trusted().await;
        }
        let carries = road.carries_pages().await;
        if carries == Some(false) {
            self.tell_lacking(
                "the server fetches nothing ahead of pages: they load as without `[web]`; give it `[web]` with `prefetch = true`",
            );
        }
        carries.unwrap_or(false)
    }

    /// Tells the log, once, of a server that fetches less than is wanted.
    fn tell_lacking(&self, line: &str) {
        if !self.lacking_told.replace(true) {
            tracing::info!("{line}");
        }
    }

    /// True if objects may be promised to `owner` of which no promise has come.
    fn may_be_promised(&self, owner: &Owner) -> bool {
        let dssl = self.dssl.as_ref();
        dssl.is_some_and(|dssl| dssl.expects(owner))
    }

    /// Relays the rest of a browser's connection in TLS to its end.
    pub(crate) async fn relay(
        self: &Rc<Self>,
        parts: TrustedParts,
        road: &impl PageRoad,
    ) -> Outcome {
        match parts.sealed {
            true => dssl::relay(self, parts, road).await,
            false => parts.relay(road).await,
        }
    }

    /// Answer that has come for a request ahead, or is promised and comes now.
    async fn stored(&self, owner: &Owner, request: &Request, sealed: bool) -> Option<Answer> {
        // Of DSSL a promise and the page come by two connections, and either may be the first.
        let now = Instant::now();
        let held = (sealed && !request.is_page()).then(|| now + EITHER_FIRST);
        let patience = Patience::new(now, sealed);
        loop {
            let changed = self.changed.notified();
            let asked = self.store.borrow_mut().ask(process::now(), owner, request);
            match asked {
                Asked::Ready(answer) => return Some(answer),
                Asked::Absent => {
                    let until = held.filter(|until| Instant::now() < *until)?;
                    if !self.may_be_promised(owner) {
                        return None;
                    }
                    let _ = timeout_at(until, changed).await;
                }
                Asked::Promised {
                    moved,
                    turned,
                    endless,
                } => {
                    let moments = (moved.into(), turned.into());
                    let endless = endless.map(|(began, abreast)| (began.into(), abreast));
                    let until = patience.until(moments, endless);
                    if Instant::now() >= until {
                        self.store.borrow_mut().give_up(owner, request);
                        self.changed.notify_waiters();
                        return None;
                    }
                    let _ = timeout_at(until, changed).await;
                }
            }
        }
    }

    /// Asks the server, and gives the browser what comes; says how its connection ends with that.
    async fn fetch(
        self: &Rc<Self>,
        road: &impl PageRoad,
        browser: &mut Browser,
        request: &Request,
    ) -> Result<Closing, Gone> {
        let mut first = Vec::with_capacity(request.head().len() + 8);
        if let Some(name) = browser.name() {
            Frame::Tls(Bytes::copy_from_slice(name.as_bytes())).encode(&mut first);
        }
        Frame::Request(request.head().clone()).encode(&mut first);
        let (destination, source) = (browser.destination(), browser.source());
        let opened = road.open_page(destination, source, first.into()).await;
        let handle = opened.map_err(Gone)?;
        let (ours, theirs) = duplex(PIPE);
        let ended = Rc::new(Cell::new(Outcome::TunnelLost));
        let relayed = ended.clone();
        spawn_local(async move { relayed.set(relay_in_process(handle, theirs).await) });
        self.requests.set(self.requests.get() + 1);
        let owner = browser.owner();
        let page = self.store.borrow_mut().begin(owner, request.clone());
        let (to_browser, frames) = mpsc::channel(QUEUE);
        spawn_local(self.clone().receive(page, ours, to_browser));
        match browser.deliver(frames, self.trusted.as_ref()).await {
            Ok(Some(close)) => Ok(close),
            // The relay has ended before its pipe has.
            Ok(None) => Err(Gone(ended.get())),
            Err(gone) => Err(gone),
        }
    }

    /// Gives the store what has come of an object; false if the server breaks the protocol.
    fn keep(&self, page: PageId, frame: Frame) -> bool {
        // Who waits hears what the head says, and not what each piece brings.
        let news = !matches!(frame, Frame::Promise { .. } | Frame::Data { .. });
        let now = process::now();
        let kept = self.store.borrow_mut().on_frame(now, page, frame);
        if news {
            self.changed.notify_waiters();
        }
        kept
    }

    /// No more comes of a page's objects.
    fn end(&self, page: PageId) {
        self.store.borrow_mut().end(page);
        self.changed.notify_waiters();
    }

    /// Drops what nobody has asked for; to be called every second.
    pub(super) fn tick(&self) {
        if let Some(trusted) = &self.trusted {
            trusted.look();
        }
        if let Some(dssl) = &self.dssl {
            dssl.tick();
        }
        self.store.borrow_mut().sweep(process::now());
    }

    /// Ends what no browser waits for, because the client is about to stop.
    pub(super) fn rest(&self) {
        if let Some(dssl) = &self.dssl {
            dssl.rest();
        }
    }

    /// Figures for `status`.
    pub(crate) fn report(&self) -> status::PagesAhead {
        let store = self.store.borrow();
        let figures = store.figures();
        status::PagesAhead {
            requests_total: self.requests.get(),
            pages_total: figures.pages,
            promised_total: figures.promised,
            used_total: figures.used,
            used_bytes_total: figures.used_bytes,
            wasted_bytes_total: figures.wasted_bytes,
            unequal_total: figures.unequal,
            expired_total: figures.expired,
            failed_total: figures.failed,
            trusted_total: self.met.get(),
            bytes_held: store.bytes(),
            sealed: self.dssl.as_ref().map(Dssl::counts).unwrap_or_default(),
            // The rest is a server's.
            ..status::PagesAhead::default()
        }
    }
}
