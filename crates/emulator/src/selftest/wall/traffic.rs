//! Who sends over the link, and who receives at its end.
//!
//! Neither may be what a measurement is limited by: the source hands the kernel all that is due as one batch, which the
//! kernel cuts into packets (GSO); the sink reads many packets with one system call and is not woken for each. Where the
//! instant of each packet's arrival is the measurement, [`receive`] is woken for each instead.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::io::Errno;

/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// The longest datagram, of which the kernel makes packets.
const BATCH: usize = 65_000;
/// A fast source sleeps at least this long: it shares the machine with what it measures.
const NAP: Duration = Duration::from_micros(200);
/// Time between two looks of the sink. What it does not read waits in the kernel.
const LOOK: Duration = Duration::from_millis(1);
/// After this, nothing comes any more.
const SILENCE: Duration = Duration::from_secs(1);

/// Load to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// bit/s.
    pub(super) rate: f64,
    /// IP bytes of each packet.
    pub(super) bytes: usize,
    pub(super) time: Duration,
    /// Burst that is sent at the beginning, as the time that it takes at this rate.
    pub(super) head: Duration,
}

/// Count of what was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) packets: u64,
    /// The most that the source was behind its clock.
    pub(super) latest: Duration,
}

/// Sends packets, each with its number and the time since `start`. Keeps to the clock: what a late wake-up missed is
/// sent at once.
pub(super) fn send_paced(socket: &UdpSocket, start: Instant, load: Load) -> Result<Sent> {
    let mut source = Source::new(socket, load.bytes)?;
    let gap = load.bytes as f64 * 8.0 / load.rate;
    let total = (load.time.as_secs_f64() / gap) as u64;
    let begin = Instant::now();
    let (mut packets, mut latest) = (0u64, Duration::ZERO);
    while packets < total {
        let now = begin.elapsed();
        let due = ((now + load.head).as_secs_f64() / gap) as u64 + 1;
        let count = due.min(total).saturating_sub(packets);
        let first = Duration::from_secs_f64(packets as f64 * gap);
        if packets > 0 {
            latest = latest.max(now.saturating_sub(first.saturating_sub(load.head)));
        }
        source.send(packets, count, start)?;
        packets += count;
        let next = Duration::from_secs_f64(packets as f64 * gap).saturating_sub(load.head);
        thread::sleep(next.saturating_sub(begin.elapsed()).max(NAP));
    }
    Ok(Sent { packets, latest })
}

/// Sends batches of packets of one size.
struct Source<'a> {
    socket: &'a UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
    /// Of a packet's payload.
    size: usize,
    buffer: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(socket: &'a UdpSocket, bytes: usize) -> Result<Self> {
        let state = UdpSocketState::new(socket.into()).context("a socket that sends batches")?;
        Ok(Self {
            socket,
            state,
            peer: socket.peer_addr()?,
            size: bytes - HEADERS,
            buffer: Vec::new(),
        })
    }

    /// Sends the packets `first` to `first + count`.
    fn send(&mut self, first: u64, count: u64, start: Instant) -> io::Result<()> {
        let mut number = first;
        while number < first + count {
            // Fewer where the kernel turns out not to cut batches.
            let most = self.state.max_gso_segments().min(BATCH / self.size).max(1);
            let batch = (first + count - number).min(most as u64) as usize;
            self.buffer.resize(batch * self.size, 0);
            let at = start.elapsed();
            for (packet, number) in self.buffer.chunks_mut(self.size).zip(number..) {
                stamp(packet, number, at);
            }
            if self.hand_over(batch)? {
                number += batch as u64;
            }
        }
        Ok(())
    }

    /// True if the kernel took the batch. A full queue of the device is waited for: the kernel must lose nothing.
    fn hand_over(&self, packets: usize) -> io::Result<bool> {
        let transmit = Transmit {
            destination: self.peer,
            ecn: None,
            contents: &self.buffer,
            segment_size: (packets > 1).then_some(self.size),
            src_ip: None,
        };
        match self
            .state
            .try_send(UdpSockRef::from(self.socket), &transmit)
        {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                thread::sleep(Duration::from_millis(1));
                Ok(false)
            }
            Err(_) if packets > 1 && self.state.max_gso_segments() == 1 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

/// Number and time stand in a packet's first 16 bytes.
fn stamp(payload: &mut [u8], number: u64, at: Duration) {
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload[8..16].copy_from_slice(&(at.as_nanos() as u64).to_le_bytes());
}

fn word(payload: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(payload[from..from + 8].try_into().unwrap_or_default())
}

/// Count of what has come, seen now and then.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrived {
    pub(super) packets: u64,
    /// Time at which the first were seen, and IP bytes that had come by then.
    first: Option<(Instant, u64)>,
    /// Time at which the last were seen, and IP bytes that had come by then.
    last: Option<(Instant, u64)>,
    /// Each number was higher than the one before.
    pub(super) ordered: bool,
}

impl Arrived {
    /// The IP layer's bit/s between the first and the last; none if there was but one look.
    pub(super) fn rate(&self) -> Option<f64> {
        let ((begin, before), (end, all)) = (self.first?, self.last?);
        let time = end.duration_since(begin).as_secs_f64();
        (time > 0.0).then(|| (all - before) as f64 * 8.0 / time)
    }
}

/// Counts what comes until `done`, and what comes after that without a pause.
pub(super) fn count(socket: &UdpSocket, done: &AtomicBool) -> Result<Arrived> {
    // What waits for long is counted late. It sleeps nearly all the time.
    let _ = bentpipe_sys::schedule::go_first();
    let state = UdpSocketState::new(socket.into()).context("a socket that receives batches")?;
    let mut buffers = vec![[0u8; 2048]; BATCH_SIZE];
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    let mut arrived = Arrived {
        ordered: true,
        ..Arrived::default()
    };
    let (mut bytes, mut next, mut heard) = (0u64, 0u64, Instant::now());
    while !(done.load(Ordering::Relaxed) && heard.elapsed() > SILENCE) {
        loop {
            let mut slices: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let read = match state.recv(socket.into(), &mut slices, &mut metas) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("receiving"),
            };
            for (buffer, meta) in buffers.iter().zip(&metas).take(read) {
                let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                for datagram in datagrams.filter(|datagram| datagram.len() >= 16) {
                    arrived.ordered &= word(datagram, 0) >= next;
                    next = word(datagram, 0) + 1;
                    arrived.packets += 1;
                    bytes += (datagram.len() + HEADERS) as u64;
                }
            }
            heard = Instant::now();
            let seen = Some((heard, bytes));
            arrived.first = arrived.first.or(seen);
            arrived.last = seen;
        }
        thread::sleep(LOOK);
    }
    Ok(arrived)
}

/// Receives `count` packets, or fewer if none comes for three seconds: how long each was on its way.
pub(super) fn receive(socket: &UdpSocket, start: Instant, count: u64) -> io::Result<Vec<Duration>> {
    // Its stamps are the measurement: it must not wait for those who send.
    let _ = bentpipe_sys::schedule::go_first();
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(3)))?;
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    while (all.len() as u64) < count {
        match socket.recv(&mut buffer) {
            Ok(length) if length >= 16 => {
                let sent = Duration::from_nanos(word(&buffer, 8));
                all.push(start.elapsed().saturating_sub(sent));
            }
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
