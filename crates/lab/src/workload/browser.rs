//! Loading a page as a browser does, without being one. With HTTP/2 and HTTP/3 all requests to a host share a connection; with
//! HTTP/1.1 there are a few connections per host, kept alive, and each request goes to whichever is free first. Objects are asked for as
//! soon as what refers to them has come: a document is read as it comes, everything else when it is whole. What refers to what
//! is taken from the page's plan; no HTML is read.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OnceCell, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::content::Digest;
use super::fetch::{Connection, Multiplexed, Wanted, connect};
use super::hosts::Hosts;
use super::http3::OverQuic;
use super::lookup::lookup;
use super::page::Page;
use super::shape::Kind;
use super::tls::secure;
use super::web::{HTTP_PORT, HTTPS_PORT};

/// Connections that a browser opens to one host at most.
pub const CONNECTIONS_PER_HOST: usize = 6;

/// Settings by which pages are loaded.
#[derive(Debug, Clone)]
pub struct Client {
    /// TLS to all hosts; without, requests are in clear.
    tls: Option<Arc<ClientConfig>>,
    /// TLS of QUIC, which is tried before TCP.
    quic: Option<Arc<ClientConfig>>,
    reuse: Reuse,
    /// Requests to one host at once, at most.
    parallel: usize,
}

/// Use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reuse {
    /// One object.
    Each,
    /// One object after another.
    Kept,
    /// All objects of a host at once (HTTP/2, HTTP/3).
    Shared,
}

/// Streams that HTTP/2 servers let a client open at once, at the least that RFC 9113 §6.5.2 recommends.
const STREAMS: usize = 100;

impl Client {
    /// One that has at most `parallel` connections to a host, each for one object if `each`.
    #[must_use]
    pub fn new(tls: Option<Arc<ClientConfig>>, each: bool, parallel: usize) -> Self {
        Self {
            tls,
            quic: None,
            reuse: if each { Reuse::Each } else { Reuse::Kept },
            parallel,
        }
    }

    /// One that speaks HTTP/1.1 over TLS, over [`CONNECTIONS_PER_HOST`] connections to a host, which are kept.
    #[must_use]
    pub fn http1(tls: Arc<ClientConfig>) -> Self {
        Self::new(Some(tls), false, CONNECTIONS_PER_HOST)
    }

    /// One that speaks HTTP/2, for which `tls` has to ask, over one connection to each host.
    #[must_use]
    pub fn http2(tls: Arc<ClientConfig>) -> Self {
        Self {
            tls: Some(tls),
            quic: None,
            reuse: Reuse::Shared,
            parallel: STREAMS,
        }
    }

    /// One that speaks HTTP/3 over one connection to each host, for which `quic` has to ask; where QUIC does not pass,
    /// HTTP/2 as [`Self::http2`].
    #[must_use]
    pub fn http3(quic: Arc<ClientConfig>, tls: Arc<ClientConfig>) -> Self {
        Self {
            quic: Some(quic),
            ..Self::http2(tls)
        }
    }
}

/// A page that has come, whole and unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLoad {
    /// From the first `connect`, or the first question for a name, to the last byte of the last object.
    pub time: Duration,
    /// Connections that were opened.
    pub connections: usize,
}

/// A page and what its bodies must hash to, known before any clock runs.
#[derive(Debug, Clone)]
pub struct ExpectedPage {
    page: Page,
    digests: Vec<Digest>,
}

impl ExpectedPage {
    /// The page where hosts have these names.
    #[must_use]
    pub fn new(page: Page, hosts: &Hosts) -> Self {
        let digests = page.digests(&hosts.names());
        Self { page, digests }
    }

    /// The page itself.
    #[must_use]
    pub fn page(&self) -> &Page {
        &self.page
    }

    fn wanted(&self, place: usize) -> Wanted {
        let object = &self.page.objects()[place];
        Wanted {
            path: self.page.path(place),
            length: object.length,
            digest: self.digests[place],
            accept: match object.kind {
                Kind::Document => "text/html,application/xhtml+xml,*/*;q=0.8",
                Kind::Style => "text/css,*/*;q=0.1",
                Kind::Script => "*/*",
                Kind::Image => "image/avif,image/webp,image/*,*/*;q=0.8",
            },
        }
    }
}

