//! Origins of DSSL (`PROTOCOL.md` §21): pages by connections from end to end, objects sealed by a hub that cannot open them.
//!
//! ```text
//!  browser ══ local CA ══ serve ── GET ──► K1 ═══════ flow of the tunnel ═══════► origin
//!                           ▲              │ name of the session                    │
//!                         store ◄──── line ◄═════╧═ stream: PROMISE, DATA ═══ hub ◄═══════╛ sealed
//! ```
//!
//! A host that does not speak DSSL, or cannot be believed, is not answered for: its connections go on untouched, and the browser
//! judges it.

mod k1;
mod line;
mod pool;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::Destination;
use bentpipe_sealed::dssl::{ALPN_K1, Mode};
use bentpipe_web::{Closing, Frame, Part, Request};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;

use super::browser::{Browser, Gone, TrustedParts};
use super::{HubAtHand, Owner, PageRoad, Pages, QUEUE};
use crate::asked::{AskedStream, NextPart};
use crate::config::{ClientDssl, TrustedName};
use crate::keys::PrivateKey;
use crate::process::{self, RunError};
use crate::relay::Outcome;
use crate::status::SealedPages;
use crate::throttle::Throttle;
use crate::trust::trust_shown;
use k1::{K1, K1Tls, NoK1, connect};
use pool::K1Pool;

/// Time for which a host that does not speak DSSL is not asked again.
const ABSENT: Duration = Duration::from_secs(600);

/// Time for which a host that does is believed to do so still.
const KNOWN: Duration = Duration::from_secs(60);

/// Hosts that something is remembered of.
const MAX_KNOWN: usize = 256;

/// Origins of DSSL, and connections to them.
pub(super) struct Dssl {
    origins: Vec<TrustedName>,
    mode: Mode,
    tls: TlsConnector,
    pool: K1Pool,
    /// Hosts that speak DSSL or do not, by the address that was asked, and until when that holds.
    known: RefCell<HashMap<(Destination, String), (bool, Instant)>>,
    complaints: Throttle,
    sessions: Cell<u64>,
    dropped: Cell<u64>,
    /// Sessions for which the hub brought no key.
    keyless: Cell<u64>,
    keyless_complaint: Throttle,
}

impl Dssl {
    /// Ends connections that have waited long enough; to be called every second.
    pub(super) fn tick(&self) {
        self.pool.sweep();
    }

    /// Ends connections that wait for another request: a stop waits for none of them.
    pub(super) fn rest(&self) {
        self.pool.close();
    }

    /// Origins of `config`, to which `key` is shown; `None`: there are none.
    ///
    /// # Errors
    /// There is no authority by which one could be believed.
    pub(super) fn new(config: &ClientDssl, key: &PrivateKey) -> Result<Option<Self>, RunError> {
        if config.origins.is_empty() {
            return Ok(None);
        }
        // Who speaks no DSSL says so in order, instead of refusing all protocols.
        let tls = trust_shown(&config.roots, key, &[ALPN_K1, b"http/1.1"])?;
        Ok(Some(Self {
            origins: config.origins.clone(),
            mode: config.mode,
            tls: tls.into(),
            pool: K1Pool::default(),
            known: RefCell::default(),
            complaints: Throttle::new(),
            sessions: Cell::default(),
            dropped: Cell::default(),
            keyless: Cell::default(),
            keyless_complaint: Throttle::new(),
        }))
    }

    /// True if the host of this name may be an origin.
    pub(super) fn lists(&self, name: &str) -> bool {
        self.origins.iter().any(|origin| origin.as_str() == name)
    }

    /// Sessions so far, and objects of them that were dropped.
    pub(super) fn counts(&self) -> SealedPages {
        SealedPages {
            sessions_total: self.sessions.get(),
            dropped_total: self.dropped.get(),
            keyless_total: self.keyless.get(),
            ..SealedPages::default()
        }
    }

    /// True if promises to `owner` may be under way.
    pub(super) fn expects(&self, owner: &Owner) -> bool {
        self.pool.expects(owner)
    }

