//! The web server: every object at every address of its namespace, in clear and over TLS; what is sent there, it digests.
//!
//! Its sockets are inside the namespace, its thread need not be.

use std::convert::Infallible;
use std::net::{Ipv6Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::content::{Hasher, Object};
use super::hosts::Hosts;
use super::tls::Authority;
use crate::Stop;

/// The port of plain HTTP.
pub const HTTP_PORT: u16 = 80;
/// The port of HTTP over TLS.
pub const HTTPS_PORT: u16 = 443;

/// Pause after a failed `accept`, which means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running server; dropping it ends all its connections.
#[derive(Debug)]
pub struct Web {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// Serves objects on ports 80 and 443 of every address in `namespace`, the latter with a certificate for `hosts`.
    ///
    /// # Errors
    /// A port is taken, or no thread or descriptor is left.
    pub fn start(namespace: &NetNs, hosts: &Hosts, authority: &Authority) -> Result<Self> {
        let names = hosts.iter().map(|(name, _)| name);
        let tls = TlsAcceptor::from(authority.server_config(names)?);
        let stop = Stop::new().context("cannot make a switch")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        for (port, tls) in [(HTTP_PORT, None), (HTTPS_PORT, Some(tls))] {
            // Takes IPv4 too.
            let listener = listen(namespace, (Ipv6Addr::UNSPECIFIED, port).into())?;
            let _inside = runtime.enter();
            runtime.spawn(accept(TcpListener::from_std(listener)?, tls));
        }
        let watched = stop.clone();
        let thread = thread::Builder::new()
            .name("web".into())
            .spawn(move || {
                // An unwatchable switch ends the server at once, and with it the measurement.
                let _ = runtime.block_on(watched.stopped());
            })
            .context("cannot start the web server's thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by its own thread.
            let _ = thread.join();
        }
    }
}

fn listen(namespace: &NetNs, address: SocketAddr) -> Result<std::net::TcpListener> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    };
    namespace
        .enter(bind)?
        .with_context(|| format!("cannot serve on {address} in {}", namespace.name()))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, tls.clone()))),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One connection. What goes wrong with it, the other end sees and tells.
async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve(stream).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream).await;
            }
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(respond);
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    match *request.method() {
        Method::PUT => take(request.into_body()).await,
        _ => Ok(answer(&request)),
    }
}

/// Takes what is sent, whatever it is, and answers with its SHA-256.
async fn take(mut body: Incoming) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let mut hasher = Hasher::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            hasher.update(&data);
        }
    }
    let digest = Bytes::from(hasher.finish().to_string());
    Ok(Response::new(Full::new(digest).boxed()))
}

fn answer<B>(request: &Request<B>) -> Response<BoxBody<Bytes, Infallible>> {
    let Some(object) = Object::from_path(request.uri().path()) else {
        let text = Bytes::from_static(b"only /object/<seed>/<length> is here\n");
        let mut response = Response::new(Full::new(text).boxed());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    Response::new(object.content().boxed())
}
