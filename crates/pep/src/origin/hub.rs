//! A hub's connection: K2 of sessions whose terminals have named it, and objects, sealed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_sealed::dssl::{
    HubFrame, HubFrameReader, MAX_ASKED, MAX_CHUNK, ObjectId, ObjectWriter, SessionId,
};
use bentpipe_web::{Body, Part};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::OriginServer;
use super::counts::count;
use super::sessions::{BegunObject, HubLost, SealedSession};
use super::upstream::{Upstream, connect};
use crate::asked::NextPart;
use crate::keys::PublicKey;

/// Frames without contents that wait for a hub.
const QUEUE: usize = 256;

/// Chunks that wait for a hub.
const CHUNKS: usize = 4;

/// Sessions of one hub connection.
const MAX_SESSIONS: usize = 64;

/// Requests of one hub connection that are at work or wait for a place; while there are as many, nothing more is read.
const MAX_PENDING: usize = 128;

/// Time that a web server has for the next bytes of an object.
const SILENCE: Duration = Duration::from_secs(20);

type HubTls = TlsStream<TcpStream>;

/// One hub connection.
struct HubLine {
    origin: Rc<OriginServer>,
    key: PublicKey,
    sessions: RefCell<HashMap<SessionId, Option<Rc<SealedSession>>>>,
    words: mpsc::Sender<HubFrame>,
    chunks: mpsc::Sender<HubFrame>,
    /// Places for fetches of all connections of the hub.
    places: Rc<Semaphore>,
}

/// Reason why an object does not come.
struct Unfit;

/// Serves a hub to its end.
pub(super) async fn serve(origin: &Rc<OriginServer>, tls: HubTls, key: PublicKey) {
    let (read, write) = split(tls);
    let (words, of_words) = mpsc::channel(QUEUE);
    let (chunks, of_chunks) = mpsc::channel(CHUNKS);
    let line = Rc::new(HubLine {
        origin: origin.clone(),
        key,
        sessions: RefCell::default(),
        words,
        chunks,
        places: origin.fetches_of(key),
    });
    // Both end with this, also where the connection has to give way: sessions hold a sender.
    let (mut writing, mut tasks) = (JoinSet::new(), JoinSet::new());
    writing.spawn_local(send(write, of_words, of_chunks));
    line.clone().receive(read, &mut tasks).await;
}

/// Sends frames, those without contents first.
async fn send(
    mut write: WriteHalf<HubTls>,
    mut words: mpsc::Receiver<HubFrame>,
    mut chunks: mpsc::Receiver<HubFrame>,
) {
    let mut bytes = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = words.recv() => frame,
            Some(frame) = chunks.recv() => frame,
            else => return,
        };
        bytes.clear();
        frame.encode(&mut bytes);
        if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
}

impl HubLine {
    async fn receive(self: Rc<Self>, mut read: ReadHalf<HubTls>, tasks: &mut JoinSet<()>) {
        let (mut reader, mut bytes) = (HubFrameReader::new(MAX_ASKED), [0; 4096]);
        loop {
            let got = tokio::select! {
                got = read.read(&mut bytes), if tasks.len() < MAX_PENDING => got,
                () = self.words.closed() => return,
                Some(_) = tasks.join_next() => continue,
            };
            match got {
                Ok(got @ 1..) => reader.push(&bytes[..got]),
                Ok(0) | Err(_) => return,
            }
            loop {
                match reader.read() {
                    Ok(Some(HubFrame::KeyRequest(id))) if self.admits(id) => {
                        tasks.spawn_local(self.clone().attach(id));
                    }
                    Ok(Some(HubFrame::Fetch(session, id))) => {
                        tasks.spawn_local(self.clone().fetch(session, id));
                    }
                    Ok(None) => break,
                    Ok(Some(_)) => return self.refuse("says what it may not"),
                    Err(fault) => return self.refuse(&fault.to_string()),
                }
            }
        }
    }

    fn refuse(&self, why: &str) {
        count(&self.origin.counts.refused.hubs);
        if self.origin.complaints.hubs.is_due(crate::process::now()) {
            tracing::warn!("hub {}: {why}", self.key);
        }
    }

