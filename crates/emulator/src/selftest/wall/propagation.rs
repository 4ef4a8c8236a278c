//! Delay: pings, which the kernel answers, and stamped packets one way, at three delays side by side.

use std::io::Read as _;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use socket2::{Domain, Protocol, Socket, Type};

use super::Measured;
use super::traffic::{Load, receive, send_paced};
use super::wire::{GATEWAY, Wire};
use crate::awake::Awake;
use crate::selftest::model::constant;
use crate::selftest::row::{Row, quantile};

const DELAYS_MS: [u64; 3] = [5, 125, 250];
const RATE: f64 = 100e6;
/// IP bytes of a ping and of a stamped packet.
const PING: usize = 84;
const STAMPED: usize = 100;

pub(super) fn measure(quick: bool) -> Result<Measured> {
    let (count, gap) = match quick {
        true => (100, Duration::from_millis(20)),
        false => (1000, Duration::from_millis(50)),
    };
    let _awake = Awake::start()?;
    // Side by side: pings far apart do not disturb each other.
    let all = thread::scope(|scope| {
        let start = |delay| scope.spawn(move || one(delay, count, gap));
        let threads: Vec<_> = DELAYS_MS.into_iter().map(start).collect();
        let done = threads.into_iter().map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a measurement panicked"))?
        });
        done.collect::<Result<Vec<_>>>()
    })?;
    let mut measured = Measured {
        rows: Vec::new(),
        stats: Vec::new(),
        unfit: None,
    };
    for one in all {
        measured.rows.extend(one.rows);
        measured.stats.extend(one.stats);
    }
    Ok(measured)
}

fn one(delay_ms: u64, count: u16, gap: Duration) -> Result<Measured> {
    // Between the stamp of a packet and its sending nobody else may run.
    let _ = bentpipe_sys::schedule::go_first();
    let wire = Wire::start(&constant("100 Mbit/s", &format!("{delay_ms} ms"), ""))?;
    let nominal = 2.0 * (delay_ms as f64 + PING as f64 * 8.0 / RATE * 1e3);
    let mut errors: Vec<f64> = ping(&wire.terminal, count, gap)?
        .iter()
        .map(|rtt| rtt - nominal)
        .collect();
    errors.sort_by(f64::total_cmp);
    let case = |what: &str| format!("{count} pings, {delay_ms} ms one way: {what}");
    let answered = errors.len() as f64;
    let error = |what, at, most| {
        let error = quantile(&errors, at);
        Row::within("propagation", case(what), error, 0.0..=most, "ms", 3)
    };
    let all = f64::from(count);
    let mut rows = vec![
        Row::within("propagation", case("answered"), answered, all..=all, "", 0),
        error("least error", 0.0, 1.0),
        error("median error", 0.5, 0.3),
        error("p99 of errors", 0.99, 1.0),
    ];
    let (gateway, terminal) = wire.sockets()?;
    let nominal = delay_ms as f64 + STAMPED as f64 * 8.0 / RATE * 1e3;
    for (way, from, to) in [
        ("forward", &gateway, &terminal),
        ("return", &terminal, &gateway),
    ] {
        let error = one_way(from, to, count.min(200), gap)? - nominal;
        let case = format!("{way}, {delay_ms} ms one way: median error");
        rows.push(Row::within("asymmetry", case, error, 0.0..=0.3, "ms", 3));
    }
    let stats = vec![wire.finish()?];
    Ok(Measured {
        rows,
        stats,
        unfit: None,
    })
}

/// The median one-way delay, in milliseconds.
fn one_way(from: &UdpSocket, to: &UdpSocket, count: u16, gap: Duration) -> Result<f64> {
    let start = Instant::now();
    let rate = STAMPED as f64 * 8.0 / gap.as_secs_f64();
    let load = Load {
        rate,
        bytes: STAMPED,
        time: gap * u32::from(count),
        head: Duration::ZERO,
    };
    let received = thread::scope(|scope| -> Result<_> {
        let receiver = scope.spawn(|| receive(to, start, u64::from(count)));
        send_paced(from, start, load)?;
        Ok(receiver.join().unwrap_or_else(|_| Ok(Vec::new()))?)
    })?;
    let mut delays: Vec<_> = received
        .iter()
        .map(|delay| delay.as_secs_f64() * 1e3)
        .collect();
    delays.sort_by(f64::total_cmp);
    Ok(quantile(&delays, 0.5))
}

/// The round-trip times of pings from the terminal to the gateway, in milliseconds.
fn ping(terminal: &NetNs, count: u16, gap: Duration) -> Result<Vec<f64>> {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4));
    let socket = terminal.enter(open)?.context("a raw socket for pings")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let to = SocketAddr::from((GATEWAY, 0)).into();
    let start = Instant::now();
    thread::scope(|scope| {
        let answers = scope.spawn(|| answers(&socket, start, count));
        for number in 0..count {
            let due = gap * u32::from(number);
            thread::sleep(due.saturating_sub(start.elapsed()));
            socket.send_to(&request(number, start.elapsed()), &to)?;
        }
        answers.join().unwrap_or_else(|_| Ok(Vec::new()))
    })
}

/// An ICMP echo request with its number and time of sending.
fn request(number: u16, at: Duration) -> [u8; PING - 20] {
    let mut packet = [0; PING - 20];
    packet[0] = 8; // echo request
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    packet[8..16].copy_from_slice(&(at.as_nanos() as u64).to_be_bytes());
    let words = packet
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn answers(socket: &Socket, start: Instant, count: u16) -> Result<Vec<f64>> {
    let _ = bentpipe_sys::schedule::go_first();
    let mut times = Vec::new();
    let mut buffer = [0; 2048];
    while times.len() < usize::from(count) {
        // Nothing comes any more.
        let Ok(length) = (&*socket).read(&mut buffer) else {
            break;
        };
        let at = start.elapsed();
        // A header of 20 bytes: nobody here sets options. Type 0 is the reply.
        if length == PING && buffer[20] == 0 {
            let sent = u64::from_be_bytes(buffer[28..36].try_into()?);
            times.push((at.as_nanos() as u64 - sent) as f64 / 1e6);
        }
    }
    Ok(times)
}
