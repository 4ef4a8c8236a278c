//! Browsers that speak HTTP/2 in TLS that is ended here: each of their requests goes on as one of HTTP/1.1, on a pipe of its own.
//!
//! ```text
//!  browser ══ TLS, HTTP/2 ══ hyper ──┬── request ── pipe ──► serve: store, page's stream or relay
//!                                    └── request ── pipe ──► serve
//! ```
//!
//! Interim responses stay here, for a browser can do without: nothing else is another than on a connection of HTTP/1.1.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_web::MAX_RESPONSE_FIELDS;
use bytes::Bytes;
use http_body_util::{Either, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderValue, TE, TRANSFER_ENCODING};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::browser::{Browser, Parts};
use super::piped::piped;
use super::speech::PARTING;
use super::{Ending, PageRoad, Pages};
use crate::relay::Outcome;
use crate::relay::over_tcp::OverTcp as _;

/// ALPN of HTTP/2 over TLS (RFC 9113 §3.2).
pub(super) const HTTP2: &[u8] = b"h2";

/// Requests of one connection that are answered at one time; browsers wait with others.
const MAX_STREAMS: u32 = 64;

/// Fields of a request, bytes as HTTP/2 counts them. What is longer than a request that is read here is relayed, as of HTTP/1.1.
const MAX_FIELDS: u32 = 128 * 1024;

/// Bytes of an answer that wait for a browser, of each request.
const SEND_BUFFER: usize = 64 * 1024;

/// Time after which a connection without requests is ended, as one of HTTP/1.1 is.
const IDLE: Duration = Duration::from_secs(60);

/// Browser's connection of HTTP/2.
pub(crate) struct Multiplexed {
    tls: Box<TlsStream<TcpStream>>,
    destination: Destination,
    source: Option<SocketAddr>,
    /// Host that this side speaks TLS as.
    name: String,
}

/// Requests of one connection, and what they are answered by.
struct Requests<R> {
    pages: Rc<Pages>,
    road: Rc<R>,
    destination: Destination,
    source: Option<SocketAddr>,
    name: String,
    /// Requests so far.
    count: Cell<u64>,
    /// Rings when the host is left alone: the browser is to open another connection.
    left: Notify,
    /// Places for requests; one that its browser has taken back keeps its own until it has ended here.
    places: Arc<Semaphore>,
}

/// Runs hyper's tasks on this thread.
#[derive(Clone, Copy)]
struct OnThisThread;

impl<F: Future + 'static> Executor<F> for OnThisThread {
    fn execute(&self, task: F) {
        spawn_local(async move {
            task.await;
        });
    }
}

type Answered = Response<Either<Incoming, Empty<Bytes>>>;

impl Multiplexed {
    /// A connection of `source` to `destination` on which this side speaks TLS as the host `name`.
    pub(super) fn new(
        tls: TlsStream<TcpStream>,
        (destination, source): (Destination, Option<SocketAddr>),
        name: String,
    ) -> Self {
        Self {
            tls: Box::new(tls),
            destination,
            source,
            name,
        }
    }

    /// Answers the browser's requests until its connection is over.
    pub(crate) async fn serve<R: PageRoad + 'static>(
        self,
        pages: &Rc<Pages>,
        road: Rc<R>,
    ) -> Outcome {
        let requests = Rc::new(Requests {
            pages: pages.clone(),
            road,
            destination: self.destination,
            source: self.source,
            name: self.name,
            count: Cell::new(0),
            left: Notify::new(),
            places: Arc::new(Semaphore::new(MAX_STREAMS as usize)),
        });
        let answering = requests.clone();
        let service = service_fn(move |request| answering.clone().answer(request));
        // An end without close_notify says as much as a reset, and hyper has the socket from here on.
        self.tls.close_in_order();
        let mut connection = pin!(
            http2::Builder::new(OnThisThread)
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(MAX_FIELDS)
                .max_send_buf_size(SEND_BUFFER)
                // Answers are the host's: this machine's clock has no part in them.
                .auto_date_header(false)
                .serve_connection(TokioIo::new(self.tls), service)
        );
        let mut ending = false;
        loop {
            let before = requests.count.get();
            tokio::select! {
                ended = connection.as_mut() => return match ended {
                    Ok(()) => Outcome::Closed,
                    Err(_) => Outcome::LanReset,
                },
                () = requests.left.notified() => connection.as_mut().graceful_shutdown(),
                () = pages.attendance.ending(), if !ending => {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                // Requests that are open hold it as well: hyper waits for their ends.
                () = sleep(IDLE) => if requests.count.get() == before {
                    connection.as_mut().graceful_shutdown();
                },
            }
        }
    }
}

