//! Health of the web server behind an origin, as the connections to it show it.
//!
//! ```text
//!             ┌─ cannot connect ──► unreachable ── connected ───────┐
//!  answering ─┤                                                     ├─► answering
//!             └─ asked, and no byte for 60 s ──► silent ── a byte ──┘
//! ```
//!
//! Nothing is asked of it for this: whoever cannot be reached is dialled again every few seconds, so that the report is right without visitors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::events;
use crate::process;
use crate::status::span;
use crate::throttle::Throttle;

/// Time in which a web server takes a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Time without a byte on any connection, while one waits for an answer, after which a web server counts as silent; proxies give up after
/// as long (nginx's `proxy_read_timeout`).
const SILENT: Duration = Duration::from_secs(60);

/// Time between looks at the web server.
const LOOK: Duration = Duration::from_secs(5);

/// Reason why a web server is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WebFault {
    /// A connection to it fails.
    Unreachable(String),
    /// Requests are taken and not answered.
    Silent,
}

/// State of a web server; pure.
#[derive(Debug, Default)]
struct WebHealth {
    /// Connections on which it was the last to be spoken to, and when; no more than there are connections.
    waiting: HashMap<u64, Instant>,
    /// Time of the last byte from it.
    heard: Option<Instant>,
    fault: Option<(WebFault, Instant)>,
    next: u64,
}

/// Change that the log is to hear of.
#[derive(Debug, PartialEq, Eq)]
enum WebChange {
    Fails(WebFault),
    /// Back after so long.
    Back(Duration),
}

impl WebHealth {
    fn begin(&mut self, fault: WebFault, now: Instant) -> Option<WebChange> {
        let since = match &self.fault {
            Some((known, _)) if std::mem::discriminant(known) == std::mem::discriminant(&fault) => {
                return None;
            }
            Some((_, since)) => *since,
            None => now,
        };
        self.fault = Some((fault.clone(), since));
        Some(WebChange::Fails(fault))
    }

    fn end(&mut self, now: Instant) -> Option<WebChange> {
        let (_, since) = self.fault.take()?;
        Some(WebChange::Back(now.saturating_duration_since(since)))
    }

    /// A connection was made; its number.
    fn connected(&mut self, now: Instant) -> (u64, Option<WebChange>) {
        self.next += 1;
        let back = match self.fault {
            Some((WebFault::Unreachable(_), _)) => self.end(now),
            _ => None,
        };
        (self.next, back)
    }

    fn asked(&mut self, connection: u64, now: Instant) {
        self.waiting.insert(connection, now);
    }

    fn heard(&mut self, connection: u64, now: Instant) -> Option<WebChange> {
        self.waiting.remove(&connection);
        self.heard = Some(now);
        self.end(now)
    }

    /// Looks whether requests wait that nobody answers.
    fn look(&mut self, now: Instant) -> Option<WebChange> {
        let long = |since: Instant| now.saturating_duration_since(since) >= SILENT;
        let waits = self.waiting.values().any(|since| long(*since));
        if !waits || !self.heard.is_none_or(long) || self.fault.is_some() {
            return None;
        }
        self.begin(WebFault::Silent, now)
    }
}

/// The web server behind an origin.
pub(super) struct WebServer {
    address: SocketAddr,
    health: RefCell<WebHealth>,
    complaint: Throttle,
}

