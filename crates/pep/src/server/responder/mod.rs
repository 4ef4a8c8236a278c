//! Responder of `bentpipe measure`: bytes to fetch and a place for bytes, inside the tunnel and past it.
//!
//! ```text
//!   client ══ tunnel ══ shard ── dial ──► 127.0.0.1 ──► inside ──┐
//!      │                                  POST /token            ├──► GET /bytes/N, POST /sink
//!      └───────────── TCP, past the tunnel ───────────► outside ─┘
//!                     Authorization: Bearer TOKEN
//! ```
//!
//! Who comes through the tunnel has proven a listed key. Who comes past it shows a token, which the tunnel alone gives: it ends
//! after [`grants::LIFETIME`], and after so many bytes. Each of the two ways has connections and starts of its own, so that
//! strangers outside take nothing from those inside.

mod grants;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::bucket::Bucket;
use crate::config::{Bounds, Responder as Config};
use crate::filler::{self, Filler};
use crate::process::{self, RunError};
use crate::throttle::Throttle;
use grants::Grants;

/// Time that a connection may take in all: 64 MiB at 1 Mbit/s, and some.
const PATIENCE: Duration = Duration::from_secs(900);

/// Time that a connection may take to say what it wants.
const HEAD: Duration = Duration::from_secs(10);

/// Bytes of a request's head, at most; hyper takes no less.
const LONGEST_HEAD: usize = 8192;

/// Pause after an error of accepting, such as no descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// Seconds' worth of connections that may begin at once.
const BURST_S: f64 = 5.0;

/// Largest transfers that one token is good for.
const TRANSFERS_PER_TOKEN: u64 = 16;

/// Body of an answer.
type Answer = Response<Either<Full<Bytes>, Filler>>;

/// Server of transfers; serves nothing where none is configured.
#[derive(Debug)]
pub(super) struct ResponderServer(Option<Doors>);

/// Both ways in.
#[derive(Debug)]
struct Doors {
    inside: TcpListener,
    outside: TcpListener,
    /// TCP port of `outside`.
    port: u16,
    bounds: Bounds,
}

/// State that all connections share.
struct ResponderShared {
    bounds: Bounds,
    port: u16,
    grants: Mutex<Grants>,
    /// Incompressible bytes, sent again and again.
    block: Bytes,
    /// Throttle of the line about failures to accept.
    told: Throttle,
}

impl ResponderServer {
    /// Binds the address of `config`, and one on loopback for the tunnel. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`RunError::Bind`] if an address cannot be had.
    pub(super) fn bind(config: Option<&Config>) -> Result<Self, RunError> {
        let Some(Config { listen, bounds }) = config else {
            return Ok(Self(None));
        };
        let bind = |address: SocketAddr| {
            let failed = |source| RunError::Bind {
                place: listen.place.clone(),
                address,
                what: "TCP",
                source,
            };
            bind(address).map_err(failed)
        };
        let outside = bind(**listen)?;
        let inside = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let port = outside.local_addr().map_err(RunError::Io)?.port();
        tracing::info!("responder for `bentpipe measure` at {}", **listen);
        Ok(Self(Some(Doors {
            inside,
            outside,
            port,
            bounds: *bounds,
        })))
    }

    /// Address that the clients' flows are led to.
    pub(super) fn inside(&self) -> Option<SocketAddr> {
        self.0.as_ref()?.inside.local_addr().ok()
    }

