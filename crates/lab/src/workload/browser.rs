//! Loading a page as a browser does with HTTP/1.1 over TLS, without being one: a few connections per host, kept alive, each
//! request to whichever connection is free first, and objects asked for as soon as what refers to them has come. It takes
//! what refers to what from the page's plan and reads no HTML.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, OnceCell, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::content::Digest;
use super::fetch::{Connection, Wanted, connect};
use super::hosts::Hosts;
use super::lookup::lookup;
use super::page::Page;
use super::web::{HTTP_PORT, HTTPS_PORT};

/// Connections that a browser opens to one host at most.
pub const CONNECTIONS_PER_HOST: usize = 6;

/// How pages are loaded.
#[derive(Debug, Clone)]
pub struct Client {
    /// TLS to all hosts; without, requests are in clear.
    tls: Option<Arc<ClientConfig>>,
    /// Whether each object comes over a connection of its own.
    each: bool,
    /// Connections to one host at most.
    parallel: usize,
}

impl From<Arc<ClientConfig>> for Client {
    /// As browsers do: connections are kept, [`CONNECTIONS_PER_HOST`] to a host.
    fn from(tls: Arc<ClientConfig>) -> Self {
        Self {
            tls: Some(tls),
            each: false,
            parallel: CONNECTIONS_PER_HOST,
        }
    }
}

impl Client {
    /// One that has at most `parallel` connections to a host, each for one object if `each`.
    #[must_use]
    pub fn new(tls: Option<Arc<ClientConfig>>, each: bool, parallel: usize) -> Self {
        Self {
            tls,
            each,
            parallel,
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
        Wanted {
            path: self.page.path(place),
            length: self.page.objects()[place].length,
            digest: self.digests[place],
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
    client: impl Into<Client>,
    mut progress: impl FnMut(usize),
) -> Result<PageLoad> {
    let (page, client) = (expected.page(), client.into());
    let (fetched, mut arrivals) = mpsc::unbounded_channel();
    let origins: Vec<Arc<Origin>> = hosts
        .iter()
        .map(|(name, address)| Origin::new(name, address, hosts.resolver(), &client))
        .collect::<Result<_>>()?;
    // Dropping it ends the connections that are left.
    let mut connections = JoinSet::new();
    let mut opened = 0;
    let start = Instant::now();
    let mut discover = |index: usize| -> Result<()> {
        let wanted = &page.objects()[index];
        let origin = origins
            .get(usize::from(wanted.host))
            .with_context(|| format!("the page has a host {} that nobody knows", wanted.host))?;
        if origin.enqueue(index, expected.wanted(index)) {
            opened += 1;
            connections.spawn(Arc::clone(origin).serve(fetched.clone()));
        }
        Ok(())
    };
    discover(0)?;
    for done in 1..=page.objects().len() {
        let Some((index, outcome)) = arrivals.recv().await else {
            bail!("all connections ended");
        };
        let name = || {
            let wanted = &page.objects()[index];
            format!("{} of host {}", page.path(index), wanted.host)
        };
        outcome.with_context(name)?;
        progress(done);
        page.children(index).try_for_each(&mut discover)?;
    }
    Ok(PageLoad {
        time: start.elapsed(),
        connections: match client.each {
            true => page.objects().len(),
            false => opened,
        },
    })
}

type Arrival = (usize, Result<()>);

/// One host as the browser sees it.
struct Origin {
    name: String,
    server_name: ServerName<'static>,
    /// Known from the table, or once the resolver was asked.
    address: OnceCell<IpAddr>,
    resolver: Option<SocketAddr>,
    tls: Option<TlsConnector>,
    each: bool,
    parallel: usize,
    state: Mutex<State>,
    enqueued: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(usize, Wanted)>,
    /// Connections in all.
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
            each: client.each,
            parallel: client.parallel,
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

    /// One connection, from `connect` on, for as long as the page is loaded, or one after another for an object each.
    async fn serve(self: Arc<Self>, fetched: mpsc::UnboundedSender<Arrival>) {
        let mut kept = match self.each {
            true => None,
            false => Some(self.open().await),
        };
        loop {
            let (index, wanted) = self.next().await;
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.open().await,
            };
            let outcome = match &mut connection {
                Ok(connection) => connection.fetch(&wanted, &mut |_| ()).await,
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            kept = (!self.each).then_some(connection);
            self.state(|state| state.free += 1);
            if fetched.send((index, outcome)).is_err() {
                return;
            }
        }
    }

    async fn open(&self) -> Result<Connection> {
        let ask = || async {
            let resolver = self.resolver.context("nobody is asked for names")?;
            lookup(resolver, &self.name).await
        };
        let address = *self.address.get_or_try_init(ask).await?;
        let Some(tls) = &self.tls else {
            let stream = connect((address, HTTP_PORT).into()).await?;
            return Connection::open(stream, &self.name).await;
        };
        let stream = connect((address, HTTPS_PORT).into()).await?;
        let stream = tls
            .connect(self.server_name.clone(), stream)
            .await
            .context("TLS")?;
        Connection::open(stream, &self.name).await
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
