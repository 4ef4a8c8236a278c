//! Connections to origins: TCP, and TLS over it for those that a client has listed.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host};
use bentpipe_web::MAX_AT_ONCE;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::origins::{OriginSocket, ReachedOrigin, TlsName};
use super::{ObjectsOrigin, PageClient, ServedPages};

/// Time that an origin has for its handshake.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(15);

/// Connections that are being opened ahead of the objects of pages.
struct ConnectingAhead {
    pages: Rc<ServedPages>,
    place: ObjectsOrigin,
}

impl Drop for ConnectingAhead {
    fn drop(&mut self) {
        self.pages.opening.borrow_mut().remove(&self.place);
    }
}

/// Reason why a response does not come whole.
pub(super) enum Unfetched {
    /// The origin cannot be reached, or ended its connection.
    Unreached,
    /// The origin said nothing for too long.
    Silent,
    /// The origin's TLS is not to be believed.
    Untrusted(rustls::Error),
    /// A response that may not be kept, or is too long.
    Unfit,
    /// The stream has ended.
    Stream,
}

impl From<io::Error> for Unfetched {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            return Self::Silent;
        }
        let inner = error.into_inner().map(|inner| inner.downcast());
        match inner {
            Some(Ok(fault)) => Self::Untrusted(*fault),
            Some(Err(_)) | None => Self::Unreached,
        }
    }
}

impl ServedPages {
    /// Connection on which `peer` may ask the origin `name`: `reached`, if it is fit for that, another that waits, or a new one.
    pub(super) async fn secured(
        &self,
        peer: &PageClient,
        reached: ReachedOrigin,
        name: &TlsName,
    ) -> Result<OriginSocket, Unfetched> {
        match reached {
            ReachedOrigin::Fresh(tcp, to) => self.begin(tcp, to, name).await,
            ReachedOrigin::Waiting(origin) if origin.name == *name => Ok(origin),
            ReachedOrigin::Waiting(origin) => {
                let to = origin.to;
                self.origins.put(peer.id, origin);
                match self.origins.take_named(peer.id, to, name) {
                    Some(origin) => Ok(origin),
                    None => self.dialled(peer, to, name).await,
                }
            }
        }
    }

    /// New connection to the origin `name` at `to`.
    pub(super) async fn dialled(
        &self,
        peer: &PageClient,
        to: SocketAddr,
        name: &TlsName,
    ) -> Result<OriginSocket, Unfetched> {
        // Beside the page's own connection, which has the place of its flow.
        let place = self.rights.place(&peer.client, 1);
        let place = place.map_err(|_| Unfetched::Unreached)?;
        let tcp = self.dialled_again(peer, to).await;
        let origin = self.begin(tcp.ok_or(Unfetched::Unreached)?, to, name);
        Ok(OriginSocket {
            _place: Some(place),
            ..origin.await?
        })
    }

    /// New TCP connection to where a page is.
    pub(super) async fn dialled_again(
        &self,
        peer: &PageClient,
        to: SocketAddr,
    ) -> Option<TcpStream> {
        // Of a name's addresses the page's alone: others may be another machine's.
        let destination = Destination {
            host: Host::Ip(to.ip()),
            port: to.port(),
        };
        let dialled = self.rights.dial(&peer.client, &destination).await;
        dialled.ok().map(|(tcp, _)| tcp)
    }

    /// Opens connections for the objects of a page that is asked for over TLS: they wait for requests by the time the page comes,
    /// while handshakes of their own would cost each two round trips behind it. In clear it is one, and that is left to the objects.
    pub(super) fn connect_ahead(
        self: &Rc<Self>,
        peer: &PageClient,
        to: SocketAddr,
        name: &TlsName,
    ) {
        let place = (peer.id, to, name.clone());
        // Many pages at one time share those that one of them has asked for.
        if name.is_none() || !self.opening.borrow_mut().insert(place.clone()) {
            return;
        }
        let opening = Rc::new(ConnectingAhead {
            pages: self.clone(),
            place,
        });
        // The page's own connection is one of those that objects have at one time.
        let waiting = self.origins.count(peer.id, to, name);
        for _ in waiting..MAX_AT_ONCE - 1 {
            let (opening, peer) = (opening.clone(), peer.clone());
            spawn_local(async move {
                let (pages, (_, to, name)) = (&opening.pages, &opening.place);
                // Whoever asks for the page is told what is wrong.
                if let Ok(origin) = pages.dialled(&peer, *to, name).await {
                    pages.origins.put(peer.id, origin);
                }
            });
        }
    }

    /// The handshake with the origin, where there is one.
    async fn begin(
        &self,
        tcp: TcpStream,
        to: SocketAddr,
        name: &TlsName,
    ) -> Result<OriginSocket, Unfetched> {
        let stream = match name {
            None => Box::new(tcp) as Box<_>,
            Some(host) => {
                let tls = self.tls.as_ref().ok_or(Unfetched::Stream)?;
                let shaking = tls.connect(host.clone(), tcp);
                let shaken = timeout(HANDSHAKE, shaking).await;
                Box::new(shaken.map_err(|_| Unfetched::Silent)??) as Box<_>
            }
        };
        Ok(OriginSocket {
            stream,
            to,
            name: name.clone(),
            used: false,
            _place: None,
        })
    }

    /// Counts an origin whose TLS is not to be believed, and tells the log.
    pub(super) fn note_untrusted(
        &self,
        peer: &PageClient,
        name: &ServerName<'_>,
        fault: &rustls::Error,
    ) {
        self.account(peer.id, |account| account.refused += 1);
        if self.complaints.is_due(crate::process::now()) {
            tracing::warn!(
                client = peer.client.name,
                "{} is not trusted: {fault}; its page says so (`roots` of `[web]` names authorities that the system lacks)",
                name.to_str()
            );
        }
    }
}
