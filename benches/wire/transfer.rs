//! One download from the web to the user over TCP, timed at the user, with an end to patience.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{Topology, WEB};
use socket2::SockRef;

/// What came of a download.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// From `connect` to the last byte, or to the end of patience.
    pub(crate) took: Duration,
    /// Bytes that arrived.
    pub(crate) got: u64,
    pub(crate) whole: bool,
}

/// Downloads `bytes`; `congestion` is what the web's kernel sends with. Gives up after `cap`.
pub(crate) fn download(
    topology: &Topology,
    congestion: &'static str,
    bytes: u64,
    cap: Duration,
) -> Result<Outcome> {
    let listener = topology
        .web()
        .enter(|| TcpListener::bind((WEB, 0)))?
        .context("the web cannot listen")?;
    let address = listener.local_addr()?;
    let source = thread::spawn(move || serve(&listener, congestion, bytes));
    let outcome = topology.user().enter(|| fetch(address, bytes, cap))??;
    // Nobody reads any more: what is left is not sent.
    match source.join() {
        Ok(result) if outcome.whole => result?,
        Ok(_) => {}
        Err(panic) => std::panic::resume_unwind(panic),
    }
    Ok(outcome)
}

fn serve(listener: &TcpListener, congestion: &str, bytes: u64) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    // On the connection itself: what the listener is set to gives way to the route's.
    SockRef::from(&stream)
        .set_tcp_congestion(congestion.as_bytes())
        .with_context(|| format!("the kernel has no {congestion}"))?;
    let block = vec![0x5a; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let size = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&block[..size])?;
        left -= size as u64;
    }
    Ok(())
}

fn fetch(address: SocketAddr, bytes: u64, cap: Duration) -> Result<Outcome> {
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, cap)?;
    let mut buffer = vec![0; 1 << 18];
    let mut got = 0;
    loop {
        let left = cap.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => got += n as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
        if got == bytes {
            break;
        }
    }
    let took = began.elapsed();
    let whole = got == bytes;
    ensure!(whole || took >= cap, "the download ended after {got} bytes");
    // With what is still on its way.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(Outcome { took, got, whole })
}
