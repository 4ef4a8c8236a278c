//! First words on a connection to port 443: a host that is listed is answered for, all else goes on untouched.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bytes::{Bytes, BytesMut};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::browser::Browser;
use super::hello::{Heard, HelloReader, MAX_HELLO};
use super::multiplexed::{HTTP2, Multiplexed};
use super::{PageRoad, Pages, dssl};
use crate::process;
use crate::relay::Outcome;

/// Time for a ClientHello; a connection that says nothing for so long may be one whose server speaks first.
const HELLO: Duration = Duration::from_secs(2);

/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// What has become of a connection.
pub(crate) enum Meeting {
    /// Answered in the place of its host.
    Browser(Browser),
    /// Answered so, by HTTP/2.
    Multiplexed(Multiplexed),
    /// Not touched: these bytes were read.
    Untouched(TcpStream, Destination, Bytes),
    /// Over.
    Over(Outcome),
}

impl Pages {
    /// Answers a connection in TLS if its ClientHello, of which `first` was read already, names a host that is listed.
    pub(crate) async fn meet(
        self: &Rc<Self>,
        road: &impl PageRoad,
        mut socket: TcpStream,
        (destination, source): (Destination, Option<SocketAddr>),
        first: &[u8],
    ) -> Meeting {
        let mut read = BytesMut::from(first);
        let Ok(heard) = hear(&mut socket, &mut read).await else {
            return Meeting::Over(Outcome::LanReset);
        };
        let trusted = self.trusted.as_ref().zip(heard);
        let known = trusted.and_then(|(trusted, name)| Some((trusted.answer_as(&name)?, name)));
        let Some((config, name)) = known else {
            return Meeting::Untouched(socket, destination, read.freeze());
        };
        let place = (destination, source);
        let sealed = self.dssl.as_ref().is_some_and(|it| it.lists(&name));
        let carried = match sealed {
            true => dssl::is_spoken(self, road, &place, &name).await,
            false => self.is_trusted_carried(road).await,
        };
        if !carried {
            return Meeting::Untouched(socket, place.0, read.freeze());
        }
        let config = match sealed {
            true => with_http1_alone(&config),
            false => config,
        };
        match timeout(HANDSHAKE, shake(config, socket, &read)).await {
            Ok(Ok(tls)) => {
                self.met.set(self.met.get() + 1);
                match tls.get_ref().1.alpn_protocol() {
                    _ if sealed => Meeting::Browser(Browser::trusted(tls, place, name).sealed()),
                    Some(HTTP2) => Meeting::Multiplexed(Multiplexed::new(tls, place, name)),
                    _ => Meeting::Browser(Browser::trusted(tls, place, name)),
                }
            }
            Ok(Err(error)) => {
                self.tell_distrust(place.1, &name, &error);
                Meeting::Over(Outcome::LanReset)
            }
            Err(_) => Meeting::Over(Outcome::LanReset),
        }
    }

    /// True if the server fetches pages over TLS.
    async fn is_trusted_carried(&self, road: &impl PageRoad) -> bool {
        let carried = road.carries_trusted().await;
        if !carried {
            self.tell_lacking(
                "the server fetches no pages over TLS: they load as without `tls = \"trusted\"`; give its `[web]` `tls = \"trusted\"`",
            );
        }
        carried
    }

    fn tell_distrust(&self, source: Option<SocketAddr>, name: &str, error: &io::Error) {
        // An end without a word is how some browsers close what they opened ahead.
        let fault = error.get_ref().is_some_and(|it| it.is::<rustls::Error>());
        if fault && self.distrust.is_due(process::now()) {
            let host = source.map_or_else(String::new, |source| source.ip().to_string());
            tracing::warn!(
                "a browser of {host} does not take the local CA's certificate of {name}: {error}; install the CA there (`bentpipe ca show`), \
                 or take the host out of `names`"
            );
        }
    }
}

/// TLS in which a browser speaks HTTP/1.1: what it asks goes on as it is, one request after the other.
fn with_http1_alone(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Reads a ClientHello into `read`; says the host that it names, unless its connection is not to be touched.
async fn hear(socket: &mut TcpStream, read: &mut BytesMut) -> io::Result<Option<String>> {
    let deadline = Instant::now() + HELLO;
    let (mut reader, mut judged) = (HelloReader::new(), 0);
    loop {
        let heard = reader.read(&read[judged..]);
        judged = read.len();
        match heard {
            Heard::Host(name) => return Ok(Some(name)),
            Heard::Other => return Ok(None),
            Heard::Part => {}
        }
        read.reserve(MAX_HELLO);
        match timeout_at(deadline, socket.read_buf(read)).await {
            // Silence, or an end: whoever gets these bytes will see it as well.
            Err(_) | Ok(Ok(0)) => return Ok(None),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// Completes a handshake that begins with `hello`.
async fn shake(
    config: Arc<ServerConfig>,
    socket: TcpStream,
    hello: &[u8],
) -> io::Result<TlsStream<TcpStream>> {
    let take_in = |tls: &mut ServerConnection| {
        let mut bytes = hello;
        while !bytes.is_empty() {
            // A fault stays with the connection, and is its next answer.
            if tls.read_tls(&mut bytes).is_err() || tls.process_new_packets().is_err() {
                return;
            }
        }
    };
    let accepting = TlsAcceptor::from(config).accept_with(socket, take_in);
    accepting.await
}
