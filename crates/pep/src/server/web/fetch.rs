//! One request to an origin, and its response in frames.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host};
use bentpipe_web::{Ahead, Body, BodyReader, Frame, MAX_DATA, Malformed, Request, Response};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::Job;
use super::origins::{self, OriginSocket};

/// Time for which an object's origin may say nothing; a page's browser has a patience of its own.
const SILENCE: Duration = Duration::from_secs(20);

/// Number of the page.
const PAGE: u64 = 0;

/// Reason why a response does not come whole.
enum Unfetched {
    /// The origin cannot be reached, or ended its connection.
    Unreached,
    /// A response that may not be kept, or is too long.
    Unfit,
    /// The stream has ended.
    Stream,
}

impl From<io::Error> for Unfetched {
    fn from(_: io::Error) -> Self {
        Self::Unreached
    }
}

/// A connection to the origin, on which a request has been sent.
struct Exchange {
    origin: OriginSocket,
    unread: BytesMut,
}

impl Exchange {
    /// Reads more; false: the origin has ended its direction.
    async fn read(&mut self, object: u64) -> io::Result<bool> {
        self.unread.reserve(MAX_DATA);
        let reading = self.origin.stream.read_buf(&mut self.unread);
        let read = match object {
            PAGE => reading.await?,
            _ => timeout(SILENCE, reading).await??,
        };
        Ok(read > 0)
    }
}

impl Job {
    /// Fetches what the browser asks for, from `origin` unless that is too old.
    pub(super) async fn fetch_page(self: Rc<Self>, origin: OriginSocket) {
        let request = self.request.clone();
        let fetched = self.fetch(PAGE, &request, Some(origin)).await;
        if let Err(Unfetched::Unreached | Unfetched::Unfit) = fetched {
            let _ = self.page.send(Frame::Failed { id: PAGE }).await;
        }
    }

    /// Fetches what the browser will ask for.
    pub(super) async fn fetch_object(self: Rc<Self>, object: u64, request: Request) {
        let waiting = self.waiting();
        let fetched = self.fetch(object, &request, waiting).await;
        self.end(object, fetched.is_err());
        if let Err(Unfetched::Unreached | Unfetched::Unfit) = fetched {
            tracing::debug!(
                client = self.client.name,
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
        origin: Option<OriginSocket>,
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
        let whole = self.body(object, &mut exchange, body, closes).await?;
        let origin = exchange.origin;
        if whole && !closes && exchange.unread.is_empty() {
            self.pages.origins.put(self.id, origin.to, origin.stream);
        } else {
            origins::close(&origin.stream);
        }
        Ok(())
    }

    /// A connection that waits for another request, if the client may still have it.
    fn waiting(&self) -> Option<OriginSocket> {
        let permitted = self.pages.rights.permits(&self.client, self.to);
        let stream = self.pages.origins.take(self.id, self.to);
        Some(OriginSocket {
            stream: stream.filter(|_| permitted)?,
            to: self.to,
            used: true,
        })
    }

    /// Sends a request on `origin`, or on a new connection to where the page is.
    async fn ask(
        &self,
        request: &Request,
        origin: Option<OriginSocket>,
    ) -> Result<Exchange, Unfetched> {
        let mut origin = match origin {
            Some(origin) => origin,
            None => self.dial().await?,
        };
        let sent = origin.stream.write_all(request.head()).await;
        // One that has ended meanwhile shows when it is read.
        if !origin.used {
            sent?;
        }
        Ok(Exchange {
            origin,
            unread: BytesMut::new(),
        })
    }

    async fn dial(&self) -> Result<OriginSocket, Unfetched> {
        // Of a name's addresses the page's alone: others may be another machine's.
        let destination = Destination {
            host: Host::Ip(self.to.ip()),
            port: self.to.port(),
        };
        let dialled = self.pages.rights.dial(&self.client, &destination).await;
        let (stream, to) = dialled.map_err(|_| Unfetched::Unreached)?;
        let used = false;
        Ok(OriginSocket { stream, to, used })
    }

    /// Head of the response, sent on; `None`: what comes is none, and is sent on as it is.
    async fn head(
        &self,
        object: u64,
        exchange: &mut Exchange,
    ) -> Result<Option<Response>, Unfetched> {
        loop {
            match Response::parse(&exchange.unread) {
                Ok(Some((response, used))) => {
                    let interim = response.is_interim();
                    if object == PAGE {
                        self.look_ahead_of(&response);
                    } else if !interim && !response.is_storable() {
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
                Ok(None) => {
                    if !exchange.read(object).await? {
                        return Err(Unfetched::Unreached);
                    }
                }
                Err(Malformed) if object == PAGE => return Ok(None),
                Err(Malformed) => return Err(Unfetched::Unfit),
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
            for promise in self.promises(&payload) {
                self.page
                    .send(promise)
                    .await
                    .map_err(|_| Unfetched::Stream)?;
            }
            let bytes = exchange.unread.split_to(used).freeze();
            self.send(object, bytes, false).await?;
        }
        let whole = reader.is_done();
        if object != PAGE && !whole && body != Body::UntilClose {
            return Err(Unfetched::Unreached);
        }
        let close = closes || !whole;
        let end = Frame::End { id: object, close };
        self.queue(object)
            .send(end)
            .await
            .map_err(|_| Unfetched::Stream)?;
        Ok(whole)
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