impl WebServer {
    pub(super) fn new(address: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            address,
            health: RefCell::default(),
            complaint: Throttle::new(),
        })
    }

    /// Address of the web server.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reason why the web server is of no use now, and for how long; `None` while it answers.
    pub(super) fn fault(&self, now: Instant) -> Option<(String, Duration)> {
        let health = self.health.borrow();
        let (fault, since) = health.fault.as_ref()?;
        let text = match fault {
            WebFault::Unreachable(error) => format!("cannot be reached: {error}"),
            WebFault::Silent => "answers nothing of what it is asked".to_owned(),
        };
        Some((text, now.saturating_duration_since(*since)))
    }

    /// A new connection that begins with `header`.
    ///
    /// # Errors
    /// The web server takes none.
    pub(super) async fn connect(self: &Rc<Self>, header: &[u8]) -> io::Result<WebStream> {
        let mut tcp = match self.dial().await {
            Ok(tcp) => tcp,
            Err(error) => return Err(self.unreachable(error)),
        };
        tcp.set_nodelay(true)?;
        // The first bytes of a connection, which the kernel always has room for.
        tcp.write_all(header).await?;
        let (number, change) = self.health.borrow_mut().connected(process::now());
        self.tell(change);
        Ok(WebStream {
            tcp,
            server: self.clone(),
            number,
        })
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer in 10 s");
        let dialled = timeout(CONNECT, TcpStream::connect(self.address)).await;
        dialled.map_err(late)?
    }

    fn unreachable(&self, error: io::Error) -> io::Error {
        if process::tell_of_files(&error) {
            // The fault is here.
            return error;
        }
        let fault = WebFault::Unreachable(error.to_string());
        let change = self.health.borrow_mut().begin(fault, process::now());
        self.tell(change);
        error
    }

    /// Keeps the state true, for as long as it is polled.
    pub(super) async fn watch(self: &Rc<Self>) {
        // That nobody is there is told at the start, and not when the first visitor comes.
        drop(self.connect(&[]).await);
        loop {
            sleep(LOOK).await;
            let fault = self.health.borrow().fault.clone();
            if matches!(fault, Some((WebFault::Unreachable(_), _))) {
                drop(self.connect(&[]).await);
            }
            let change = self.health.borrow_mut().look(process::now());
            self.tell(change);
        }
    }

    fn tell(&self, change: Option<WebChange>) {
        let address = self.address;
        match change {
            None => {}
            // One that comes and goes with each connection is told of once a minute.
            Some(WebChange::Fails(_)) if !self.complaint.is_due(process::now()) => {}
            Some(WebChange::Fails(WebFault::Unreachable(error))) => tracing::warn!(
                "the web server http://{address} cannot be reached: {error}; start it, or correct `upstream`"
            ),
            Some(WebChange::Fails(WebFault::Silent)) => tracing::warn!(
                "the web server http://{address} has answered nothing for {} s, though it is asked; see what it waits for, or restart it",
                SILENT.as_secs()
            ),
            Some(WebChange::Back(after)) => tracing::info!(
                target: events::STATE,
                "the web server http://{address} is back, after {}",
                span(after.as_secs())
            ),
        }
    }
}

/// A connection to the web server.
pub(super) struct WebStream {
    tcp: TcpStream,
    server: Rc<WebServer>,
    number: u64,
}

impl Drop for WebStream {
    fn drop(&mut self) {
        self.server.health.borrow_mut().waiting.remove(&self.number);
    }
}

impl AsyncRead for WebStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            let mut health = self.server.health.borrow_mut();
            let change = health.heard(self.number, process::now());
            drop(health);
            self.server.tell(change);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tcp).poll_write(context, bytes))?;
        let mut health = self.server.health.borrow_mut();
        health.asked(self.number, process::now());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn one_that_takes_requests_and_says_nothing_is_told_of_until_it_speaks() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = WebServer::new(listener.local_addr().unwrap());
        let later = |seconds| process::now() + Duration::from_secs(seconds);
        let mut silent = server.connect(&[]).await.unwrap();
        let (mut web, _) = listener.accept().await.unwrap();
        assert!(
            server.health.borrow_mut().look(later(600)).is_none(),
            "nothing was asked"
        );
        silent.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(server.health.borrow_mut().look(later(59)).is_none());
        let fails = Some(WebChange::Fails(WebFault::Silent));
        assert_eq!(server.health.borrow_mut().look(later(61)), fails);
        assert!(
            server.health.borrow_mut().look(later(62)).is_none(),
            "told once"
        );
        let (why, _) = server.fault(later(62)).expect("a fault");
        assert_eq!(why, "answers nothing of what it is asked");
        // A connection alone is no answer: the kernel makes it.
        let other = server.connect(&[]).await.unwrap();
        assert!(server.fault(later(63)).is_some());
        drop(other);
        web.write_all(b"H").await.unwrap();
        silent.read_u8().await.unwrap();
        assert!(server.fault(later(64)).is_none());
        assert!(
            server.health.borrow_mut().look(later(600)).is_none(),
            "nobody waits"
        );
    }

    #[tokio::test]
    async fn one_that_answers_others_is_not_silent() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = WebServer::new(listener.local_addr().unwrap());
        let mut polls = server.connect(&[]).await.unwrap();
        polls
            .write_all(b"GET /when/something/happens")
            .await
            .unwrap();
        let number = polls.number + 1;
        let now = process::now() + Duration::from_secs(50);
        assert!(server.health.borrow_mut().heard(number, now).is_none());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(server.health.borrow_mut().look(later(59)).is_none());
        assert!(server.health.borrow_mut().look(later(60)).is_some());
        drop(polls);
        assert!(server.health.borrow().waiting.is_empty());
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_told_of_once_and_when_it_is_back() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = WebServer::new(listener.local_addr().unwrap());
        drop(listener);
        assert!(server.connect(&[]).await.is_err());
        let (why, _) = server.fault(process::now()).expect("a fault");
        assert!(
            why.starts_with("cannot be reached: Connection refused"),
            "{why}"
        );
        let again = WebFault::Unreachable("another".to_owned());
        assert!(
            server
                .health
                .borrow_mut()
                .begin(again, process::now())
                .is_none()
        );
        let listener = TcpListener::bind(server.address).await.unwrap();
        assert!(server.connect(&[]).await.is_ok());
        assert!(server.fault(process::now()).is_none());
        drop(listener);
    }
}
