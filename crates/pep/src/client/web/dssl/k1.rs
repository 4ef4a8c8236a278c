//! K1 connections: TLS with an origin through a flow of the tunnel, and the handshakes before the first request.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_sealed::dssl::{
    ALPN_K1, DsslHello, Mode, ObjectId, Secrets, SessionId, Terminal, TerminalStep,
};
use bentpipe_web::Frame;
use bytes::Bytes;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::line::ObjectLine;
use super::{Dssl, HubAtHand, PageRoad, Pages};
use crate::asked::is_quiet;
use crate::process;
use crate::relay::{FlowHandle, Outcome, PIPE, relay_in_process};

/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Time for which objects may come once their page's connection has ended.
const LINGER: Duration = Duration::from_secs(20);

/// Time that a hub has to answer OPEN.
const OPENING: Duration = Duration::from_secs(10);

/// TLS inside of a flow.
pub(super) type K1Tls = TlsStream<DuplexStream>;

/// Reason why there is no K1 connection.
pub(super) enum NoK1 {
    /// The host's certificate is not to be believed, or its TLS is of another kind.
    Tls(io::Error),
    /// The host speaks no DSSL.
    Absent,
    /// The server is no hub.
    NoHub,
    /// The host cannot be connected to.
    Unreached(Outcome),
}

impl NoK1 {
    /// True if the host itself has said so: another attempt soon would say the same.
    pub(super) const fn is_word_of_origin(&self) -> bool {
        match self {
            Self::Tls(_) | Self::Absent => true,
            Self::NoHub | Self::Unreached(_) => false,
        }
    }

    /// End of a browser's connection for want of one.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Unreached(outcome) => *outcome,
            Self::Tls(_) | Self::Absent | Self::NoHub => Outcome::PeerReset,
        }
    }
}

impl fmt::Display for NoK1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => write!(f, "{error}"),
            Self::Absent => f.write_str("its web server does not speak it"),
            Self::NoHub => f.write_str("the server is no hub; give its `[web]` `hub = true`"),
            Self::Unreached(outcome) => write!(f, "it cannot be reached ({outcome:?})"),
        }
    }
}

/// A K1 connection, and its line to the hub.
pub(super) struct K1 {
    tls: Option<K1Tls>,
    line: Option<(Rc<ObjectLine>, mpsc::UnboundedSender<Frame>)>,
    requests: u32,
}

impl K1 {
    /// A connection that no hub has to do with.
    fn without_hub(tls: K1Tls) -> Self {
        Self {
            tls: Some(tls),
            line: None,
            requests: 0,
        }
    }

    /// Number of the next request, counted.
    pub(super) fn count(&mut self) -> u32 {
        let number = self.requests;
        self.requests += 1;
        if self.requests >= ObjectId::PAGES {
            self.line = None;
        }
        number
    }

    /// Line by which objects come, if the connection has one.
    pub(super) fn line(&self) -> Option<&Rc<ObjectLine>> {
        self.line.as_ref().map(|(line, _)| line)
    }

    /// A request leaves: in some modes the hub hears of the session with it.
    pub(super) fn tell_request(&self) {
        if let Some((line, to_hub)) = &self.line {
            let steps = line.terminal().borrow_mut().on_request(process::now());
            for step in steps {
                if let TerminalStep::NameSession(session) = step {
                    // It is gone, if nobody takes it.
                    let _ = to_hub.send(named(session));
                }
            }
        }
    }

    /// The connection, for one request.
    pub(super) fn take_tls(&mut self) -> io::Result<K1Tls> {
        self.tls
            .take()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// True if the origin has neither ended the connection nor said something unasked.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.tls.as_mut().is_some_and(is_quiet)
    }

    /// The connection may be used again.
    pub(super) fn give_back(&mut self, tls: K1Tls) {
        self.tls = Some(tls);
    }

    /// Keeps the line for objects that are under way.
    pub(super) async fn linger(self) {
        if let Some((line, _)) = &self.line {
            let _ = timeout(LINGER, line.ended()).await;
        }
    }
}

fn named(session: SessionId) -> Frame {
    Frame::Hub(Bytes::copy_from_slice(session.bytes()))
}

/// Parts of a K1 connection that its handshakes have brought so far.
#[derive(Default)]
struct OpenedK1 {
    tls: Option<K1Tls>,
    stream: Option<DuplexStream>,
    requesting: bool,
}

/// Hub that brings `objects`, if some are wanted.
fn hub_for(road: &impl PageRoad, objects: bool) -> HubAtHand {
    match objects {
        true => road.hub(),
        false => HubAtHand::NoHub,
    }
}