/// Loads the page; `progress` is told how many of its objects have come, after each.
///
/// # Errors
/// An object could not be fetched or is not the expected one; the text names it.
pub async fn load(
    expected: &ExpectedPage,
    hosts: &Hosts,
    client: &Client,
    mut progress: impl FnMut(usize),
) -> Result<PageLoad> {
    let page = expected.page();
    let (fetched, mut arrivals) = mpsc::unbounded_channel();
    let origins: Vec<Arc<Origin>> = hosts
        .iter()
        .map(|(name, address)| Origin::new(name, address, hosts.resolver(), client))
        .collect::<Result<_>>()?;
    // Dropping it ends the connections that are left.
    let mut connections = JoinSet::new();
    let start = Instant::now();
    let mut discover = |index: usize| -> Result<()> {
        let wanted = &page.objects()[index];
        let origin = origins
            .get(usize::from(wanted.host))
            .with_context(|| format!("the page has a host {} that nobody knows", wanted.host))?;
        if origin.enqueue(index, expected.wanted(index)) {
            connections.spawn(Arc::clone(origin).serve(fetched.clone()));
        }
        Ok(())
    };
    discover(0)?;
    let (mut done, mut unread) = (0, Unread::new(page));
    while done < page.objects().len() {
        let Some((index, came)) = arrivals.recv().await else {
            bail!("all connections ended");
        };
        let name = || {
            let wanted = &page.objects()[index];
            format!("{} of host {}", page.path(index), wanted.host)
        };
        let part = match came {
            Came::Part(bytes) => Some(bytes),
            Came::Whole(outcome) => {
                outcome.with_context(name)?;
                done += 1;
                progress(done);
                None
            }
        };
        unread.read(index, part).try_for_each(&mut discover)?;
    }
    Ok(PageLoad {
        time: start.elapsed(),
        connections: origins
            .iter()
            .map(|origin| origin.state(|state| state.opened))
            .sum(),
    })
}

/// Part of an object that came.
enum Came {
    /// Bytes so far.
    Part(u64),
    /// All of it, or why not.
    Whole(Result<()>),
}

type Arrival = (usize, Came);

/// References of each object that the browser has not met yet.
struct Unread<'a> {
    page: &'a Page,
    /// References met so far, for each object.
    met: Vec<usize>,
}

impl<'a> Unread<'a> {
    fn new(page: &'a Page) -> Self {
        Self {
            page,
            met: vec![0; page.objects().len()],
        }
    }

    /// Objects that are met for the first time by reading on in the object at `index`, of which `part` bytes have come, or all:
    /// references stand at equal distances.
    fn read(&mut self, index: usize, part: Option<u64>) -> impl Iterator<Item = usize> + use<'a> {
        let object = &self.page.objects()[index];
        let all = self.page.children(index).count();
        let met = match part {
            None => all,
            Some(bytes) if object.kind == Kind::Document => {
                (bytes as f64 / object.length as f64 * all as f64) as usize
            }
            Some(_) => 0,
        };
        let before = std::mem::replace(&mut self.met[index], met);
        self.page.children(index).take(met).skip(before)
    }
}

/// One host as the browser sees it.
struct Origin {
    name: String,
    server_name: ServerName<'static>,
    /// Known from the table, or once the resolver was asked.
    address: OnceCell<IpAddr>,
    resolver: Option<SocketAddr>,
    tls: Option<TlsConnector>,
    quic: Option<Arc<ClientConfig>>,
    reuse: Reuse,
    parallel: usize,
    /// Connection that all share.
    shared: OnceCell<SharedConnection>,
    state: Mutex<State>,
    enqueued: Notify,
}

/// Connection that all requests to a host share.
#[derive(Clone)]
enum SharedConnection {
    OverTcp(Multiplexed),
    OverQuic(OverQuic),
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(usize, Wanted)>,
    /// Connections that were opened so far.
    opened: usize,
    /// Connections in all, or requests over the one that all share.
    open: usize,
    /// Connections that are being made or have nothing to do: each will take one of `waiting`.
    free: usize,
}

