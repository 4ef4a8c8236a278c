//! The web server: every object and every page at every address of its namespace, in clear and over TLS; what is sent
//! there, it digests. Over TLS it speaks HTTP/2 with whoever offers it, as browsers do, and over QUIC HTTP/3.
//!
//! Its sockets are inside the namespace, its thread need not be.

use std::convert::Infallible;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bentpipe_sys::netns::NetNs;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::content::{Digest, Hasher, Object};
use super::fetch::REQUEST_DIGEST;
use super::hosts::Hosts;
use super::http3;
use super::markup::content_type;
use super::page::Page;
use super::serving::{Serving, listen, udp};
use super::tls::{Authority, HTTP2};

/// The port of plain HTTP.
pub const HTTP_PORT: u16 = 80;
/// The port of HTTP over TLS.
pub const HTTPS_PORT: u16 = 443;

/// Pause after a failed `accept`, which means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running server; dropping it ends all its connections.
#[derive(Debug)]
pub struct Web {
    _serving: Serving,
}

impl Web {
    /// Serves objects on ports 80 and 443 of every address in `namespace`, the latter with a certificate for `hosts`, and over
    /// QUIC as well.
    ///
    /// # Errors
    /// A port is taken, or no thread or descriptor is left.
    pub fn start(namespace: &NetNs, hosts: &Hosts, authority: &Authority) -> Result<Self> {
        let names: Names = hosts.names().into();
        let tls = authority.server_config(names.iter().map(String::as_str))?;
        let over_quic = udp(namespace, (Ipv6Addr::UNSPECIFIED, HTTPS_PORT).into())?;
        let serve = || {
            http3::serve(over_quic, &tls, Arc::clone(&names))?;
            let tls = TlsAcceptor::from(tls);
            for (port, tls) in [(HTTP_PORT, None), (HTTPS_PORT, Some(tls))] {
                // Takes IPv4 too.
                let listener = listen(namespace, (Ipv6Addr::UNSPECIFIED, port).into())?;
                tokio::spawn(accept(listener, tls, Arc::clone(&names)));
            }
            Ok(())
        };
        Ok(Self {
            _serving: Serving::start("web", serve)?,
        })
    }
}

/// The names of all hosts: documents refer to them.
pub(super) type Names = Arc<[String]>;

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

/// Body of an answer.
pub(super) type Body = BoxBody<Bytes, Infallible>;

type Answer = Response<Body>;

async fn respond(request: Request<Incoming>, names: Names) -> Result<Answer, hyper::Error> {
    match *request.method() {
        Method::PUT => {
            let digest = Bytes::from(take(request.into_body()).await?.to_string());
            Ok(Response::new(Full::new(digest).boxed()))
        }
        Method::POST => {
            let mut answer = answer(&request, &names);
            let digest = take(request.into_body()).await?.to_string();
            let value = HeaderValue::from_str(&digest).ok();
            let headers = value.map(|value| (HeaderName::from_static(REQUEST_DIGEST), value));
            answer.headers_mut().extend(headers);
            Ok(answer)
        }
        _ => Ok(answer(&request, &names)),
    }
}

/// Takes what is sent, whatever it is: its SHA-256.
async fn take(mut body: Incoming) -> Result<Digest, hyper::Error> {
    let mut hasher = Hasher::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            hasher.update(&data);
        }
    }
    Ok(hasher.finish())
}

/// Answer to a request for an object or a part of a page.
pub(super) fn answer<B>(request: &Request<B>, names: &[String]) -> Answer {
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
