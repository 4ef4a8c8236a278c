//! A telephone call's one direction: a datagram every 20 ms, as G.711 in RTP has it, and how long each was on its way.
//!
//! All namespaces share the machine's clock, so delays are those of one way. What has not come after a second and a half is
//! lost: no jitter buffer waits that long.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::netns::NetNs;

use super::MARKER;
use bentpipe_emulator::Stop;

/// Between datagrams.
pub const VOICE_INTERVAL: Duration = Duration::from_millis(20);
/// RTP header, and 20 ms of 64 kbit/s.
const VOICE_SIZE: usize = 12 + 160;

const PORT: u16 = 5004;
/// From the last datagram on.
const LATEST: Duration = Duration::from_millis(1500);
/// For the first datagram, which opens the way back, to cross: tried as often as datagrams of a call are.
const OPENING: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(50);

/// Fates of datagrams that were sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Of those that arrived in time.
    pub delays: Vec<Duration>,
    /// Number of datagrams that were sent.
    pub sent: usize,
    /// Length of each datagram, bytes.
    size: u64,
}

impl Call {
    /// Of datagrams of `size` bytes, how long each was on its way; none of what was lost.
    pub(super) fn new(delays: Vec<Option<Duration>>, size: u64) -> Self {
        Self {
            sent: delays.len(),
            delays: delays.into_iter().flatten().collect(),
            size,
        }
    }

    /// Bytes that arrived.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.delays.len() as u64 * self.size
    }

    /// The share that did not arrive, or too late.
    #[must_use]
    pub fn lost(&self) -> f64 {
        1.0 - self.delays.len() as f64 / self.sent.max(1) as f64
    }
}

/// Speaks for `length` between `user` and the web server's address, from the web to the user if `down`.
///
/// # Errors
/// Nothing at all crosses within ten seconds, or the run was stopped.
pub fn call(
    user: &NetNs,
    web: &NetNs,
    address: IpAddr,
    down: bool,
    length: Duration,
    stop: &Stop,
) -> Result<Call> {
    let far: SocketAddr = (address, PORT).into();
    let bind = |namespace: &NetNs, at: SocketAddr| -> Result<UdpSocket> {
        let socket = namespace.enter(|| UdpSocket::bind(at))??;
        socket.set_read_timeout(Some(TICK))?;
        Ok(socket)
    };
    let web = bind(web, far)?;
    let any = match address {
        IpAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        IpAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let user = bind(user, any)?;
    user.connect(far)?;
    web.connect(open(&user, &web, stop)?)?;
    let (from, to) = if down { (&web, &user) } else { (&user, &web) };
    let count = (length.as_nanos() / VOICE_INTERVAL.as_nanos()) as usize;
    let start = Instant::now();
    thread::scope(|scope| {
        let speaker = scope.spawn(|| speak(from, count, start, stop));
        let delays = listen(to, count, start)?;
        let spoken = speaker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        spoken?;
        Ok(Call::new(delays, VOICE_SIZE as u64))
    })
}

/// The user calls until the web hears it; from where it hears it is the way back.
fn open(user: &UdpSocket, web: &UdpSocket, stop: &Stop) -> Result<SocketAddr> {
    let deadline = Instant::now() + OPENING;
    loop {
        user.send(b"hello").context("the first datagram")?;
        if let Ok((_, from)) = web.recv_from(&mut [0; 64]) {
            return Ok(from);
        }
        ensure!(
            Instant::now() < deadline,
            "no datagram crosses: UDP is not carried"
        );
        stop.sleep(Duration::ZERO)?;
    }
}

/// Sends packets of voice: each has its number and when it left, in nanoseconds since `start`, then the marker of content.
fn speak(from: &UdpSocket, count: usize, start: Instant, stop: &Stop) -> Result<()> {
    let mut datagram = [0; VOICE_SIZE];
    datagram[16..16 + MARKER.len()].copy_from_slice(MARKER);
    for number in 0..count {
        let due = start + VOICE_INTERVAL * u32::try_from(number)?;
        stop.sleep(due.saturating_duration_since(Instant::now()))?;
        datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let sent = u64::try_from(start.elapsed().as_nanos())?;
        datagram[8..16].copy_from_slice(&sent.to_be_bytes());
        // A queue that is full loses it, like any other queue on the way.
        let _ = from.send(&datagram);
    }
    Ok(())
}

fn listen(to: &UdpSocket, count: usize, start: Instant) -> Result<Vec<Option<Duration>>> {
    let mut delays: Vec<Option<Duration>> = vec![None; count];
    let end = start + VOICE_INTERVAL * u32::try_from(count)? + LATEST;
    let mut buffer = [0; 2 * VOICE_SIZE];
    while Instant::now() < end && delays.iter().any(Option::is_none) {
        match to.recv(&mut buffer) {
            Ok(VOICE_SIZE) => {
                let arrived = start.elapsed();
                let field = |at: usize| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(&buffer[at..at + 8]);
                    u64::from_be_bytes(bytes)
                };
                let delay = arrived.saturating_sub(Duration::from_nanos(field(8)));
                let number = usize::try_from(field(0)).unwrap_or(usize::MAX);
                // The first copy counts.
                if let Some(place @ None) = delays.get_mut(number)
                    && delay <= LATEST
                {
                    *place = Some(delay);
                }
            }
            // The opening's, which were on their way.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // An answer of ICMP; what follows may cross.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).context("listening"),
        }
    }
    Ok(delays)
}
