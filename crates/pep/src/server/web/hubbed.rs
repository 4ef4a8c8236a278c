//! A hub's part of a session of DSSL (`PROTOCOL.md` §21): a connection to the origin by which links come that it can read, and
//! objects that it cannot.

use std::io;

use bentpipe_proto::tunnel::ReplyCode;
use bentpipe_sealed::dssl::{
    ALPN_HUB, HubDropped, HubFrameReader, HubNews, HubSession, MAX_HUB_FRAME, SessionId,
};
use bentpipe_web::{Frame, FrameReader, PAGE};
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::origins::ReachedOrigin;
use super::secure::HANDSHAKE;
use super::{PageClient, REQUEST, ServedPages};

/// Sessions of one client at one time; pages of those beyond come without objects.
const MAX_HUBS: usize = 16;

/// Connection to an origin, or the reason why there is none, which the terminal hears by its own connection.
pub(super) trait ReachingOrigin: Future<Output = Result<ReachedOrigin, ReplyCode>> {}

impl<T: Future<Output = Result<ReachedOrigin, ReplyCode>>> ReachingOrigin for T {}

/// End of a session: nothing more of it comes.
struct HubOver;

impl From<io::Error> for HubOver {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Terminal's stream.
struct TerminalStream {
    frames: FrameReader,
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
}

/// Serves a stream whose terminal has named the origin, and perhaps its `session`; `reached` may still be on its way.
pub(super) async fn serve(
    pages: &ServedPages,
    peer: &PageClient,
    (reached, name): (impl ReachingOrigin, ServerName<'static>),
    session: Option<SessionId>,
    (frames, read, write): (FrameReader, ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
) {
    let admitted = pages.account(peer.id, |account| {
        let admitted = account.hubs < MAX_HUBS;
        account.hubs += usize::from(admitted);
        account.crowded += u64::from(!admitted);
        admitted
    });
    let mut stream = TerminalStream {
        frames,
        read,
        write,
    };
    if admitted {
        let leave = LeaveHub { pages, peer };
        let served = Box::pin(attend(pages, peer, (reached, name), session, &mut stream));
        let Err(HubOver) = served.await;
        drop(leave);
    } else {
        note_crowded(pages, peer, &name);
    }
    // A terminal that has gone is told nothing.
    let _ = stream.say(&Frame::Failed { id: PAGE }).await;
}

/// Counts a session out.
struct LeaveHub<'a> {
    pages: &'a ServedPages,
    peer: &'a PageClient,
}

impl Drop for LeaveHub<'_> {
    fn drop(&mut self) {
        let leave = |account: &mut super::Account| account.hubs = account.hubs.saturating_sub(1);
        self.pages.account(self.peer.id, leave);
    }
}

/// Connects to the origin, asks for K2, and hands on what comes.
async fn attend(
    pages: &ServedPages,
    peer: &PageClient,
    (reached, name): (impl ReachingOrigin, ServerName<'static>),
    session: Option<SessionId>,
    stream: &mut TerminalStream,
) -> Result<std::convert::Infallible, HubOver> {
    let shown = name.to_str().into_owned();
    let (origin, session) = tokio::try_join!(connect(pages, peer, reached, name), async {
        match session {
            Some(session) => Ok(session),
            None => timeout(REQUEST, stream.session())
                .await
                .map_err(|_| HubOver)?,
        }
    })?;
    let (mut origin, mut hub) = (origin, HubSession::new(session));
    // An origin that has refused this server is heard below.
    let _ = say(&mut origin, &[hub.request()]).await;
    let (mut reader, mut bytes) = (HubFrameReader::new(MAX_HUB_FRAME), vec![0; 16 * 1024]);
    let mut keyed = false;
    loop {
        let read = tokio::select! {
            read = origin.read(&mut bytes) => {
                read.inspect_err(|error| note_denied(pages, peer, &shown, error))?
            }
            // The terminal has gone, or says what it may not.
            _ = stream.read.read_u8() => return Err(HubOver),
        };
        if read == 0 {
            return Err(HubOver);
        }
        reader.push(&bytes[..read]);
        while let Some(frame) = reader.read().map_err(|_| HubOver)? {
            match hub.on_frame(frame) {
                Ok(HubNews::Refused) => {
                    if !keyed {
                        note_keyless(pages, peer, &shown);
                    }
                    return Err(HubOver);
                }
                Ok(news) => {
                    if matches!(news, HubNews::Ready(_)) {
                        keyed = true;
                        pages.account(peer.id, |account| account.sealed.sessions_total += 1);
                    }
                    hand_on(&hub, news, stream, &mut origin).await?;
                }
                Err(fault) => {
                    note_dropped(pages, peer, &fault);
                    if hub.is_over() {
                        return Err(HubOver);
                    }
                }
            }
        }
    }
}

/// Tells the log of a client that has as many sessions as it may; the session is counted already.
fn note_crowded(pages: &ServedPages, peer: &PageClient, origin: &ServerName<'_>) {
    if pages.hub_complaints.is_due(crate::process::now()) {
        tracing::warn!(
            client = peer.client.name,
            "{} comes without objects: the client has {MAX_HUBS} sessions of DSSL at this time",
            origin.to_str()
        );
    }
}

/// Counts an origin that this server has no connection to for a client, and tells the log.
fn note_unreached(pages: &ServedPages, peer: &PageClient, origin: &str, why: &str) {
    pages.account(peer.id, |account| account.sealed.unreached_total += 1);
    if pages.hub_complaints.is_due(crate::process::now()) {
        tracing::warn!(
            client = peer.client.name,
            "{origin} cannot be reached as a hub of DSSL: {why}; its pages come without objects"
        );
    }
}

/// Counts an origin that has refused this server's key, and tells the log.
fn note_denied(pages: &ServedPages, peer: &PageClient, origin: &str, error: &io::Error) {
    let fault = error.get_ref().and_then(|it| it.downcast_ref());
    let denied = rustls::Error::AlertReceived(AlertDescription::AccessDenied);
    if fault != Some(&denied) {
        return;
    }
    pages.account(peer.id, |account| account.sealed.unlisted_total += 1);
    if pages.hub_complaints.is_due(crate::process::now()) {
        tracing::warn!(
            "{origin} does not list this server as a hub of DSSL: its pages come without objects; have its operator add this server's \
             public key to `hubs`"
        );
    }
}

/// Counts a session that the origin has given no key of, and tells the log.
fn note_keyless(pages: &ServedPages, peer: &PageClient, origin: &str) {
    pages.account(peer.id, |account| account.sealed.keyless_total += 1);
    if pages.hub_complaints.is_due(crate::process::now()) {
        let name = &peer.client.name;
        tracing::warn!(
            client = name,
            "{origin} gives no key of DSSL for this client's pages: they come without objects; its log says why, perhaps its `clients` lists \
             others"
        );
    }
}

fn note_dropped(pages: &ServedPages, peer: &PageClient, fault: &HubDropped) {
    pages.account(peer.id, |account| account.sealed.dropped_total += 1);
    if pages.complaints.is_due(crate::process::now()) {
        let name = &peer.client.name;
        tracing::warn!(
            client = name,
            "what an origin of DSSL sent was dropped: {fault}"
        );
    }
}

async fn hand_on(
    hub: &HubSession,
    news: HubNews,
    stream: &mut TerminalStream,
    origin: &mut TlsStream<TcpStream>,
) -> Result<(), HubOver> {
    match news {
        HubNews::Ready(proof) => {
            let proof = bytes::Bytes::copy_from_slice(&proof);
            stream.say(&Frame::Ready(proof)).await
        }
        HubNews::Links(links) => {
            let mut fetches = Vec::new();
            for link in links {
                let id = link.id.get().into();
                let target = link.target.into();
                stream.say(&Frame::Promise { id, target }).await?;
                fetches.push(hub.fetch(link.id));
            }
            say(origin, &fetches).await
        }
        HubNews::Object(id, chunk, sealed) => {
            let bytes = [&chunk.get().to_be_bytes()[..], &sealed].concat().into();
            let id = id.get().into();
            stream.say(&Frame::Data { id, bytes }).await
        }
        HubNews::Failed(id) => {
            stream
                .say(&Frame::Failed {
                    id: id.get().into(),
                })
                .await
        }
        HubNews::Refused => Err(HubOver),
    }
}

async fn say(
    origin: &mut TlsStream<TcpStream>,
    frames: &[bentpipe_sealed::dssl::HubFrame],
) -> Result<(), HubOver> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    origin.write_all(&bytes).await?;
    Ok(origin.flush().await?)
}

/// Connection to the origin on which this server has shown its key.
async fn connect(
    pages: &ServedPages,
    peer: &PageClient,
    reached: impl ReachingOrigin,
    name: ServerName<'static>,
) -> Result<TlsStream<TcpStream>, HubOver> {
    let tls = pages.hub.as_ref().ok_or(HubOver)?;
    let unreached = |why: &str| {
        note_unreached(pages, peer, &name.to_str(), why);
        HubOver
    };
    let reached = reached.await;
    let tcp = match reached.map_err(|code| unreached(&format!("{code:?}")))? {
        ReachedOrigin::Fresh(tcp, _) => tcp,
        ReachedOrigin::Waiting(origin) => {
            let to = origin.to;
            pages.origins.put(peer.id, origin);
            let tcp = pages.dialled_again(peer, to).await;
            tcp.ok_or_else(|| unreached("it takes no further connection"))?
        }
    };
    let shaken = timeout(HANDSHAKE, tls.connect(name.clone(), tcp)).await;
    let shaken = shaken.map_err(|_| unreached("it does not answer in TLS"))?;
    let stream = shaken.map_err(|error| {
        let fault = error.get_ref().and_then(|it| it.downcast_ref());
        match fault {
            Some(fault) => {
                pages.note_untrusted(peer, &name, fault);
                HubOver
            }
            None => unreached(&error.to_string()),
        }
    })?;
    match stream.get_ref().1.alpn_protocol() {
        Some(ALPN_HUB) => Ok(stream),
        _ => Err(unreached("it does not speak DSSL with hubs")),
    }
}

impl TerminalStream {
    async fn say(&mut self, frame: &Frame) -> Result<(), HubOver> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        Ok(self.write.write_all(&bytes).await?)
    }

    /// Session that the terminal names.
    async fn session(&mut self) -> Result<SessionId, HubOver> {
        let mut bytes = [0; 256];
        loop {
            match self.frames.read() {
                Ok(Some(Frame::Hub(session))) => return session_of(&session).ok_or(HubOver),
                Ok(Some(_)) | Err(_) => return Err(HubOver),
                Ok(None) => match self.read.read(&mut bytes).await? {
                    0 => return Err(HubOver),
                    read => self.frames.push(&bytes[..read]),
                },
            }
        }
    }
}

/// Session with this name, if it is one.
pub(super) fn session_of(name: &[u8]) -> Option<SessionId> {
    name.try_into().ok().map(SessionId::new)
}