    /// True for a session that this connection has not asked for, if it may have one more.
    fn admits(&self, id: SessionId) -> bool {
        let mut sessions = self.sessions.borrow_mut();
        sessions.len() < MAX_SESSIONS && sessions.insert(id, None).is_none()
    }

    async fn attach(self: Rc<Self>, id: SessionId) {
        let attached = self.origin.sessions.attach(id, self.key, &self.words).await;
        match attached {
            Ok(Some(session)) => drop(self.sessions.borrow_mut().insert(id, Some(session))),
            Err(HubLost) => self.origin.note_lost(),
            Ok(None) => {
                self.refuse("asks for a session that is not for it");
                // It is gone, if it takes no more.
                let _ = self.words.send(HubFrame::Refused(id, None)).await;
            }
        }
    }

    /// Fetches an object and sends it, sealed.
    async fn fetch(self: Rc<Self>, session_id: SessionId, id: ObjectId) {
        let session = self.sessions.borrow().get(&session_id).cloned().flatten();
        let begun = session.as_ref().and_then(|it| it.begin(id));
        let fetched = match (&session, begun) {
            (Some(session), Some(begun)) => self.sealed(session, begun).await,
            _ => Err(Unfit),
        };
        match fetched {
            Ok(()) => count(&self.origin.counts.objects),
            Err(Unfit) => {
                count(&self.origin.counts.objects_failed);
                let refused = HubFrame::Refused(session_id, Some(id));
                let _ = self.chunks.send(refused).await;
            }
        }
    }

    async fn sealed(&self, session: &SealedSession, begun: BegunObject) -> Result<(), Unfit> {
        let BegunObject {
            request,
            blocking,
            mut writer,
            mut bytes,
        } = begun;
        let _of_session = session.places.take(blocking).await.ok_or(Unfit)?;
        let _of_hub = self.places.acquire().await.map_err(|_| Unfit)?;
        let web = connect(&self.origin, session.ends).await;
        let web = web.map_err(|_| Unfit)?;
        let upstream = Upstream::send(web, request.head()).await;
        let mut upstream = upstream.map_err(|_| Unfit)?;
        let (head, body) = head(&mut upstream).await?;
        let of_head = head.len() as u64;
        let known = match body {
            Body::Length(length) => length.saturating_add(of_head),
            Body::Chunked | Body::UntilClose => of_head,
        };
        if head.len() > MAX_CHUNK || !bytes.reserve(known) || !bytes.spend(of_head) {
            return Err(Unfit);
        }
        let mut held = BytesMut::new();
        self.send(&mut writer, &head, false).await?;
        loop {
            let next = timeout(SILENCE, upstream.next()).await;
            match next.map_err(|_| Unfit)?.map_err(|_| Unfit)? {
                NextPart::Part(Part::Body(more, _)) => {
                    if !bytes.spend(more.len() as u64) {
                        return Err(Unfit);
                    }
                    held.extend_from_slice(&more);
                    while held.len() > MAX_CHUNK {
                        let chunk = held.split_to(MAX_CHUNK);
                        self.send(&mut writer, &chunk, false).await?;
                    }
                }
                NextPart::Part(Part::End(_)) | NextPart::Ended(true) => {
                    return self.send(&mut writer, &held, true).await;
                }
                NextPart::Part(Part::Interim(_) | Part::Head(..)) | NextPart::Ended(false) => {
                    return Err(Unfit);
                }
            }
        }
    }

    async fn send(&self, writer: &mut ObjectWriter, text: &[u8], last: bool) -> Result<(), Unfit> {
        let frame = writer.seal(text, last).ok_or(Unfit)?;
        let sealed = &self.origin.counts.object_bytes;
        sealed.set(sealed.get() + text.len() as u64);
        self.chunks.send(frame).await.map_err(|_| Unfit)
    }
}

/// Head of a response that may be kept for another request, and what follows it.
async fn head(upstream: &mut Upstream) -> Result<(Bytes, Body), Unfit> {
    loop {
        let next = timeout(SILENCE, upstream.next()).await;
        match next.map_err(|_| Unfit)?.map_err(|_| Unfit)? {
            NextPart::Part(Part::Interim(_)) => {}
            NextPart::Part(Part::Head(response, head)) if response.is_storable() => {
                return Ok((head, response.body()));
            }
            _ => return Err(Unfit),
        }
    }
}
