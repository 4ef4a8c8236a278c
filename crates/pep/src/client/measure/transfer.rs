//! Transfers: one exchange of HTTP/1.1 over a connection of its own, and pages made of several.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST, LOCATION};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Fault;
use super::plan::{DOCUMENT, OBJECT, OBJECTS, PARALLEL};
use super::road::Road;
use crate::filler::{self, Filler};
use crate::process;

/// Time that one exchange may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Bytes of an answer that is read whole.
const SHORT: u64 = 64 << 10;

/// A host, and how it is reached and asked.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) road: Road,
    /// Value of the header Host.
    pub(super) host: String,
    pub(super) token: Option<String>,
    /// Bytes to send, over and over.
    pub(super) block: Bytes,
}

impl Peer {
    pub(super) fn new(road: Road, host: String) -> Self {
        Self {
            road,
            host,
            token: None,
            block: filler::block(),
        }
    }

    /// Downloads `length` bytes of `path`, which must have them; the time that took, from before the connection was opened.
    pub(super) async fn get(&self, path: &str, length: u64) -> Result<Duration, Fault> {
        let begun = process::now();
        let answer = self.exchange(Method::GET, path, 0, length).await?;
        let took = process::now() - begun;
        match answer.length < length {
            true => Err(Fault::Short {
                host: self.host.clone(),
                found: answer.length,
                asked: length,
            }),
            false => Ok(took),
        }
    }

    /// Asks for nothing but the head of `path`, whatever that says.
    pub(super) async fn head(&self, path: &str) -> Result<Duration, Fault> {
        let begun = process::now();
        match self.exchange(Method::HEAD, path, 0, 0).await {
            Ok(_) | Err(Fault::Status(_)) => Ok(process::now() - begun),
            Err(fault) => Err(fault),
        }
    }

    /// Uploads `length` bytes to `path`, until they are acknowledged.
    pub(super) async fn post(&self, path: &str, length: u64) -> Result<Duration, Fault> {
        let begun = process::now();
        self.exchange(Method::POST, path, length, SHORT).await?;
        Ok(process::now() - begun)
    }

    /// Loads the page of a responder that takes `connections` at once.
    pub(super) async fn page(&self, connections: u64) -> Result<Duration, Fault> {
        let begun = process::now();
        self.get(&format!("/bytes/{DOCUMENT}"), DOCUMENT).await?;
        let mut loading = JoinSet::new();
        for _ in 0..OBJECTS {
            if loading.len() as u64 >= PARALLEL.min(connections.max(1)) {
                joined(loading.join_next().await)?;
            }
            let peer = self.clone();
            loading.spawn(async move { peer.get(&format!("/bytes/{OBJECT}"), OBJECT).await });
        }
        while !loading.is_empty() {
            joined(loading.join_next().await)?;
        }
        Ok(process::now() - begun)
    }

    /// The short answer to a request of the responder.
    pub(super) async fn ask(&self, path: &str) -> Result<Vec<u8>, Fault> {
        let answer = self.exchange(Method::POST, path, 0, SHORT).await?;
        Ok(answer.kept)
    }

    /// One exchange over a new connection.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        sends: u64,
        most: u64,
    ) -> Result<ReadAnswer, Fault> {
        let broken = |error: hyper::Error| Fault::http(&self.host, &error);
        let exchange = async {
            let stream = self.road.open().await?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(broken)?;
            let driver = tokio::spawn(connection);
            let request = self.request(method, path, sends)?;
            let answered = async {
                let response = sender.send_request(request).await.map_err(broken)?;
                read(response, most, broken).await
            };
            let answered = answered.await;
            driver.abort();
            answered
        };
        timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(Fault::TooSlow(PATIENCE)))
    }

    fn request(&self, method: Method, path: &str, sends: u64) -> Result<Request<Filler>, Fault> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.host)
            .header(
                "user-agent",
                concat!("bentpipe/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = Filler::new(self.block.clone(), sends);
        let request = request.body(body);
        request.map_err(|error| Fault::Refused(error.to_string()))
    }
}

fn joined(
    ended: Option<Result<Result<Duration, Fault>, tokio::task::JoinError>>,
) -> Result<(), Fault> {
    match ended {
        Some(Ok(outcome)) => outcome.map(drop),
        Some(Err(error)) => Err(Fault::Refused(error.to_string())),
        None => Ok(()),
    }
}

/// Part of an answer that was read.
struct ReadAnswer {
    /// Bytes of the file, as far as it is short.
    kept: Vec<u8>,
    /// Bytes that were read.
    length: u64,
}

/// Reads an answer up to `most` bytes; keeps it if it is short. `broken` is the fault of a body that breaks off.
async fn read(
    response: Response<hyper::body::Incoming>,
    most: u64,
    broken: impl Fn(hyper::Error) -> Fault,
) -> Result<ReadAnswer, Fault> {
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get(LOCATION);
        let to = to.and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
        return Err(Fault::Redirected(to.escape_default().to_string()));
    }
    if !status.is_success() {
        return Err(Fault::Status(status.as_u16()));
    }
    let (mut body, mut kept, mut count) = (response.into_body(), Vec::new(), 0);
    while count < most {
        let Some(frame) = body.frame().await else {
            break;
        };
        if let Ok(data) = frame.map_err(&broken)?.into_data() {
            count += data.len() as u64;
            if count <= SHORT {
                kept.extend_from_slice(&data);
            }
        }
    }
    Ok(ReadAnswer {
        kept,
        length: count,
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_body_that_is_shorter_than_what_is_measured_is_a_fault() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 45\r\n\r\n{:45}", "");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        };
        let peer = Peer::new(Road::Address(address, None), address.to_string());
        let asked = async {
            assert!(peer.get("/", 45).await.is_ok());
            let fault = peer.get("/", 46).await.unwrap_err().to_string();
            assert!(
                fault.contains(&format!("{address} holds 45 bytes")),
                "{fault}"
            );
        };
        tokio::select! {
            () = serve => {}
            () = asked => {}
        }
    }

    #[tokio::test]
    async fn a_transfer_that_breaks_off_names_its_host_and_its_cause_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            drop(stream);
            std::future::pending::<()>().await;
        };
        let peer = Peer::new(Road::Address(address, None), address.to_string());
        let fault = tokio::select! {
            () = serve => unreachable!("it goes on"),
            fault = peer.get("/", 1) => fault.unwrap_err().to_string(),
        };
        let begins = format!("the transfer with {address} broke off: ");
        assert!(fault.starts_with(&begins), "{fault}");
        assert_eq!(fault.matches("connection").count().max(1), 1, "{fault}");
    }
}