    fn remember(&self, destination: &Destination, name: &str, speaks: bool) {
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let until = process::now() + if speaks { KNOWN } else { ABSENT };
        known.insert((destination.clone(), name.to_owned()), (speaks, until));
    }

    /// True if the host speaks DSSL, as far as is known.
    fn recall(&self, destination: &Destination, name: &str) -> Option<bool> {
        let known = self.known.borrow();
        let (speaks, until) = known.get(&(destination.clone(), name.to_owned()))?;
        (*until > process::now()).then_some(*speaks)
    }

    /// Tells the log of a host whose pages load without DSSL.
    fn tell_absent(&self, name: &str, why: &NoK1) {
        if self.complaints.is_due(process::now()) {
            tracing::warn!("{name} loads without DSSL: {why}; its connections are not touched");
        }
    }

    /// Counts a session for which the hub brought no key, and tells the log.
    fn note_keyless(&self, name: &str) {
        self.keyless.set(self.keyless.get() + 1);
        if self.keyless_complaint.is_due(process::now()) {
            tracing::warn!(
                "pages of {name} come without objects: the server brought no key of DSSL; its log and the origin's say why"
            );
        }
    }

    /// Counts an object that was dropped, and tells the log.
    fn note_dropped(&self, why: &str) {
        self.dropped.set(self.dropped.get() + 1);
        if self.complaints.is_due(process::now()) {
            tracing::warn!(
                "the server, as a hub of DSSL, {why}: dropped, and asked for from the origin"
            );
        }
    }
}

/// True if the origin `name` at `place` speaks DSSL and can be believed, as far as is known, or as is found out by connecting to it.
pub(super) async fn is_spoken(
    pages: &Rc<Pages>,
    road: &impl PageRoad,
    place: &(Destination, Option<SocketAddr>),
    name: &str,
) -> bool {
    let Some(dssl) = &pages.dssl else {
        return false;
    };
    if let Some(speaks) = dssl.recall(&place.0, name) {
        return speaks;
    }
    match road.hub() {
        HubAtHand::Here(_) => {}
        // Nobody knows yet whether the server is a hub.
        HubAtHand::NoTunnel => return false,
        HubAtHand::NoHub => {
            dssl.tell_absent(name, &NoK1::NoHub);
            return false;
        }
    }
    match connect(pages, road, place, name, true).await {
        Ok(k1) => {
            dssl.pool.put(owner(place), name, k1);
            true
        }
        Err(fault) => {
            dssl.tell_absent(name, &fault);
            if fault.is_word_of_origin() {
                dssl.remember(&place.0, name, false);
            }
            false
        }
    }
}

/// Asks the origin, and gives the browser what comes; says how its connection ends with that.
pub(super) async fn fetch(
    pages: &Rc<Pages>,
    road: &impl PageRoad,
    browser: &mut Browser,
    request: &Request,
) -> Result<Closing, Gone> {
    let place = (browser.destination().clone(), browser.source());
    let name = browser.name().unwrap_or_default().to_owned();
    let asked = tokio::select! {
        asked = ask(pages, road, &place, &name, request) => asked,
        () = browser.left() => return Err(Gone(Outcome::LanReset)),
    };
    let (k1, answering) = asked.map_err(|fault| Gone(fault.outcome()))?;
    pages.requests.set(pages.requests.get() + 1);
    let (to_browser, frames) = mpsc::channel(QUEUE);
    spawn_local(answer(
        pages.clone(),
        k1,
        answering,
        (owner(&place), name),
        to_browser,
    ));
    match browser.deliver(frames, None).await? {
        Some(close) => Ok(close),
        None => Err(Gone(Outcome::PeerReset)),
    }
}

