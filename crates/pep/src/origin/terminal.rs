//! A terminal's K1 connection: its requests to the web server, pages back, and links to the hub before the bytes in which they stand.

use std::io;
use std::rc::Rc;

use bentpipe_sealed::dssl::{DSSL_HELLO, DsslHello, ObjectId, OriginSession, Secrets};
use bentpipe_web::{Ahead, MAX_PIECES, MAX_REQUEST, Part, Request, Scheme, Verdict, judge};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::counts::count;
use super::guests::GuestPeer;
use super::sessions::SealedSession;
use super::upstream::{ClientEnds, Upstream, connect};
use super::web_server::WebStream;
use super::{OriginServer, PATIENCE, SILENT, ordinary};
use crate::asked::{NextPart, is_quiet};
use crate::keys::PublicKey;
use crate::process;
use crate::reading::read_piece;
use crate::relay::over_tcp::OverTcp as _;

/// One K1 connection.
struct K1Server {
    peer: GuestPeer,
    tls: TlsStream<TcpStream>,
    unread: BytesMut,
    session: Rc<SealedSession>,
    /// Connection to the web server that waits for another request.
    web: Option<WebStream>,
}

/// Course of a connection behind a response.
enum Course {
    /// Another request may come.
    Open,
    /// The connection ends in order.
    Close,
    /// The connection is reset.
    Reset,
}

/// Serves the terminal with this `key`, for which processor time counts as `peer`'s, to its end.
pub(super) async fn serve(
    origin: &OriginServer,
    mut tls: TlsStream<TcpStream>,
    (key, peer): (PublicKey, GuestPeer),
) {
    let mut hello = [0; DSSL_HELLO];
    let read = timeout(PATIENCE, tls.read_exact(&mut hello)).await;
    let hello = match (read, DsslHello::decode(&hello)) {
        (Ok(Ok(_)), Ok(hello)) => hello,
        (_, fault) => {
            tracing::debug!("a terminal without DSSL_HELLO: {:?}", fault.err());
            return;
        }
    };
    let Some(hub) = hello.hub.and_then(|hub| origin.hub_of(&key, hub)) else {
        return ordinary::relay(origin, tls, &[]).await;
    };
    let Ok(machine) = machine(&tls, hub.to_bytes()) else {
        return;
    };
    let Ok(ends) = ClientEnds::of(tls.get_ref().0) else {
        return;
    };
    let entered = machine.and_then(|machine| origin.sessions.enter(machine, (key, hub), ends));
    let Some(entered) = entered else {
        return ordinary::relay(origin, tls, &[]).await;
    };
    count(&origin.counts.sessions);
    let mut k1 = K1Server {
        peer,
        tls,
        unread: BytesMut::new(),
        session: entered.session.clone(),
        web: None,
    };
    let plain = k1.requests(origin).await;
    drop(entered);
    if let Ok(true) = plain {
        let first = k1.unread.freeze();
        ordinary::relay(origin, k1.tls, &first).await;
    }
}

impl OriginServer {
    /// Hub that brings objects to the terminal with this `key`, which has named `hub`; `None`, and a line in the log: a list says no.
    fn hub_of(&self, key: &PublicKey, hub: [u8; 32]) -> Option<PublicKey> {
        let (speakers, now) = (self.speakers(), process::now());
        if !speakers.may_have_objects(key) {
            count(&self.counts.refused.unlisted_clients);
            if self.complaints.clients.is_due(now) {
                tracing::warn!(
                    "pages of the client {key} come without objects: `clients` does not list it; add the key if they are to come ahead"
                );
            }
            return None;
        }
        let named = PublicKey::from_bytes(hub);
        let listed = named.filter(|named| speakers.is_hub(named));
        if listed.is_none() {
            count(&self.counts.refused.unlisted_servers);
            let named = named.map_or("which is no key".to_owned(), |named| named.to_string());
            if self.complaints.servers.is_due(now) {
                tracing::warn!(
                    "pages of the client {key} come without objects: `hubs` does not list its server, {named}; add that key if it is to bring them"
                );
            }
        }
        listed
    }
}

/// State of the session whose handshake is done; `None`: its terminal has not named the host.
fn machine(tls: &TlsStream<TcpStream>, hub: [u8; 32]) -> Result<Option<OriginSession>, ()> {
    let tls = tls.get_ref().1;
    let exporter = |label: &[u8], context: &[u8], out: &mut [u8]| {
        tls.export_keying_material(out, label, Some(context))
            .map(drop)
    };
    let secrets = Secrets::export(&hub, exporter).map_err(drop)?;
    let host = tls.server_name();
    Ok(host.map(|host| OriginSession::new(&secrets, hub, &host.to_ascii_lowercase())))
}