impl<R: PageRoad + 'static> Requests<R> {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> hyper::Result<Answered> {
        self.count.set(self.count.get() + 1);
        let Some(request) = self.as_http1(request) else {
            // Browsers ask such a host by a connection of its own then (RFC 9110 §15.5.20).
            let mut misdirected = Response::new(Either::Right(Empty::new()));
            *misdirected.status_mut() = StatusCode::MISDIRECTED_REQUEST;
            return Ok(misdirected);
        };
        // Closed by nobody.
        let held = self.places.clone().acquire_owned().await.ok();
        let (near, far, mut gone) = piped();
        let place = (self.destination.clone(), self.source);
        let browser = Browser::piped(near, place, self.name.clone());
        spawn_local(async move {
            let mut serving = pin!(self.serve(browser));
            tokio::select! {
                () = serving.as_mut() => {}
                // What the browser has taken back must not hold its place for as long as an origin says nothing.
                () = gone.wait() => drop(timeout(PARTING, serving).await),
            }
            drop(held);
        });
        let (mut sender, connection) = http1::Builder::new()
            // Browsers take all of these from an origin itself.
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .max_headers(MAX_RESPONSE_FIELDS)
            .handshake(TokioIo::new(far))
            .await?;
        // Its faults reach whoever waits for the answer.
        spawn_local(async move {
            let _ = connection.await;
        });
        let mut answer = sender.send_request(request).await?;
        // A length beside chunks is not that of the body, which HTTP/2 would hold to it.
        if answer.headers().contains_key(TRANSFER_ENCODING) {
            answer.headers_mut().remove(CONTENT_LENGTH);
        }
        Ok(answer.map(Either::Left))
    }

    /// Serves one request as a connection of HTTP/1.1.
    async fn serve(&self, mut browser: Browser) {
        let ending = self.pages.serve(&*self.road, &mut browser).await;
        let trusted = self.pages.trusted.as_ref();
        if trusted.is_some_and(|trusted| trusted.is_left(&self.name)) {
            self.left.notify_one();
        }
        if let (Ending::Plain, Parts::Trusted(parts)) = (ending, browser.into_parts()) {
            self.pages.relay(parts, &*self.road).await;
        }
    }

    /// The request as HTTP/1.1 has it (RFC 9113 §8.3.1); `None` if it is for another host.
    fn as_http1(&self, mut request: Request<Incoming>) -> Option<Request<Incoming>> {
        let authority = request.uri().authority()?;
        let own = authority.host().eq_ignore_ascii_case(&self.name);
        if !own || !matches!(authority.port_u16(), None | Some(443)) {
            return None;
        }
        let host = HeaderValue::from_str(authority.as_str()).ok()?;
        let target = request.uri().path_and_query()?.as_str();
        *request.uri_mut() = target.parse::<Uri>().ok()?;
        *request.version_mut() = Version::HTTP_11;
        let unsized_body = !request.body().is_end_stream();
        let fields = request.headers_mut();
        fields.insert(HOST, host);
        // Of a method that seldom has a body, a body without a length would be left out.
        if unsized_body && !fields.contains_key(CONTENT_LENGTH) {
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        fields.remove(TE);
        join_cookies(fields);
        Some(request)
    }
}

/// Makes one field of cookies that came in several (RFC 9113 §8.2.3).
fn join_cookies(fields: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = fields
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if crumbs.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        fields.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_that_came_apart_are_one_field() {
        let mut fields = HeaderMap::new();
        for crumb in ["a=1", "b=2"] {
            fields.append(COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut fields);
        let values: Vec<_> = fields.get_all(COOKIE).iter().collect();
        assert_eq!(values, ["a=1; b=2"]);
    }
}