/// Sends a request, by a connection that waits or a new one, and waits for the beginning of an answer.
async fn ask(
    pages: &Rc<Pages>,
    road: &impl PageRoad,
    place: &(Destination, Option<SocketAddr>),
    name: &str,
    request: &Request,
) -> Result<(K1, (AskedStream<K1Tls>, NextPart)), NoK1> {
    let dssl = pages.dssl.as_ref().ok_or(NoK1::Absent)?;
    let page = request.is_page();
    let waiting = dssl.pool.take(&owner(place), name, page);
    if let Some(k1) = waiting
        && let Ok(asked) = ask_by(pages, k1, &owner(place), request).await
    {
        return Ok(asked);
    }
    // None was there, or it had waited too long.
    let k1 = connect(pages, road, place, name, page).await?;
    let asked = ask_by(pages, k1, &owner(place), request).await;
    asked.map_err(|_| NoK1::Unreached(Outcome::PeerReset))
}

async fn ask_by(
    pages: &Pages,
    mut k1: K1,
    owner: &Owner,
    request: &Request,
) -> std::io::Result<(K1, (AskedStream<K1Tls>, NextPart))> {
    let number = k1.count();
    if let Some(line) = k1
        .line()
        .filter(|line| line.is_alive() && request.is_page())
    {
        let page = pages
            .store
            .borrow_mut()
            .begin(owner.clone(), request.clone());
        line.begin(pages, number, page);
        if let Some(dssl) = &pages.dssl {
            dssl.pool.note(owner, Some(line));
        }
    }
    k1.tell_request();
    let tls = k1.take_tls()?;
    let mut asked = AskedStream::send(tls, request.head()).await?;
    let next = asked.next().await?;
    match next {
        NextPart::Ended(_) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        next @ NextPart::Part(_) => Ok((k1, (asked, next))),
    }
}

/// Gives a browser's connection the answer to its request while it comes.
async fn answer(
    pages: Rc<Pages>,
    mut k1: K1,
    (mut asked, mut next): (AskedStream<K1Tls>, NextPart),
    (owner, name): (Owner, String),
    to_browser: mpsc::Sender<Frame>,
) {
    let id = bentpipe_web::PAGE;
    loop {
        let frame = match next {
            NextPart::Part(Part::Interim(bytes) | Part::Head(_, bytes)) => {
                Frame::Head { id, bytes }
            }
            NextPart::Part(Part::Body(bytes, _)) => Frame::Data { id, bytes },
            NextPart::Part(Part::End(false)) => {
                let waits = asked.into_stream();
                if let (Some(dssl), Some(tls)) = (&pages.dssl, waits) {
                    k1.give_back(tls);
                    dssl.pool.put(owner, &name, k1);
                }
                let close = Closing::Open;
                let _ = to_browser.send(Frame::End { id, close }).await;
                return;
            }
            NextPart::Part(Part::End(true)) | NextPart::Ended(true) => {
                let close = Closing::InOrder;
                let _ = to_browser.send(Frame::End { id, close }).await;
                return k1.linger().await;
            }
            NextPart::Ended(false) => Frame::Failed { id },
        };
        let failed = matches!(frame, Frame::Failed { .. });
        if to_browser.send(frame).await.is_err() || failed {
            return;
        }
        next = match asked.next().await {
            Ok(next) => next,
            Err(_) => NextPart::Ended(false),
        };
    }
}

/// Relays the rest of a browser's connection in TLS to its end.
pub(super) async fn relay(pages: &Rc<Pages>, parts: TrustedParts, road: &impl PageRoad) -> Outcome {
    let TrustedParts {
        mut speech,
        place,
        unread,
        ..
    } = parts;
    let name = speech.name().unwrap_or_default().to_owned();
    let mut tls = match connect(pages, road, &place, &name, false).await {
        Ok(mut k1) => match k1.take_tls() {
            Ok(tls) => tls,
            Err(_) => return Outcome::PeerReset,
        },
        Err(fault) => return fault.outcome(),
    };
    if tls.write_all(&unread).await.is_err() {
        return Outcome::PeerReset;
    }
    match copy_bidirectional(&mut speech.stream(), &mut tls).await {
        Ok(_) => {
            speech.cut();
            Outcome::Closed
        }
        Err(_) => Outcome::PeerReset,
    }
}

fn owner((destination, source): &(Destination, Option<SocketAddr>)) -> Owner {
    (source.map(|source| source.ip()), destination.clone())
}
