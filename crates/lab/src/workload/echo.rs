//! Round-trip times as datagrams find them: to the web and back, five a second, whether anything else crosses or not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use bentpipe_sys::netns::NetNs;
use tokio::net::UdpSocket;
use tokio::time::{Instant, interval, sleep_until};

use super::MARKER;
use super::serving::{Serving, receive};
use super::voice::Call;

/// Between datagrams.
pub const ECHO_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of one: those of `ping`.
pub const ECHO_SIZE: u64 = 56;

/// The port that answers (RFC 862).
const PORT: u16 = 7;
/// Time after which a datagram that has not come back is lost; queues that are longer than most are waited for.
const LATEST: Duration = Duration::from_secs(10);

/// Server that answers; dropping it ends it.
#[derive(Debug)]
pub struct Echo {
    _serving: Serving,
}

impl Echo {
    /// Answers at `address` in `namespace`.
    ///
    /// # Errors
    /// The port is taken, or no thread or descriptor is left.
    pub fn start(namespace: &NetNs, address: IpAddr) -> Result<Self> {
        let serve = || {
            let socket = receive(namespace, (address, PORT).into())?;
            tokio::spawn(async move {
                let mut buffer = [0; 2048];
                loop {
                    // An ICMP error about somebody who has gone is no reason to end.
                    if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                        let _ = socket.send_to(&buffer[..length], from).await;
                    }
                }
            });
            Ok(())
        };
        Ok(Self {
            _serving: Serving::start("echo", serve)?,
        })
    }
}

/// Sends `count` datagrams to `address`; how long each took to come back.
///
/// # Errors
/// There is no socket to be had.
pub async fn probe(address: IpAddr, count: u32) -> Result<Call> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect((address, PORT)).await?;
    let mut sent: Vec<Instant> = Vec::new();
    let mut delays = vec![None; count as usize];
    let end = Instant::now() + ECHO_INTERVAL * count + LATEST;
    let mut ticks = interval(ECHO_INTERVAL);
    let mut buffer = [0; 2 * ECHO_SIZE as usize];
    while delays.iter().any(Option::is_none) {
        tokio::select! {
            _ = ticks.tick(), if sent.len() < delays.len() => {
                let number = u32::try_from(sent.len())?;
                sent.push(Instant::now());
                // A queue that is full loses it, like any other queue on the way.
                let _ = socket.send(&datagram(number)).await;
            }
            // An answer of ICMP is no echo; what follows may cross.
            Ok(length) = socket.recv(&mut buffer) => {
                let number = buffer[..length].first_chunk().copied().map(u32::from_be_bytes);
                let place = number.unwrap_or(u32::MAX) as usize;
                // The first copy counts.
                if let (Some(left), Some(slot @ None)) = (sent.get(place), delays.get_mut(place)) {
                    *slot = Some(left.elapsed());
                }
            }
            () = sleep_until(end) => break,
        }
    }
    Ok(Call::new(delays, ECHO_SIZE))
}

/// Number of the datagram, and the marker of content.
fn datagram(number: u32) -> [u8; ECHO_SIZE as usize] {
    let mut datagram = [0; ECHO_SIZE as usize];
    datagram[..4].copy_from_slice(&number.to_be_bytes());
    datagram[4..4 + MARKER.len()].copy_from_slice(MARKER);
    datagram
}
