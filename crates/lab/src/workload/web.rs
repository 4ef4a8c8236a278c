//! The web server: every object and every page at every address of its namespace, in clear and over TLS; what is sent
//! there, it digests. Over TLS it speaks HTTP/2 with whoever offers it, as browsers do.
//!
//! Its sockets are inside the namespace, its thread need not be.

use std::convert::Infallible;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::content::{Hasher, Object};
use super::hosts::Hosts;
use super::markup::content_type;
use super::page::Page;
use super::tls::{Authority, HTTP2};
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
        let names: Names = hosts.names().into();
        let tls = authority.server_config(names.iter().map(String::as_str))?;
        let tls = TlsAcceptor::from(tls);
        let stop = Stop::new().context("cannot make a switch")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        for (port, tls) in [(HTTP_PORT, None), (HTTPS_PORT, Some(tls))] {
            // Takes IPv4 too.
            let listener = listen(namespace, (Ipv6Addr::UNSPECIFIED, port).into())?;
            let _inside = runtime.enter();
            let names = Arc::clone(&names);
            runtime.spawn(accept(TcpListener::from_std(listener)?, tls, names));
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

/// The names of all hosts: documents refer to them.
type Names = Arc<[String]>;

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, names: Names) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::spawn(connection(
                    stream,
                    tls.clone(),
                    Arc::clone(&names),
                )));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One connection. What goes wrong with it, the other end sees and tells.
async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, names: Names) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return serve(stream, names).await;
    };
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
        return serve(stream, names).await;
    }
    let service = service_fn(move |request| respond(request, Arc::clone(&names)));
    let _ = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, names: Names) {
    let service = service_fn(move |request| respond(request, Arc::clone(&names)));
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn respond(request: Request<Incoming>, names: Names) -> Result<Answer, hyper::Error> {
    match *request.method() {
        Method::PUT => take(request.into_body()).await,
        _ => Ok(answer(&request, &names)),
    }
}

/// Takes what is sent, whatever it is, and answers with its SHA-256.
async fn take(mut body: Incoming) -> Result<Answer, hyper::Error> {
    let mut hasher = Hasher::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            hasher.update(&data);
        }
    }
    let digest = Bytes::from(hasher.finish().to_string());
    Ok(Response::new(Full::new(digest).boxed()))
}

fn answer<B>(request: &Request<B>, names: &[String]) -> Answer {
    let path = request.uri().path();
    if let Some(object) = Object::from_path(path) {
        return Response::new(object.content().boxed());
    }
    let whole = |body: Vec<u8>| Response::new(Full::new(Bytes::from(body)).boxed());
    let Some((page, place)) = Page::at(path) else {
        let mut response = whole(b"only /object/... and /page/... are here\n".to_vec());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = whole(page.body(place, names));
    let kind = content_type(page.objects()[place].kind);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // Lets the page see how many bytes came from other hosts.
    headers.insert("timing-allow-origin", HeaderValue::from_static("*"));
    response
}
