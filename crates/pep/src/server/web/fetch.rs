//! One request to an origin, and its response in frames.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_web::{
    Ahead, Body, BodyReader, Closing, Frame, HeadLook, HeadLooks, MAX_DATA, MAX_INTERIM, Malformed,
    PAGE, Request, Response,
};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::Job;
use super::origins::{OriginSocket, ReachedOrigin};
use super::refused::refused;
use super::secure::Unfetched;
use crate::relay::over_tcp::is_cut;

/// Time for which an object's origin may say nothing; a page's browser has a patience of its own.
const SILENCE: Duration = Duration::from_secs(20);

/// A connection to the origin, on which a request has been sent.
struct Exchange {
    origin: OriginSocket,
    unread: BytesMut,
    /// The origin has ended its connection without close_notify.
    cut: bool,
}

impl Exchange {
    /// Reads more; false: the origin has ended its direction.
    async fn read(&mut self, object: u64) -> io::Result<bool> {
        self.unread.reserve(MAX_DATA);
        let reading = self.origin.stream.read_buf(&mut self.unread);
        let read = match object {
            PAGE => reading.await,
            _ => timeout(SILENCE, reading).await?,
        };
        match read {
            Ok(read) => Ok(read > 0),
            Err(error) if is_cut(&error) => {
                self.cut = true;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads more of a head.
    async fn read_on(&mut self, object: u64) -> Result<(), Unfetched> {
        match self.read(object).await? {
            true => Ok(()),
            false => Err(Unfetched::Unreached),
        }
    }
}

impl Job {
    /// Fetches what the browser asks for, from `origin` unless that is too old.
    pub(super) async fn fetch_page(self: Rc<Self>, origin: ReachedOrigin) {
        let request = self.request.clone();
        let fetched = self.fetch(PAGE, &request, Some(origin)).await;
        // Its objects may go on for long.
        self.stop_reading();
        match fetched {
            Err(Unfetched::Untrusted(fault)) => self.refuse(&fault).await,
            Err(Unfetched::Unreached | Unfetched::Silent | Unfetched::Unfit) => {
                let _ = self.page.send(Frame::Failed { id: PAGE }).await;
            }
            Ok(()) | Err(Unfetched::Stream) => {}
        }
    }

    /// Answers with a page that names the fault of the origin's TLS.
    async fn refuse(&self, fault: &rustls::Error) {
        let Some(name) = &self.name else {
            return;
        };
        self.pages.note_untrusted(&self.peer, name, fault);
        let (head, body) = refused(name, fault);
        let frames = [
            Frame::Head {
                id: PAGE,
                bytes: head,
            },
            Frame::Data {
                id: PAGE,
                bytes: body,
            },
            Frame::End {
                id: PAGE,
                close: Closing::InOrder,
            },
        ];
        for frame in frames {
            // Without a stream nobody is to be told.
            let _ = self.page.send(frame).await;
        }
    }

    /// Fetches what the browser will ask for.
    pub(super) async fn fetch_object(self: Rc<Self>, object: u64, request: Request) {
        let waiting = self.waiting();
        let fetched = self.fetch(object, &request, waiting).await;
        self.end(object, fetched.as_ref().err());
        if let Err(fault) = fetched
            && !matches!(fault, Unfetched::Stream)
        {
            tracing::debug!(
                client = self.peer.client.name,
                host = request.host(),
                target = request.target(),
                "object not fetched ahead"
            );
            let _ = self.objects.send(Frame::Failed { id: object }).await;
        }
    }

    async fn fetch(
        &self,
        object: u64,
        request: &Request,
        origin: Option<ReachedOrigin>,
    ) -> Result<(), Unfetched> {
        let mut exchange = self.ask(request, origin).await?;
        let head = match self.head(object, &mut exchange).await {
            // Nothing of an answer has come: the connection had waited too long.
            Err(Unfetched::Unreached) if exchange.origin.used && exchange.unread.is_empty() => {
                exchange = self.ask(request, None).await?;
                self.head(object, &mut exchange).await?
            }
            head => head?,
        };
        let (body, closes) = match head {
            Some(response) => (response.body(), response.closes()),
            None => (Body::UntilClose, true),
        };
        let sent = self.body(object, &mut exchange, body, closes).await;
        let whole = sent.map_err(|fault| match fault {
            // What has been sent of a response is not followed by another one.
            Unfetched::Untrusted(_) => Unfetched::Unreached,
            other => other,
        })?;
        let origin = exchange.origin;
        if whole && !closes && exchange.unread.is_empty() {
            self.pages.origins.put(self.peer.id, origin);
        } else {
            origin.stream.close_in_order();
        }
        Ok(())
    }

    /// A connection that waits for another request, if the client may still have it.
    fn waiting(&self) -> Option<ReachedOrigin> {
        let permitted = self.pages.rights.permits(&self.peer.client, self.to);
        let origins = &self.pages.origins;
        let origin = origins.take_named(self.peer.id, self.to, &self.name);
        origin.filter(|_| permitted).map(ReachedOrigin::Waiting)
    }

    /// Sends a request on `origin`, or on a new connection to where the page is.
    async fn ask(
        &self,
        request: &Request,
        origin: Option<ReachedOrigin>,
    ) -> Result<Exchange, Unfetched> {
        let connected = match origin {
            Some(origin) => self.pages.secured(&self.peer, origin, &self.name).await,
            None => self.pages.dialled(&self.peer, self.to, &self.name).await,
        };
        let mut origin = connected?;
        let sent = send(&mut origin, request.head()).await;
        // One that has ended meanwhile shows when it is read.
        if !origin.used {
            sent?;
        }
        Ok(Exchange {
            origin,
            unread: BytesMut::new(),
            cut: false,
        })
    }

    /// Head of the response, sent on; `None`: what comes is none, and is sent on as it is.
    async fn head(
        &self,
        object: u64,
        exchange: &mut Exchange,
    ) -> Result<Option<Response>, Unfetched> {
        let (mut left, mut looks) = (MAX_INTERIM, HeadLooks::default());
        loop {
            match looks.next(&exchange.unread) {
                HeadLook::Now => {}
                HeadLook::Wait => {
                    exchange.read_on(object).await?;
                    continue;
                }
                HeadLook::Over => return none_for(object),
            }
            match Response::parse(&exchange.unread) {
                Ok(Some((response, used))) => {
                    let interim = response.is_interim();
                    if interim && left == 0 {
                        // The browser may wait for as many as it likes, and nobody else does.
                        return none_for(object);
                    }
                    left -= usize::from(interim);
                    looks = HeadLooks::default();
                    if object == PAGE {
                        self.look_ahead_of(&response);
                    } else if !interim && !response.is_storable() {
                        return Err(Unfetched::Unfit);
                    }
                    if !interim && !self.reserve(object, used as u64, response.body()) {
                        return Err(Unfetched::Unfit);
                    }
                    let head = exchange.unread.split_to(used).freeze();
                    if object == PAGE || !interim {
                        self.send(object, head, true).await?;
                    }
                    if !interim {
                        return Ok(Some(response));
                    }
                }
                Ok(None) => exchange.read_on(object).await?,
                Err(Malformed) => return none_for(object),
            }
        }
    }

    fn look_ahead_of(&self, response: &Response) {
        if !response.is_interim() {
            self.look_ahead(Ahead::of(&self.request, response));
        }
    }

    /// Sends the body on; true if it was whole and the connection goes on behind it.
    async fn body(
        &self,
        object: u64,
        exchange: &mut Exchange,
        body: Body,
        closes: bool,
    ) -> Result<bool, Unfetched> {
        let mut reader = BodyReader::new(body);
        while !reader.is_done() {
            if exchange.unread.is_empty() && !exchange.read(object).await? {
                break;
            }
            let (mut payload, piece) = (Vec::new(), exchange.unread.len().min(MAX_DATA));
            let read = reader.read(&exchange.unread[..piece], |bytes| {
                if object == PAGE {
                    payload.extend_from_slice(bytes);
                }
            });
            let used = match read {
                Ok(used) => used,
                Err(Malformed) if object == PAGE => {
                    reader = BodyReader::new(Body::UntilClose);
                    continue;
                }
                Err(Malformed) => return Err(Unfetched::Unfit),
            };
            self.promise_for(&payload).await?;
            let bytes = exchange.unread.split_to(used).freeze();
            self.send(object, bytes, false).await?;
        }
        let whole = reader.is_done();
        let ends_so = body == Body::UntilClose && !exchange.cut;
        if object != PAGE && !whole && !ends_so {
            return Err(Unfetched::Unreached);
        }
        let close = match (closes || !whole, exchange.cut) {
            (true, true) => Closing::Cut,
            (true, false) => Closing::InOrder,
            (false, _) => Closing::Open,
        };
        let end = Frame::End { id: object, close };
        self.queue(object)
            .send(end)
            .await
            .map_err(|_| Unfetched::Stream)?;
        Ok(whole)
    }

    /// Promises what `payload` of the page links to, which is to be sent behind the promises.
    async fn promise_for(&self, payload: &[u8]) -> Result<(), Unfetched> {
        self.push(payload);
        while let Some(promises) = self.promises() {
            for promise in promises {
                let promised = self.page.send(promise).await;
                promised.map_err(|_| Unfetched::Stream)?;
            }
            // All of the shard's clients have their turn: a few bytes may hold much to read.
            yield_now().await;
        }
        Ok(())
    }

    async fn send(&self, object: u64, bytes: Bytes, head: bool) -> Result<(), Unfetched> {
        if object != PAGE && !self.spend(object, bytes.len()) {
            return Err(Unfetched::Unfit);
        }
        let frame = match head {
            true => Frame::Head { id: object, bytes },
            false => Frame::Data { id: object, bytes },
        };
        self.queue(object)
            .send(frame)
            .await
            .map_err(|_| Unfetched::Stream)
    }

    fn queue(&self, object: u64) -> &tokio::sync::mpsc::Sender<Frame> {
        if object == PAGE {
            &self.page
        } else {
            &self.objects
        }
    }
}

/// Outcome of bytes that are no response: of a page they go on as they are, and an object fails.
fn none_for(object: u64) -> Result<Option<Response>, Unfetched> {
    match object {
        PAGE => Ok(None),
        _ => Err(Unfetched::Unfit),
    }
}

async fn send(origin: &mut OriginSocket, bytes: &[u8]) -> io::Result<()> {
    origin.stream.write_all(bytes).await?;
    origin.stream.flush().await
}