impl Origin {
    fn new(
        name: &str,
        address: IpAddr,
        resolver: Option<SocketAddr>,
        client: &Client,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            name: name.to_owned(),
            server_name: ServerName::try_from(name.to_owned())?,
            address: match resolver {
                None => OnceCell::from(address),
                Some(_) => OnceCell::new(),
            },
            resolver,
            tls: client.tls.clone().map(TlsConnector::from),
            quic: client.quic.clone(),
            reuse: client.reuse,
            parallel: client.parallel,
            shared: OnceCell::new(),
            state: Mutex::default(),
            enqueued: Notify::new(),
        }))
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for an object; true if a connection shall be opened for it.
    fn enqueue(&self, index: usize, wanted: Wanted) -> bool {
        let open = self.state(|state| {
            state.waiting.push_back((index, wanted));
            let open = state.free < state.waiting.len() && state.open < self.parallel;
            if open {
                state.open += 1;
                state.free += 1;
            }
            open
        });
        self.enqueued.notify_one();
        open
    }

    /// One connection, from `connect` on, for as long as the page is loaded, or one after another for an object each; or one
    /// request after another over the connection that all share.
    async fn serve(self: Arc<Self>, fetched: mpsc::UnboundedSender<Arrival>) {
        let mut kept = match self.reuse {
            Reuse::Kept => Some(self.open().await),
            Reuse::Each | Reuse::Shared => None,
        };
        loop {
            let (index, wanted) = self.next().await;
            let mut progress = |bytes| {
                // Nobody listens any more once the page has failed.
                let _ = fetched.send((index, Came::Part(bytes)));
            };
            let outcome = match self.reuse {
                Reuse::Shared => self.fetch_shared(&wanted, &mut progress).await,
                Reuse::Each | Reuse::Kept => {
                    let mut connection = match kept.take() {
                        Some(connection) => connection,
                        None => self.open().await,
                    };
                    let outcome = match &mut connection {
                        Ok(connection) => connection.fetch(&wanted, &mut progress).await,
                        Err(error) => Err(anyhow::anyhow!("{error:#}")),
                    };
                    kept = (self.reuse == Reuse::Kept).then_some(connection);
                    outcome
                }
            };
            self.state(|state| state.free += 1);
            if fetched.send((index, Came::Whole(outcome))).is_err() {
                return;
            }
        }
    }

    async fn fetch_shared(&self, wanted: &Wanted, progress: &mut impl FnMut(u64)) -> Result<()> {
        let connection = self.shared.get_or_try_init(|| self.open_shared()).await?;
        match connection.clone() {
            SharedConnection::OverTcp(mut connection) => connection.fetch(wanted, progress).await,
            SharedConnection::OverQuic(mut connection) => connection.fetch(wanted, progress).await,
        }
    }

    /// Over QUIC, if that is asked for and passes; else over TCP.
    async fn open_shared(&self) -> Result<SharedConnection> {
        if let Some(tls) = &self.quic {
            let address = self.address(HTTPS_PORT).await?;
            if let Ok(connection) = OverQuic::open(address, &self.name, tls).await {
                return Ok(SharedConnection::OverQuic(connection));
            }
        }
        let connection = Multiplexed::open(self.secure().await?, &self.name).await?;
        Ok(SharedConnection::OverTcp(connection))
    }

    async fn open(&self) -> Result<Connection> {
        if self.tls.is_some() {
            return Connection::open(self.secure().await?, &self.name).await;
        }
        let stream = connect(self.address(HTTP_PORT).await?).await?;
        Connection::open(stream, &self.name).await
    }

    /// A new connection with TLS.
    async fn secure(&self) -> Result<TlsStream<TcpStream>> {
        let tls = self.tls.as_ref().context("there are no keys for TLS")?;
        secure(tls, &self.server_name, self.address(HTTPS_PORT).await?).await
    }

    /// Address for one connection more.
    async fn address(&self, port: u16) -> Result<SocketAddr> {
        self.state(|state| state.opened += 1);
        let ask = || async {
            let resolver = self.resolver.context("nobody is asked for names")?;
            lookup(resolver, &self.name).await
        };
        let address = *self.address.get_or_try_init(ask).await?;
        Ok((address, port).into())
    }

    /// Waits for the next object to fetch; the caller is free until then.
    async fn next(&self) -> (usize, Wanted) {
        loop {
            let next = self.state(|state| {
                let next = state.waiting.pop_front()?;
                state.free -= 1;
                Some(next)
            });
            match next {
                Some(next) => return next,
                None => self.enqueued.notified().await,
            }
        }
    }
}
