//! One host as the browser sees it: its connections, and what waits for them.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OnceCell, mpsc};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::fetch::{Connection, Multiplexed, Wanted, connect};
use super::super::http3::OverQuic;
use super::super::lookup::lookup;
use super::super::tls::secure;
use super::super::web::{HTTP_PORT, HTTPS_PORT};
use super::{Arrival, Came, Client, Reuse};

/// One host as the browser sees it.
pub(super) struct Origin {
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
    pub(super) opened: usize,
    /// Connections in all, or requests over the one that all share.
    open: usize,
    /// Connections that are being made or have nothing to do: each will take one of `waiting`.
    free: usize,
}

impl Origin {
    pub(super) fn new(
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

    /// Connections that were opened so far.
    pub(super) fn opened(&self) -> usize {
        self.state(|state| state.opened)
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for an object; true if a connection shall be opened for it.
    pub(super) fn enqueue(&self, index: usize, wanted: Wanted) -> bool {
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
    pub(super) async fn serve(self: Arc<Self>, fetched: mpsc::UnboundedSender<Arrival>) {
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