impl K1Server {
    /// Answers requests until the connection is over, or says something else than plain GETs, which is true.
    async fn requests(&mut self, origin: &OriginServer) -> io::Result<bool> {
        for page in 0..ObjectId::PAGES {
            let mut pieces = 0;
            let request = loop {
                match judge(Scheme::Https, &self.unread) {
                    Verdict::Get(request, used) => {
                        let _ = self.unread.split_to(used);
                        break request;
                    }
                    Verdict::Plain => return Ok(true),
                    Verdict::Incomplete if pieces == MAX_PIECES => return Ok(true),
                    Verdict::Incomplete => pieces += 1,
                }
                // One that says nothing holds a place.
                let read = timeout(SILENT, self.read()).await;
                if read.unwrap_or(Ok(0))? == 0 {
                    self.close().await;
                    return Ok(false);
                }
            };
            if request.is_page() {
                self.session.begin_page(page, request.clone());
            }
            match self.answer(origin, &request).await? {
                Course::Open if !request.closes() => {}
                Course::Open | Course::Close => {
                    self.close().await;
                    return Ok(false);
                }
                Course::Reset => return Ok(false),
            }
        }
        Ok(true)
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.unread.reserve(MAX_REQUEST);
        self.tls.read_buf(&mut self.unread).await
    }

    async fn close(&mut self) {
        if timeout(PATIENCE, self.tls.shutdown()).await.is_ok() {
            self.tls.close_in_order();
        }
    }

    /// Sends a request to the web server, and gives back what comes first.
    async fn ask(
        &mut self,
        origin: &OriginServer,
        head: &[u8],
    ) -> io::Result<(Upstream, NextPart)> {
        if let Some(mut web) = self.web.take()
            && is_quiet(&mut web)
            && let Ok(mut upstream) = Upstream::send(web, head).await
            && let Ok(next @ NextPart::Part(_)) = upstream.next().await
        {
            return Ok((upstream, next));
        }
        // None was there, or it had waited too long.
        let web = connect(origin, self.session.ends).await?;
        let mut upstream = Upstream::send(web, head).await?;
        let next = loop {
            tokio::select! {
                next = upstream.next() => break next?,
                // A terminal that has gone waits for nothing.
                read = self.tls.read_buf(&mut self.unread), if self.unread.len() < MAX_REQUEST => {
                    if read? == 0 {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
            }
        };
        Ok((upstream, next))
    }

    /// Answers one request.
    async fn answer(&mut self, origin: &OriginServer, request: &Request) -> io::Result<Course> {
        let (mut upstream, mut next) = self.ask(origin, request.head()).await?;
        let mut ahead = None;
        loop {
            match next {
                NextPart::Part(Part::Interim(bytes)) => self.write(&bytes).await?,
                NextPart::Part(Part::Head(response, bytes)) => {
                    ahead = Ahead::of(request, &response);
                    self.write(&bytes).await?;
                }
                NextPart::Part(Part::Body(bytes, payload)) => {
                    if let Some(ahead) = &mut ahead {
                        self.announce(origin, ahead, &payload).await;
                    }
                    self.write(&bytes).await?;
                }
                NextPart::Part(Part::End(true)) | NextPart::Ended(true) => {
                    return Ok(Course::Close);
                }
                NextPart::Part(Part::End(false)) => {
                    self.web = upstream.into_stream();
                    return Ok(Course::Open);
                }
                NextPart::Ended(false) => return Ok(Course::Reset),
            }
            next = loop {
                tokio::select! {
                    next = upstream.next() => break next?,
                    // A terminal that has gone needs no more; what it asks meanwhile waits.
                    read = self.tls.read_buf(&mut self.unread), if self.unread.len() < MAX_REQUEST => {
                        if read? == 0 {
                            return Ok(Course::Reset);
                        }
                    }
                }
            };
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.write_all(bytes).await?;
        self.tls.flush().await
    }

    /// Announces what `payload` of the page links to, as far as there is processor time for that.
    async fn announce(&self, origin: &OriginServer, ahead: &mut Ahead, payload: &[u8]) {
        ahead.push(payload);
        while ahead.has_more() {
            if !origin.reading.is_left(self.peer, process::now()) {
                count(&origin.counts.refused.unread);
                ahead.stop_reading();
                return;
            }
            let piece = read_piece(ahead);
            origin.reading.spend(self.peer, piece.took);
            if piece.gave_up {
                count(&origin.counts.refused.unread);
            }
            self.session.note_blocking(ahead.blocks());
            if self.session.announce(&piece.promises).is_err() {
                origin.note_lost();
            }
            // All others have their turn: a few bytes may hold much to read.
            yield_now().await;
        }
    }
}
