//! A UDP server that sends back what it gets, and somebody who counts the echoes and times them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::netns::NetNs;
use socket2::SockRef;

/// Time that one packet and its answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Opens a UDP socket on a fresh port of `address` in `place`.
pub fn bind(place: &NetNs, address: IpAddr) -> Result<UdpSocket> {
    let socket = place.enter(|| UdpSocket::bind((address, 0)))??;
    socket.set_read_timeout(Some(PATIENCE))?;
    // A test that has to wait for its turn is not to be what loses packets.
    SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}

/// Address "any" of the family of `like`.
pub fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A UDP server that sends back what it gets.
pub struct Echo {
    /// Address that the server answers on.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Answers on a fresh port of `address` in `place` until it is dropped.
    pub fn start(place: &NetNs, address: IpAddr) -> Result<Self> {
        let socket = bind(place, address)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let address = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Packets to be sent: an echo with the mark of another is an error.
#[derive(Debug, Clone, Copy)]
pub struct Speech {
    /// First byte of every packet.
    pub mark: u8,
    /// Number of packets.
    pub count: u32,
    /// Packets a second.
    pub rate: u32,
}

/// One echo: when its packet was sent, and when it came, since the speech began.
#[derive(Debug, Clone, Copy)]
pub struct Heard {
    /// Time at which the packet was sent.
    pub sent: Duration,
    /// Time at which its echo came.
    pub came: Duration,
}

/// Sends packets of 200 bytes to where `socket` is connected to; the echoes in the order in which they came, each once.
pub fn speak(socket: &UdpSocket, speech: Speech) -> Result<Vec<Heard>> {
    const PAYLOAD: usize = 172;
    let Speech { mark, count, rate } = speech;
    let receiver = socket.try_clone()?;
    let start = Instant::now();
    let listener = thread::spawn(move || {
        let (mut heard, mut buffer) = (Vec::new(), [0; 2048]);
        let mut seen = vec![false; count as usize];
        while heard.len() < count as usize
            && let Ok(length) = receiver.recv(&mut buffer)
        {
            let field = |at: usize| buffer[at..at + 8].try_into().map(u64::from_be_bytes);
            let (Ok(number), Ok(sent)) = (field(0), field(8)) else {
                continue;
            };
            ensure!(buffer[16] == mark, "{mark} hears {}", buffer[16]);
            let fresh = seen
                .get_mut(number as usize)
                .is_some_and(|seen| !std::mem::replace(seen, true));
            if length == PAYLOAD && fresh {
                let (sent, came) = (Duration::from_nanos(sent), start.elapsed());
                heard.push(Heard { sent, came });
            }
        }
        Ok(heard)
    });
    for number in 0..count {
        let due = Duration::from_secs(1) * number / rate;
        thread::sleep(due.saturating_sub(start.elapsed()));
        let mut packet = [mark; PAYLOAD];
        packet[..8].copy_from_slice(&u64::from(number).to_be_bytes());
        packet[8..16].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_be_bytes());
        // A moment without a route is for the link to answer for.
        let _ = socket.send(&packet);
    }
    listener.join().ok().context("the receiver")?
}

/// [`speak`] from a socket of `user`'s to `echo`; the delays of the echoes, sorted.
pub fn echoes(user: &NetNs, echo: &Echo, count: u32, rate: u32) -> Result<Vec<Duration>> {
    let socket = bind(user, any(echo.address.ip()))?;
    socket.connect(echo.address)?;
    let mark = 0;
    let heard = speak(&socket, Speech { mark, count, rate })?;
    let mut delays: Vec<_> = heard.iter().map(|echo| echo.came - echo.sent).collect();
    delays.sort_unstable();
    Ok(delays)
}

/// Middle one of durations in ascending order; zero of none.
pub fn median(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// [`echoes`], which must all come; the median of their delays.
pub fn cross(user: &NetNs, echo: &Echo, count: u32, rate: u32) -> Result<Duration> {
    let delays = echoes(user, echo, count, rate)?;
    let (came, median) = (delays.len(), median(&delays));
    let (to, all) = (echo.address.ip(), count as usize);
    println!("UDP echo to {to}: {came} of {all}, median {median:?}");
    ensure!(came == all, "{came} of {all} echoes from {to}");
    Ok(median)
}
