//! The server's TCP door: TLS connections of clients whose network lets no UDP pass (`PROTOCOL.md` §17).
//!
//! ```text
//!  TCP ─► ClientHello ─ with ALPN, or no TLS ─► fallback, a web server          (or closed)
//!             └─ ours ─► TLS handshake ─► preface, first datagram ─► the shard whose connection that names
//! ```
//!
//! All this happens on the main thread, so that a stranger's handshakes take no time from tunnels. Who comes in is judged in
//! `net/strangers.rs`; what is inside is QUIC, which proves who the two ends are.

mod carried;
mod certificate;
mod entrance;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::stream::Deframer;
use bytes::BytesMut;
use rustls::ServerConfig as TlsConfig;
use rustls::server::Acceptor;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::config::TlsListening;
use crate::net::listen::{accept, listen_each};
use crate::net::strangers::Strangers;
use crate::process::{self, RunError};
use crate::shard::owner;
use crate::status;
use crate::throttle::Throttle;
use crate::tls::{TlsSocket, tune};
use entrance::{Entrance, Talk};

pub(super) use carried::take_in;

/// Time from a stranger's connection to its first datagram.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections to the web server that stands behind the same port, at once.
const GUESTS: usize = 1024;

/// Wires that may wait for a shard to take them in.
const QUEUE: usize = 256;

/// Bytes of a ClientHello; with an ML-KEM share it has about 1500.
const LONGEST_HELLO: usize = 16 * 1024;

/// TLS connection that has begun to carry datagrams, on its way to a shard.
pub(super) struct FreshWire {
    /// TCP connection.
    pub(super) tcp: StdStream,
    /// State of TLS.
    pub(super) tls: rustls::Connection,
    /// Address of the client.
    pub(super) peer: SocketAddr,
    /// Reader of the stream, after the first datagram.
    pub(super) deframer: Deframer,
    /// First datagram.
    pub(super) first: BytesMut,
    /// Takes the word that the client has proven its key. Its other end is gone once the place is needed for another.
    pub(super) proven: oneshot::Sender<()>,
}

/// Ends of the channels by which wires come to shards.
pub(super) type Inboxes = Vec<mpsc::Receiver<FreshWire>>;

/// Listeners of the TCP door, and what they lead to.
pub(super) struct TlsDoor {
    listeners: RefCell<Vec<TcpListener>>,
    config: Arc<TlsConfig>,
    fallback: Option<SocketAddr>,
    shards: Vec<mpsc::Sender<FreshWire>>,
    /// Shard that gets the next wire which names none.
    turn: Cell<usize>,
    strangers: Rc<Strangers>,
    entrance: Rc<Entrance>,
    /// Places for connections to the web server.
    guests: Semaphore,
    /// Complaints that the web server cannot be reached.
    complaint: Throttle,
}

impl TlsDoor {
    /// Binds the addresses of `listening` and reads its certificate, for so many `shards`; to be called inside a runtime.
    ///
    /// # Errors
    /// An address cannot be had, or a file cannot be read.
    pub(super) fn open(
        listening: &TlsListening,
        shards: usize,
    ) -> Result<(Rc<Self>, Inboxes), RunError> {
        let config = certificate::config(listening)?;
        let listeners = listen_each(&listening.addresses)?;
        let (shards, inboxes) = (0..shards).map(|_| mpsc::channel(QUEUE)).unzip();
        let door = Self {
            listeners: RefCell::new(listeners),
            config,
            fallback: listening.fallback,
            shards,
            turn: Cell::new(0),
            strangers: Strangers::new(),
            entrance: Rc::default(),
            guests: Semaphore::new(GUESTS),
            complaint: Throttle::new(),
        };
        Ok((Rc::new(door), inboxes))
    }

    /// Takes in connections; to be called inside a set of local tasks.
    pub(super) fn serve(self: &Rc<Self>) {
        for listener in self.listeners.take() {
            let door = self.clone();
            accept(listener, move |tcp, peer| {
                door.admit(tcp, peer);
                std::future::ready(())
            });
        }
    }

    /// Begins to talk with a stranger, unless it or its network has had its share.
    fn admit(self: &Rc<Self>, tcp: TcpStream, peer: SocketAddr) {
        let door = self.clone();
        let met = self.strangers.meet(peer, |stranger| async move {
            let talk = Talk::begin(&door.entrance);
            match timeout(PATIENCE, door.meet(tcp, peer)).await {
                Ok(Ok(Met::Ours(wire, proven))) => {
                    if !door.hand_over(*wire) {
                        return talk.refused(|refused| &mut refused.busy);
                    }
                    // The place is kept until QUIC has shown who is there.
                    if proven.await.is_ok() {
                        stranger.prove();
                        talk.proven();
                    } else {
                        talk.refused(|refused| &mut refused.unproven);
                    }
                }
                Ok(Ok(Met::Other(tcp, first))) => {
                    drop(stranger);
                    door.fall_back(tcp, &first, talk).await;
                }
                Ok(Err(error)) => {
                    tracing::debug!(%peer, "TLS: {error}");
                    talk.failed(&error);
                }
                Err(_) => {
                    tracing::debug!(%peer, "TLS: silent for {} s", PATIENCE.as_secs());
                    talk.refused(|refused| &mut refused.incomplete);
                }
            }
        });
        if !met {
            self.entrance.refuse(|refused| &mut refused.crowded);
            tracing::debug!(%peer, "too many TLS connections of strangers");
        }
    }

