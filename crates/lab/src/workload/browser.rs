//! Loading a page as a browser does, without being one. With HTTP/2 and HTTP/3 all requests to a host share a connection; with
//! HTTP/1.1 there are a few connections per host, kept alive, and each request goes to whichever is free first. Objects are asked for as
//! soon as what refers to them has come: a document is read as it comes, everything else when it is whole. What refers to what
//! is taken from the page's plan; no HTML is read.

mod origin;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::content::Digest;
use super::fetch::Wanted;
use super::hosts::Hosts;
use super::page::Page;
use super::shape::Kind;
use origin::Origin;

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

/// A browser with its connections, which it keeps from page to page.
pub struct Browsing {
    origins: Vec<Arc<Origin>>,
    /// Connections that are open; dropping it ends them.
    connections: JoinSet<()>,
    fetched: mpsc::UnboundedSender<Arrival>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

impl Browsing {
    /// One that has not connected to any of `hosts` yet.
    ///
    /// # Errors
    /// A host's name is none.
    pub fn new(hosts: &Hosts, client: &Client) -> Result<Self> {
        let (fetched, arrivals) = mpsc::unbounded_channel();
        let origin = |(name, address)| Origin::new(name, address, hosts.resolver(), client);
        Ok(Self {
            origins: hosts.iter().map(origin).collect::<Result<_>>()?,
            connections: JoinSet::new(),
            fetched,
            arrivals,
        })
    }

    /// Loads the page; `progress` is told how many of its objects have come, after each.
    ///
    /// # Errors
    /// An object could not be fetched or is not the expected one; the text names it. No other page can be loaded then.
    pub async fn load(
        &mut self,
        expected: &ExpectedPage,
        mut progress: impl FnMut(usize),
    ) -> Result<PageLoad> {
        let page = expected.page();
        let before = self.opened();
        let start = Instant::now();
        self.ask(expected, 0)?;
        let (mut done, mut unread) = (0, Unread::new(page));
        while done < page.objects().len() {
            let Some((index, came)) = self.arrivals.recv().await else {
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
            let mut found = unread.read(index, part);
            found.try_for_each(|index| self.ask(expected, index))?;
        }
        Ok(PageLoad {
            time: start.elapsed(),
            connections: self.opened() - before,
        })
    }

    /// Asks for the object at `index`, over a connection more if that has to be.
    fn ask(&mut self, expected: &ExpectedPage, index: usize) -> Result<()> {
        let wanted = &expected.page().objects()[index];
        let origin = self
            .origins
            .get(usize::from(wanted.host))
            .with_context(|| format!("the page has a host {} that nobody knows", wanted.host))?;
        if origin.enqueue(index, expected.wanted(index)) {
            self.connections
                .spawn(Arc::clone(origin).serve(self.fetched.clone()));
        }
        Ok(())
    }

    /// Connections that were opened so far.
    fn opened(&self) -> usize {
        self.origins.iter().map(|origin| origin.opened()).sum()
    }
}

/// Loads the page by a browser of its own; `progress` is told how many of its objects have come, after each.
///
/// # Errors
/// As [`Browsing::load`].
pub async fn load(
    expected: &ExpectedPage,
    hosts: &Hosts,
    client: &Client,
    progress: impl FnMut(usize),
) -> Result<PageLoad> {
    Browsing::new(hosts, client)?.load(expected, progress).await
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
