//! A session: transactions of an application with one host, over HTTP in clear. A request with content
//! of its own goes up; when all of it is there, a response comes down, with the SHA-256 of the request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::content::Expected;
use super::counter::DeviceBytes;
use super::fetch::{Connection, connect};

/// Host that an application talks to.
#[derive(Debug, Clone, Copy)]
pub struct Peer<'a> {
    /// Address and port of the host.
    pub address: SocketAddr,
    /// Name of the host.
    pub host: &'a str,
    /// True if each transaction has a connection of its own.
    pub each: bool,
}

/// Transaction that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Time from its beginning to the last byte of the response, with the connection's set-up if there was one.
    pub took: Duration,
    /// Time from the session's beginning to the last byte of the response.
    pub ended: Duration,
    /// Bytes that crossed the client's device since the transaction before, both ways.
    pub bytes: u64,
}

/// Does `exchanges`, each a request and a response, one after another with `peer`; one begins `every` so often, or when the one before
/// it is done. Bytes are those of `counter`.
///
/// # Errors
/// The connection failed, the host refused, or request or response are not what was sent.
pub async fn session(
    peer: &Peer<'_>,
    exchanges: &[[Expected; 2]],
    every: Duration,
    counter: &DeviceBytes,
) -> Result<Vec<Exchange>> {
    let mut done = Vec::with_capacity(exchanges.len());
    let mut kept = None;
    let (start, mut counted) = (Instant::now(), counter.now()?);
    for ([request, response], number) in exchanges.iter().zip(0..) {
        tokio::time::sleep_until((start + every * number).into()).await;
        let begun = Instant::now();
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::open(connect(peer.address).await?, peer.host).await?,
        };
        let exchanged = connection.exchange(request, response).await;
        exchanged.with_context(|| format!("transaction {} with {}", number + 1, peer.host))?;
        let all = counter.now()?;
        done.push(Exchange {
            took: begun.elapsed(),
            ended: start.elapsed(),
            bytes: all - counted,
        });
        counted = all;
        kept = Some(connection).filter(|_| !peer.each);
    }
    Ok(done)
}
