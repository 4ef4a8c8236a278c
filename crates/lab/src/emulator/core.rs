//! The emulator's loop, over anything that carries packets: TUN devices in use, sockets in tests.
//!
//! Each turn reads what waits, then writes what is due, then sleeps until the model's next delivery. Sleeping is one
//! `ppoll` with a nanosecond timeout. Reading comes first so that packets get their arrival stamps before the thread
//! spends time on writing.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_link::{Duplex, LinkConfig, Pipe, PipeStats};
use bentpipe_sys::schedule::go_first;
use bentpipe_units::{ByteCount, Seed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use super::lateness::{Histogram, Lateness};

/// Packets read from one side before deliveries get a turn; a flood must not hold up what is due.
const READ_BATCH: usize = 64;
/// The largest IP packet.
const MAX_PACKET: usize = 65_535;

/// Something that yields and takes whole packets without blocking.
pub trait PacketDevice: AsFd {
    /// Reads one packet into `buffer`.
    ///
    /// # Errors
    /// `WouldBlock` if none waits; anything else ends the emulation.
    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes one packet.
    ///
    /// # Errors
    /// If the packet could not be written; it is counted and dropped.
    fn write_packet(&self, packet: &[u8]) -> io::Result<()>;
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmulatorStats {
    /// Gateway to terminal.
    pub forward_link: PipeStats,
    /// Terminal to gateway.
    pub return_link: PipeStats,
    /// How late packets were written, against the model's instants.
    pub lateness: Lateness,
    /// Packets that the model delivered and a device refused: losses that are not the model's.
    pub write_errors: u64,
}

impl EmulatorStats {
    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers and strings only: there is nothing that JSON could not say.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Carries packets between the two devices until `stop` is readable.
///
/// # Errors
/// If a device can no longer be read.
pub fn run<D: PacketDevice>(
    config: &LinkConfig,
    seed: Seed,
    gateway: &D,
    terminal: &D,
    stop: BorrowedFd<'_>,
) -> Result<EmulatorStats> {
    // The kernel may otherwise add 50 µs to each sleep.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .context("setting the timer slack")?;
    // Where that is allowed: it must not wait for those whose packets it delays.
    let _ = go_first();
    let mut link = Duplex::new(config, seed, now());
    let mut tally = Tally::default();
    let mut buffer = vec![0; MAX_PACKET];
    while !sleep(&link, gateway, terminal, stop)? {
        take(gateway, &mut link.forward_link, &mut buffer).context("gateway device")?;
        take(terminal, &mut link.return_link, &mut buffer).context("terminal device")?;
        deliver(&mut link.forward_link, terminal, &mut tally);
        deliver(&mut link.return_link, gateway, &mut tally);
    }
    Ok(EmulatorStats {
        forward_link: link.forward_link.stats(),
        return_link: link.return_link.stats(),
        lateness: tally.lateness.summary(),
        write_errors: tally.write_errors,
    })
}

#[derive(Debug, Default)]
struct Tally {
    lateness: Histogram,
    write_errors: u64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the emulator is where the model meets the clock"
)]
fn now() -> Instant {
    Instant::now()
}

/// Sleeps until a packet waits, one is due, or the end; true at the end.
fn sleep<D: PacketDevice>(
    link: &Duplex<Vec<u8>>,
    gateway: &D,
    terminal: &D,
    stop: BorrowedFd<'_>,
) -> Result<bool> {
    let timeout = link
        .poll_timeout()
        .map(|due| timespec(due.saturating_duration_since(now())));
    let stop = PollFd::from_borrowed_fd(stop, PollFlags::IN);
    let mut wanted = [
        stop,
        PollFd::new(gateway, PollFlags::IN),
        PollFd::new(terminal, PollFlags::IN),
    ];
    match poll(&mut wanted, timeout.as_ref()) {
        Ok(_) => Ok(!wanted[0].revents().is_empty()),
        // A signal: the caller's handler makes `stop` readable if it is meant to end us.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("waiting for packets"),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Offers what waits at the device to the pipe.
fn take<D: PacketDevice>(
    device: &D,
    pipe: &mut Pipe<Vec<u8>>,
    buffer: &mut [u8],
) -> io::Result<()> {
    for _ in 0..READ_BATCH {
        match device.read_packet(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                let packet = buffer[..length].to_vec();
                pipe.handle_packet(now(), ByteCount::from_usize(length), packet);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes what is due to the device.
fn deliver<D: PacketDevice>(pipe: &mut Pipe<Vec<u8>>, device: &D, tally: &mut Tally) {
    let until = now();
    while let Some((due, packet)) = pipe.poll_output(until) {
        match device.write_packet(&packet) {
            Ok(()) => tally.lateness.record(now().saturating_duration_since(due)),
            Err(_) => tally.write_errors += 1,
        }
    }
}