/// Connects to the origin `name` at `place`, for a page with `objects` or for anything else.
pub(super) async fn connect(
    pages: &Rc<Pages>,
    road: &impl PageRoad,
    place: &(Destination, Option<SocketAddr>),
    name: &str,
    objects: bool,
) -> Result<K1, NoK1> {
    let dssl = pages.dssl.as_ref().ok_or(NoK1::Absent)?;
    let HubAtHand::Here(hub) = hub_for(road, objects) else {
        let tls = dssl.open_k1(road, place, name, None).await?;
        return Ok(K1::without_hub(tls));
    };
    let mut terminal = Terminal::new(dssl.mode, name);
    let (to_hub, words) = mpsc::unbounded_channel();
    let mut steps = VecDeque::from(terminal.begin());
    let mut opened = OpenedK1::default();
    while let Some(step) = steps.pop_front() {
        let next = match step {
            TerminalStep::OpenStream(at_once) => {
                opened.stream = dssl.open_stream(road, place, name, at_once).await;
                let now = process::now();
                match opened.stream {
                    Some(_) => terminal.on_stream(now),
                    None => terminal.on_hub_lost(now),
                }
            }
            TerminalStep::OpenK1 => {
                let tls = dssl.open_k1(road, place, name, Some(hub)).await?;
                let secrets = secrets(&tls, &hub).map_err(NoK1::Tls)?;
                opened.tls = Some(tls);
                terminal.on_k1(process::now(), secrets)
            }
            TerminalStep::NameSession(session) => {
                let _ = to_hub.send(named(session));
                Vec::new()
            }
            TerminalStep::Request => {
                opened.requesting = true;
                Vec::new()
            }
        };
        steps.extend(next);
    }
    dssl.sessions.set(dssl.sessions.get() + 1);
    let line = ObjectLine::start(terminal, opened.stream, |line, stream| {
        spawn_local(line.attend(pages.clone(), stream, words));
    });
    if !opened.requesting {
        line.until_requests().await;
    }
    Ok(K1 {
        tls: opened.tls,
        line: Some((line, to_hub)),
        requests: 0,
    })
}

impl Dssl {
    /// Opens the stream to the hub; `None`: there is none.
    async fn open_stream(
        &self,
        road: &impl PageRoad,
        (destination, source): &(Destination, Option<SocketAddr>),
        name: &str,
        at_once: bool,
    ) -> Option<DuplexStream> {
        let mut first = Vec::new();
        Frame::Tls(Bytes::copy_from_slice(name.as_bytes())).encode(&mut first);
        if at_once {
            Frame::Hub(Bytes::new()).encode(&mut first);
        }
        let opened = road.open_page(destination, *source, first.into()).await;
        let handle = opened.ok()?;
        if self.mode != Mode::Quick {
            timeout(OPENING, handle.reply()).await.ok()?.ok()?;
        }
        Some(piped(handle))
    }

    /// Opens a K1 connection whose objects `hub` may have, and says so to the origin.
    async fn open_k1(
        &self,
        road: &impl PageRoad,
        (destination, source): &(Destination, Option<SocketAddr>),
        name: &str,
        hub: Option<[u8; 32]>,
    ) -> Result<K1Tls, NoK1> {
        let opened = road.open_flow(destination, *source).await;
        let pipe = piped(opened.map_err(NoK1::Unreached)?);
        let server = ServerName::try_from(name.to_owned()).map_err(|_| NoK1::Absent)?;
        let shaken = timeout(HANDSHAKE, self.tls.connect(server, pipe)).await;
        let lost = |_| NoK1::Unreached(Outcome::PeerReset);
        let mut tls = match shaken.map_err(lost)? {
            Ok(tls) => tls,
            Err(error) if error.get_ref().is_some_and(|it| it.is::<rustls::Error>()) => {
                return Err(NoK1::Tls(error));
            }
            Err(_) => return Err(NoK1::Unreached(Outcome::PeerReset)),
        };
        if tls.get_ref().1.alpn_protocol() != Some(ALPN_K1) {
            return Err(NoK1::Absent);
        }
        let hello = DsslHello { hub }.encode();
        let said = async {
            tls.write_all(&hello).await?;
            tls.flush().await
        };
        said.await
            .map_err(|_| NoK1::Unreached(Outcome::PeerReset))?;
        self.remember(destination, name, true);
        Ok(tls)
    }
}

/// Other end of a pipe that a flow is relayed to.
fn piped(handle: FlowHandle) -> DuplexStream {
    let (ours, theirs) = duplex(PIPE);
    spawn_local(relay_in_process(handle, theirs));
    ours
}

fn secrets(tls: &K1Tls, hub: &[u8; 32]) -> io::Result<Secrets> {
    let tls = tls.get_ref().1;
    let exported = Secrets::export(hub, |label, context, out| {
        tls.export_keying_material(out, label, Some(context))
            .map(drop)
    });
    exported.map_err(io::Error::other)
}

impl ObjectLine {
    /// Waits until requests may go.
    pub(super) async fn until_requests(&self) {
        loop {
            let (changed, now) = (self.changed().notified(), process::now());
            let deadline = self.terminal().borrow().deadline();
            let Some(deadline) = deadline.filter(|_| !self.may_request()) else {
                return;
            };
            tokio::select! {
                () = changed => {}
                () = sleep(deadline.saturating_duration_since(now)) => {
                    let steps = self.terminal().borrow_mut().handle_timeout(process::now());
                    self.obey(&steps);
                }
            }
        }
    }
}
