//! A resolver at the web that answers by name: honestly, late, cut off, or beside somebody who wants to be believed.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bentpipe_emulator::topology::{GATEWAY_SAT, TERMINAL_LAN, host, host6};
use bentpipe_testbed::route::Place;

/// What honest answers say.
pub(crate) const TRUE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The hosts of the web's that `host0`, `host1`, and so on are.
const HOSTS: [&str; 4] = ["host0", "host1", "host2", "host3"];

/// Name of the client's server.
pub(crate) const SERVER: &str = "gateway";

/// The type of a query for an IPv6 address.
const AAAA: u8 = 28;

/// What the others say.
const FALSE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);

/// Records of an answer that is too long for a datagram.
const MANY: usize = 200;

/// The running resolver.
pub(crate) struct Resolver {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
}

impl Resolver {
    /// Serves UDP and TCP at `address`.
    pub(crate) fn start(place: &Place, address: SocketAddr) -> Result<Self> {
        let (udp, stranger, tcp) = place.at(|| {
            let udp = UdpSocket::bind(address)?;
            udp.set_read_timeout(Some(Duration::from_millis(100)))?;
            Ok::<_, io::Error>((
                udp,
                UdpSocket::bind("0.0.0.0:0")?,
                TcpListener::bind(address)?,
            ))
        })??;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicU32::new(0));
        let (stopped, count) = (stop.clone(), asked.clone());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((n, from)) = udp.recv_from(&mut buffer) {
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = over_udp(&udp, &stranger, from, &buffer[..n]);
                }
            }
        });
        thread::spawn(move || {
            while let Ok((mut stream, _)) = tcp.accept() {
                let mut length = [0; 2];
                if stream.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(length).into()];
                    if stream.read_exact(&mut query).is_ok() {
                        let count = if first_label(&query) == "big" {
                            MANY
                        } else {
                            1
                        };
                        let answer = answer(&query, TRUE, count);
                        let length = u16::try_from(answer.len()).unwrap_or(0).to_be_bytes();
                        let _ = stream.write_all(&[&length, answer.as_slice()].concat());
                    }
                }
            }
        });
        Ok(Self { stop, asked })
    }

    /// Datagrams that have come.
    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn over_udp(
    socket: &UdpSocket,
    stranger: &UdpSocket,
    from: SocketAddr,
    query: &[u8],
) -> io::Result<()> {
    let good = answer(query, TRUE, 1);
    let lie = answer(query, FALSE, 1);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = lie.clone();
        change(&mut bytes);
        bytes
    };
    match first_label(query).as_str() {
        "silent" => return Ok(()),
        "big" => {
            let mut cut = answer(query, TRUE, 0);
            cut[2] |= 2;
            socket.send_to(&cut, from)?;
            return Ok(());
        }
        "lower" => {
            // Some resolvers do so, and so does who has guessed all but the letters.
            let end = lie.len() - 16;
            let lower = with(&|bytes| bytes[12..end].make_ascii_lowercase());
            socket.send_to(&lower, from)?;
            return Ok(());
        }
        "spoofed" => {
            stranger.send_to(&lie, from)?;
            socket.send_to(&with(&|bytes| bytes[1] ^= 1), from)?;
            socket.send_to(&with(&|bytes| bytes[14] ^= 1), from)?;
            socket.send_to(&with(&|bytes| bytes[2] &= 0x7f), from)?;
        }
        "malformed" => {
            for length in 0..lie.len() {
                socket.send_to(&lie[..length], from)?;
            }
            socket.send_to(&with(&|bytes| bytes[7] = 9), from)?;
        }
        "oversized" => {
            let long = with(&|bytes| bytes.resize(4000, 0));
            socket.send_to(&long, from)?;
        }
        _ => {}
    }
    socket.send_to(&good, from).map(drop)
}

fn first_label(query: &[u8]) -> String {
    let length = usize::from(query[12]);
    String::from_utf8_lossy(&query[13..13 + length]).to_ascii_lowercase()
}

/// Where the question ends.
pub(crate) fn question_end(message: &[u8]) -> usize {
    let mut at = 12;
    while message[at] != 0 {
        at += 1 + usize::from(message[at]);
    }
    at + 5
}

/// `count` times `address`, for a minute; a name that begins with `short` for a second.
fn answer(query: &[u8], address: Ipv4Addr, count: usize) -> Vec<u8> {
    let end = question_end(query);
    let name = first_label(query);
    let number = (0..).zip(HOSTS).find(|(_, host)| *host == name);
    let address = match name.as_str() {
        "rebind" => TERMINAL_LAN,
        SERVER => GATEWAY_SAT,
        _ => address,
    };
    let (rtype, data) = match (number, query[end - 3]) {
        (Some((number, _)), AAAA) => (AAAA, host6(number).octets().to_vec()),
        (Some((number, _)), _) => (1, host(number).octets().to_vec()),
        (None, _) => (1, address.octets().to_vec()),
    };
    let length = u8::try_from(data.len()).unwrap_or(0);
    let mut bytes = query[..end].to_vec();
    (bytes[2], bytes[3]) = (0x81, 0x80);
    let number = u16::try_from(count).unwrap_or(0).to_be_bytes();
    bytes[6..12].copy_from_slice(&[number[0], number[1], 0, 0, 0, 0]);
    let ttl = if name.starts_with("short") { 1 } else { 60 };
    for _ in 0..count {
        bytes.extend([0xc0, 12, 0, rtype, 0, 1, 0, 0, 0, ttl, 0, length]);
        bytes.extend(&data);
    }
    bytes
}