    /// Answers; never ends.
    pub(super) async fn serve(&self) {
        let Some(doors) = &self.0 else {
            return std::future::pending().await;
        };
        let shared = Arc::new(ResponderShared {
            bounds: doors.bounds,
            port: doors.port,
            grants: Mutex::default(),
            block: filler::block(),
            told: Throttle::new(),
        });
        tokio::join!(
            admit(&doors.inside, &shared, Door::Inside),
            admit(&doors.outside, &shared, Door::Outside)
        );
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Way by which a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// From a client whose key is listed.
    Inside,
    /// From anybody.
    Outside,
}

/// Serves those who come by `way`; whoever is one too many is closed at once.
async fn admit(listener: &TcpListener, shared: &Arc<ResponderShared>, way: Door) {
    let bounds = shared.bounds;
    let slots = Arc::new(Semaphore::new(bounds.max_connections.into()));
    let rate = f64::from(bounds.max_starts_per_s);
    let mut starts = Bucket::with_burst(rate, rate * BURST_S);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                if !process::tell_of_files(&error) && shared.told.is_due(process::now()) {
                    tracing::warn!("the responder cannot accept: {error}");
                }
                sleep(PAUSE).await;
                continue;
            }
        };
        let slot = slots.clone().try_acquire_owned();
        let (true, Ok(slot)) = (starts.take(process::now()), slot) else {
            tracing::debug!(?way, "the responder has as much to do as it may");
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            if timeout(PATIENCE, converse(stream, &shared, way))
                .await
                .is_err()
            {
                tracing::debug!(?way, "a transfer took longer than it may");
            }
            drop(slot);
        });
    }
}

async fn converse(stream: TcpStream, shared: &ResponderShared, way: Door) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| async move {
        let answered = shared.answer(request, way).await;
        Ok::<_, Infallible>(answered.unwrap_or_else(refusal))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // Who has said all may close that half, and still wait for the answer.
        .half_close(true)
        .max_buf_size(LONGEST_HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("a transfer of the responder failed: {error}");
    }
}

impl ResponderShared {
    async fn answer(&self, request: Request<Incoming>, way: Door) -> Result<Answer, StatusCode> {
        let path = request.uri().path();
        if let ("/token", Door::Inside) = (path, way) {
            return self.token();
        }
        let (sends, bytes) = match (request.method(), path.strip_prefix("/bytes/")) {
            (&Method::GET, Some(count)) => {
                let count = count.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
                (true, count)
            }
            (&Method::POST, None) if path == "/sink" => {
                let upper = request.body().size_hint().upper();
                (false, upper.ok_or(StatusCode::LENGTH_REQUIRED)?)
            }
            _ => return Err(StatusCode::NOT_FOUND),
        };
        // Strangers do not learn what the bounds are.
        if way == Door::Outside && !self.spend(&request, bytes) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        if bytes > self.bounds.max_request.as_u64() {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if sends {
            let filler = Filler::new(self.block.clone(), bytes);
            return Ok(Response::new(Either::Right(filler)));
        }
        self.swallow(request.into_body(), bytes).await
    }

    /// Reads all of `body` and says how much that was.
    async fn swallow(&self, body: Incoming, most: u64) -> Result<Answer, StatusCode> {
        let most = usize::try_from(most).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        let (mut body, mut count) = (Limited::new(body, most), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            count += frame.data_ref().map_or(0, Bytes::len);
        }
        Ok(text(StatusCode::OK, format!("{count}\n")))
    }

    /// Gives the client a token for its other half, and says where that half is.
    fn token(&self) -> Result<Answer, StatusCode> {
        let max_request = self.bounds.max_request.as_u64();
        let budget = max_request.saturating_mul(TRANSFERS_PER_TOKEN);
        let token = self
            .grants()
            .issue(process::now(), budget)
            .ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let told = serde_json::json!({
            "token": token,
            "port": self.port,
            "max_request": max_request,
            "max_connections": self.bounds.max_connections,
            "max_starts_per_s": self.bounds.max_starts_per_s,
            "budget": budget,
            "lifetime_s": grants::LIFETIME.as_secs(),
        });
        Ok(text(StatusCode::OK, told.to_string()))
    }

    /// True if `request` has a token that is good for `bytes` more; they are then taken from it.
    fn spend(&self, request: &Request<Incoming>, bytes: u64) -> bool {
        let header = request.headers().get(AUTHORIZATION);
        let header = header.and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer "));
        token.is_some_and(|token| self.grants().spend(token, bytes, process::now()))
    }

    fn grants(&self) -> std::sync::MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(status: StatusCode) -> Answer {
    text(status, format!("{status}\n"))
}

fn text(status: StatusCode, text: String) -> Answer {
    let mut response = Response::new(Either::Left(Full::from(text)));
    *response.status_mut() = status;
    response
}
