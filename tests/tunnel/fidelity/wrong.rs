//! A relay on loopback that can be wrong in the ways relays are: what the cases are there to find.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bentpipe_testbed::peer::{STACK, listen, reset, set_linger_zero, until_acknowledged};

/// What the relay does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: resets, ends and refusals are carried as they are.
    None,
    /// A reset is passed on as a clean end.
    EndForReset,
    /// A reset throws away what came just before it.
    LosesTail,
    /// The end of one direction closes both.
    NoHalfClose,
    /// Ends are not passed on until both directions have ended.
    HoldsEnds,
    /// A connection whose server cannot be reached is closed cleanly.
    EndForRefusal,
    /// A connection whose server cannot be reached stays open.
    SilenceForRefusal,
    /// The server is connected to when the client has said something.
    WaitsForClient,
    /// Every millionth byte is wrong.
    Corrupts,
    /// Connections that are silent for a second are reset.
    Impatient,
    /// It carries five hundred connections and resets the rest.
    Small,
}

/// Starts a relay in front of `server`; returns the relay's address. It lives as long as the test process.
pub(crate) fn relay(fault: Fault, server: SocketAddr) -> Result<SocketAddr> {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = listener.local_addr()?;
    thread::spawn(move || take_in(fault, server, &listener));
    Ok(address)
}

fn take_in(fault: Fault, server: SocketAddr, listener: &TcpListener) {
    let count = Arc::new(AtomicUsize::new(0));
    while let Ok((client, _)) = listener.accept() {
        let number = count.fetch_add(1, Ordering::SeqCst);
        if fault == Fault::Small && number >= 500 {
            let _ = reset(client);
            continue;
        }
        let carry = move || carry(fault, client, server);
        let _ = thread::Builder::new().stack_size(STACK).spawn(carry);
    }
}

fn carry(fault: Fault, client: TcpStream, server: SocketAddr) -> io::Result<()> {
    if fault == Fault::WaitsForClient {
        client.peek(&mut [0; 1])?;
    }
    let Ok(server) = TcpStream::connect(server) else {
        match fault {
            Fault::EndForRefusal => drop(client),
            Fault::SilenceForRefusal => thread::sleep(Duration::from_secs(60)),
            _ => reset(client)?,
        }
        return Ok(());
    };
    if fault == Fault::Impatient {
        for side in [&client, &server] {
            side.set_read_timeout(Some(Duration::from_secs(1)))?;
        }
    }
    let sides = Arc::new((client, server));
    let broken = Arc::new(AtomicBool::new(false));
    let (upload, upload_broken) = (Arc::clone(&sides), Arc::clone(&broken));
    let uploading = thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || pump(fault, &upload.0, &upload.1, &upload_broken))?;
    pump(fault, &sides.1, &sides.0, &broken);
    let _ = uploading.join();
    Ok(())
}

/// Carries one direction to its end. Both sockets are closed when both directions have ended.
fn pump(fault: Fault, from: &TcpStream, to: &TcpStream, broken: &AtomicBool) {
    let ended = match copy(fault, from, to, broken) {
        Ok(()) => match fault {
            Fault::NoHalfClose => from
                .shutdown(Shutdown::Both)
                .and(to.shutdown(Shutdown::Both)),
            Fault::HoldsEnds => Ok(()),
            _ => to.shutdown(Shutdown::Write),
        },
        Err(_) if fault == Fault::EndForReset => to.shutdown(Shutdown::Write),
        Err(_) => reset_when_acknowledged(to),
    };
    // Not connected any more: then the other direction has ended it.
    drop(ended);
}

/// Sends nothing yet: wakes the other direction, and closing will be the reset.
fn reset_when_acknowledged(to: &TcpStream) -> io::Result<()> {
    until_acknowledged(to, Duration::from_secs(3)).map_err(io::Error::other)?;
    set_linger_zero(to)?;
    to.shutdown(Shutdown::Read)
}

/// `broken` is set by the direction that was told of a reset while writing; the other then reads an end that is none.
fn copy(
    fault: Fault,
    mut from: &TcpStream,
    mut to: &TcpStream,
    broken: &AtomicBool,
) -> io::Result<()> {
    let mut write = |bytes: &[u8]| {
        to.write_all(bytes)
            .inspect_err(|_| broken.store(true, Ordering::SeqCst))
    };
    let mut buffer = [0; 16_384];
    let mut held = Vec::new();
    let mut carried = 0;
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            thread::sleep(Duration::from_millis(20));
            if broken.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            return write(&held);
        }
        let before = carried / 1_000_000;
        carried += length;
        if fault == Fault::Corrupts && carried / 1_000_000 > before {
            buffer[0] ^= 1;
        }
        // One that loses the tail is always one piece behind.
        write(&held)?;
        held.clear();
        if fault == Fault::LosesTail {
            held.extend_from_slice(&buffer[..length]);
        } else {
            write(&buffer[..length])?;
        }
    }
}
