//! HTTP/3 (RFC 9114) of the emulated web, and of a browser that falls back to TCP where QUIC does not pass.
//!
//! Packets of quinn leave by sockets whose kernel also tells what ICMP says: a browser that a router refuses QUIC knows that at
//! once, and takes TCP.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::datagram::{self, Queue};
use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use h3::quic::BidiStream;
use h3::server::{RequestResolver, RequestStream};
use h3_quinn::{Connection, OpenStreams};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig,
};

use super::content::Expected;
use super::fetch::{Received, Wanted};
use super::web::{Names, answer};

/// Name of HTTP/3 in TLS (RFC 9114 §3.1).
pub(super) const HTTP3: &[u8] = b"h3";

/// Bytes that a browser takes on one stream before it has read some, as Chromium's default.
const STREAM_WINDOW: u32 = 6 << 20;

/// Bytes that a browser takes on one connection before it has read some, as Chromium's default.
const CONNECTION_WINDOW: u32 = 15 << 20;

/// Time for which a browser waits for the first answer of QUIC before it takes TCP; one over a satellite takes 0.6 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time from one look at what ICMP has said to the next.
const LOOK: Duration = Duration::from_millis(2);

/// Answers at `socket` with the web's objects and pages. Needs the runtime.
pub(super) fn serve(
    socket: UdpSocket,
    tls: &Arc<rustls::ServerConfig>,
    names: Names,
) -> Result<()> {
    let mut tls = rustls::ServerConfig::clone(tls);
    tls.alpn_protocols = vec![HTTP3.to_vec()];
    let crypto = QuicServerConfig::try_from(tls)?;
    let config = ServerConfig::with_crypto(Arc::new(crypto));
    let quic = EndpointConfig::default();
    let endpoint = Endpoint::new(quic, Some(config), socket, Arc::new(TokioRuntime))?;
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            // How a connection ends is for its other end to judge.
            tokio::spawn(serve_connection(incoming, Arc::clone(&names)));
        }
    });
    Ok(())
}

async fn serve_connection(incoming: Incoming, names: Names) -> Result<()> {
    let quic = Connection::new(incoming.await?);
    let mut connection = h3::server::Connection::<_, Bytes>::new(quic).await?;
    while let Some(resolver) = connection.accept().await? {
        tokio::spawn(respond(resolver, Arc::clone(&names)));
    }
    Ok(())
}

async fn respond(resolver: RequestResolver<Connection, Bytes>, names: Names) -> Result<()> {
    let (request, stream) = resolver.resolve_request().await?;
    let (head, body) = answer(&request, &names).into_parts();
    let mut stream: RequestStream<_, Bytes> = stream;
    stream
        .send_response(hyper::Response::from_parts(head, ()))
        .await?;
    send(&mut stream, body).await?;
    Ok(stream.finish().await?)
}

async fn send<S: BidiStream<Bytes>>(
    stream: &mut RequestStream<S, Bytes>,
    mut body: super::web::Body,
) -> Result<()> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            stream.send_data(data).await?;
        }
    }
    Ok(())
}

/// HTTP/3 connection to one host, for any number of requests at once; closed when its last clone is dropped.
#[derive(Clone)]
pub(super) struct OverQuic {
    sender: SendRequest<OpenStreams, Bytes>,
    host: String,
}

impl OverQuic {
    /// A new connection to `host` at `address`.
    ///
    /// # Errors
    /// Nobody answers there, somebody on the way refuses QUIC, or TLS fails: the text says which.
    pub(super) async fn open(
        address: SocketAddr,
        host: &str,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self> {
        let socket = datagram::open_udp(address.is_ipv6())?;
        let watched = socket.try_clone()?;
        let connecting = connect(socket, address, host, tls);
        let quic = tokio::select! {
            quic = tokio::time::timeout(PATIENCE, connecting) => quic.context("no answer")??,
            refused = refusal(watched) => return Err(refused),
        };
        let (mut driver, sender) = h3::client::new(Connection::new(quic)).await?;
        // Errors of the connection reach the sender as well, which is where they are told.
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Self {
            sender,
            host: host.to_owned(),
        })
    }

    /// One request and its whole response.
    pub(super) async fn fetch(
        &mut self,
        wanted: &Wanted,
        progress: &mut impl FnMut(u64),
    ) -> Result<()> {
        let uri = format!("https://{}{}", self.host, wanted.path);
        let request = wanted.request(&uri).body(()).context("request")?;
        let mut stream = self.sender.send_request(request).await.context("request")?;
        stream.finish().await?;
        let status = stream.recv_response().await.context("answer")?.status();
        ensure!(status == StatusCode::OK, "the server says {status}");
        let mut received = Received::new(wanted);
        while let Some(mut data) = stream.recv_data().await.context("body")? {
            progress(received.take(&data.copy_to_bytes(data.remaining())));
        }
        received.finish()
    }
}

async fn connect(
    socket: UdpSocket,
    address: SocketAddr,
    host: &str,
    tls: &Arc<rustls::ClientConfig>,
) -> Result<quinn::Connection> {
    let quic = EndpointConfig::default();
    let mut endpoint = Endpoint::new(quic, None, socket, Arc::new(TokioRuntime))?;
    let crypto = QuicClientConfig::try_from(rustls::ClientConfig::clone(tls))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into());
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    endpoint.connect(address, host)?.await.context("QUIC")
}

/// Word of ICMP about what `socket` has sent, once there is one. Sockets of quinn pass over that.
async fn refusal(socket: UdpSocket) -> anyhow::Error {
    let mut buffer = [0; 2048];
    loop {
        let received = datagram::receive(&socket, Queue::Failures, &mut buffer);
        let failure = received.ok().and_then(|received| received.failure);
        // What this machine itself says is about the length of a probe.
        if let Some((from, said)) = failure.and_then(|it| Some((it.from?, it.said))) {
            return anyhow::anyhow!("{from} says {said:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Fetches `expected` by HTTP/3 over a new connection to `address`; the time until its last byte.
///
/// # Errors
/// Nobody answers there, somebody on the way refuses QUIC, or what came is not what was asked for.
pub async fn get_by_http3(
    address: SocketAddr,
    host: &str,
    expected: &Expected,
    tls: &Arc<rustls::ClientConfig>,
) -> Result<Duration> {
    let start = Instant::now();
    let mut connection = OverQuic::open(address, host, tls).await?;
    connection.fetch(&expected.into(), &mut |_| ()).await?;
    Ok(start.elapsed())
}