    /// Figures for `status`.
    pub(super) fn report(&self) -> status::TlsEntrance {
        self.entrance.report()
    }

    /// Finds out who is there.
    async fn meet(&self, mut tcp: TcpStream, peer: SocketAddr) -> io::Result<Met> {
        tune(&SockRef::from(&tcp))?;
        let (accepted, first) = match read_hello(&mut tcp).await? {
            (Some(accepted), first) => (accepted, first),
            (None, first) => return Ok(Met::Other(tcp, first)),
        };
        // A browser says which versions of HTTP it speaks; a client of ours says nothing.
        if accepted.client_hello().alpn().is_some() {
            return Ok(Met::Other(tcp, first));
        }
        let tls = accepted.into_connection(self.config.clone());
        let tls = tls.map_err(|(error, _)| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let mut socket = TlsSocket::new(tcp, tls);
        socket.handshake().await?;
        let mut deframer = Deframer::default();
        let first = loop {
            if let Some(first) = deframer.read().map_err(io::Error::other)? {
                break first;
            }
            let mut bytes = [0; 2048];
            match poll_fn(|cx| socket.poll_read(cx, &mut bytes)).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => deframer.push(&bytes[..count]),
            }
        };
        let (tcp, tls) = socket.into_parts()?;
        let (proven, word) = oneshot::channel();
        let wire = FreshWire {
            tcp,
            tls,
            peer,
            deframer,
            first,
            proven,
        };
        Ok(Met::Ours(Box::new(wire), word))
    }

    /// Gives a wire to the shard of its connection; false if that has no place for it.
    fn hand_over(&self, wire: FreshWire) -> bool {
        let shard = owner(self.shards.len(), &wire.first).unwrap_or_else(|| {
            let turn = self.turn.get();
            self.turn.set((turn + 1) % self.shards.len());
            turn
        });
        let taken = self.shards[shard].try_send(wire).is_ok();
        if !taken {
            tracing::debug!("shard {shard} takes in no TLS connection now");
        }
        taken
    }

    /// Leads a connection that is not for bentpipe to the web server, `first` being what was read of it.
    async fn fall_back(&self, mut tcp: TcpStream, first: &[u8], talk: Talk) {
        let Some(address) = self.fallback else {
            return talk.refused(|refused| &mut refused.no_fallback);
        };
        let Ok(_place) = self.guests.try_acquire() else {
            tracing::debug!("fallback {address}: too many connections");
            return talk.refused(|refused| &mut refused.no_fallback);
        };
        let mut web = match TcpStream::connect(address).await {
            Ok(web) => web,
            Err(error) => {
                if self.complaint.is_due(process::now()) {
                    tracing::warn!(
                        "the web server of `fallback` = {address} cannot be reached: {error}; connections that are not for bentpipe are closed"
                    );
                }
                return talk.refused(|refused| &mut refused.no_fallback);
            }
        };
        talk.led_on();
        let done = async {
            web.write_all(first).await?;
            copy_bidirectional(&mut tcp, &mut web).await
        };
        if let Err(error) = done.await {
            tracing::debug!("fallback {address}: {error}");
        }
    }
}

/// Finding about a stranger.
enum Met {
    /// A client, or somebody who talks like one; and what brings word that it has proven its key.
    Ours(Box<FreshWire>, oneshot::Receiver<()>),
    /// Connection of somebody else, and what was read.
    Other(TcpStream, Vec<u8>),
}

/// Reads a ClientHello; `None` if something else comes. The bytes are what was read.
async fn read_hello(
    tcp: &mut TcpStream,
) -> io::Result<(Option<rustls::server::Accepted>, Vec<u8>)> {
    let (mut acceptor, mut read) = (Acceptor::default(), Vec::new());
    loop {
        let fed = read.len();
        if tcp.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut fresh = &read[fed..];
        while !fresh.is_empty() {
            acceptor.read_tls(&mut fresh)?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return Ok((Some(accepted), read)),
                Err(_) => return Ok((None, read)),
            }
        }
        if read.len() >= LONGEST_HELLO {
            return Ok((None, read));
        }
    }
}
