//! How associations of LES begin, by what crosses: the ends' messages, counted in a capture, and the first sealed packet.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, TERMINAL_LAN, WEB};
use bentpipe_link::{Orbit, Scenario};
use bentpipe_sys::capture::PacketSocket;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::site::geo;
use socket2::{Domain, Socket, Type};

use super::layered_site::{KEYS, LayeredSite, PACKETS, Role, TUNNEL, on_layered_site};
use super::site::SOON;

/// Round trip of the link: so long that a busy machine does not add half of one.
const ROUND_TRIP: Duration = Duration::from_millis(800);

/// Pause between SYNs that wait for the first association.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a datagram that carries Q4, at least; an acknowledgement has half as many.
const GRANT: usize = 80;

/// Datagram of the client's, or for it.
#[derive(Clone, Copy, Debug)]
struct Crossed {
    at: Instant,
    outgoing: bool,
    /// Address of the other side; its port tells what this is.
    peer: SocketAddrV4,
    length: usize,
    /// Begins with a reserved SPI: a message with a pre-shared key.
    reserved: bool,
}

impl Crossed {
    /// Datagram in an IPv4 packet.
    fn parse(packet: &[u8], outgoing: bool) -> Option<Self> {
        let at = Instant::now();
        let is_udp = packet.first() == Some(&0x45) && packet.get(9) == Some(&17);
        let own = packet.get(..28).filter(|_| is_udp)?;
        let (address, port) = if outgoing { (16, 22) } else { (12, 20) };
        let address: [u8; 4] = own[address..address + 4].try_into().ok()?;
        let port = u16::from_be_bytes([own[port], own[port + 1]]);
        let peer = SocketAddrV4::new(address.into(), port);
        Some(Self {
            at,
            outgoing,
            peer,
            length: packet.len() - 28,
            reserved: packet[28..].starts_with(&[0; 4]),
        })
    }

    fn is_sealed(&self) -> bool {
        self.outgoing && self.peer.port() == PACKETS && !self.reserved
    }

    /// True of a message with a pre-shared key.
    fn is_beside(&self) -> bool {
        self.peer.port() == PACKETS && self.reserved
    }
}

/// Captures datagrams at the user until a second after the first sealed packet has left.
fn capture(user: &NetNs) -> Result<Vec<Crossed>> {
    let socket = user.enter(|| PacketSocket::open("eth0"))??;
    let (mut all, mut buffer) = (Vec::<Crossed>::new(), vec![0; 65_535]);
    let deadline = Instant::now() + SOON;
    loop {
        while let Ok(packet) = socket.receive(&mut buffer) {
            all.extend(Crossed::parse(&buffer[..packet.length], packet.outgoing));
        }
        let sealed = all.iter().find(|it| it.is_sealed());
        if sealed.is_some_and(|it| it.at.elapsed() > 2 * ROUND_TRIP) {
            return Ok(all);
        }
        ensure!(Instant::now() < deadline, "no sealed packet: {all:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Begins connections that nobody answers until `done`: TCP that waits for an association.
fn knock(user: &NetNs, done: &AtomicBool) -> Result<()> {
    user.enter(|| -> Result<()> {
        while !done.load(Ordering::Relaxed) {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            // Errors are answers.
            let _ = socket.connect(&SocketAddr::from((WEB, 9)).into());
            thread::sleep(PAUSE);
        }
        Ok(())
    })?
}

/// Datagrams from the client's start on.
fn from_the_start(les: &mut LayeredSite) -> Result<Vec<Crossed>> {
    let user = les.site.topology.user().clone();
    let done = Arc::new(AtomicBool::new(false));
    let [captured, knocks] = [user.clone(), user];
    let captured = thread::spawn(move || capture(&captured));
    let stop = done.clone();
    let knocks = thread::spawn(move || knock(&knocks, &stop));
    les.begin(Role::Client)?;
    let all = captured.join().expect("no panic");
    done.store(true, Ordering::Relaxed);
    knocks.join().expect("no panic")?;
    all
}

/// Messages between client and server before the first sealed packet: each all datagrams of one side in one round trip; and the
/// time from the first to that packet, in round trips. With a pre-shared key the tunnel's count until that is in use.
fn messages(all: &[Crossed]) -> Result<(usize, f64)> {
    let first = all.iter().find(|it| it.peer.port() == TUNNEL);
    let first = first.context("no message")?.at;
    let sealed = all.iter().find(|it| it.is_sealed());
    let sealed = sealed.context("no sealed packet")?.at;
    let beside = all.iter().find(|it| it.is_beside()).map(|it| it.at);
    let said = all.iter().filter(|it| match it.is_beside() {
        true => it.at <= sealed,
        false => it.peer.port() == TUNNEL && it.at <= beside.unwrap_or(sealed),
    });
    let trips = |time: Duration| time.as_secs_f64() / ROUND_TRIP.as_secs_f64();
    // What is a little early belongs to the next.
    let round = |it: &Crossed| ((trips(it.at - first) + 0.25) as u32, it.outgoing);
    let rounds: BTreeSet<_> = said.map(round).collect();
    Ok((rounds.len(), trips(sealed - first)))
}

/// Time from the first sealed packet to Q4 to the PEP at the terminal and at the gateway, in round trips; negative if Q4 was earlier.
fn grants(all: &[Crossed]) -> Result<[f64; 2]> {
    let sealed = all.iter().find(|it| it.is_sealed());
    let sealed = sealed.context("no sealed packet")?.at;
    let grant = |pep| {
        // Handshakes come before, acknowledgements are shorter.
        let around = all.iter().filter(|it| it.at + ROUND_TRIP / 4 > sealed);
        let mut words = around.filter(|it| it.outgoing && it.length >= GRANT);
        let word = words.find(|it| it.peer == SocketAddrV4::new(pep, KEYS));
        let at = word.with_context(|| format!("no Q4 to {pep}: {all:?}"))?.at;
        let late = at.saturating_duration_since(sealed).as_secs_f64();
        let early = sealed.saturating_duration_since(at).as_secs_f64();
        anyhow::Ok((late - early) / ROUND_TRIP.as_secs_f64())
    };
    let [one, other] = [TERMINAL_LAN, GATEWAY_SAT].map(grant);
    Ok([one?, other?])
}

fn far() -> Scenario {
    Scenario {
        orbit: Orbit::constant(ROUND_TRIP / 2),
        ..geo()
    }
}

/// The client has been started before, or not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    First,
    Later,
}

/// Checks how many messages cross before the first sealed packet, in how many round trips; Q4 follows at once.
fn expect(flow: &'static str, start: Start, messages_: usize, round_trips: f64) {
    let site = || LayeredSite::plain(far(), flow);
    on_layered_site(flow, site, |les| {
        les.run(Role::Server)?;
        if start == Start::Later {
            les.run(Role::Client)?;
            les.until_keyed()?;
            les.stop(Role::Client)?;
        }
        let all = from_the_start(les)?;
        let (count, waited) = messages(&all)?;
        let granted = grants(&all)?;
        println!(
            "{flow}: {count} messages, {waited:.2} round trips to the first sealed packet, Q4 {granted:.2?} later"
        );
        ensure!(count == messages_, "{count} messages: {all:#?}");
        let late = waited - round_trips;
        ensure!((0.0..0.5).contains(&late), "after {waited:.2} round trips");
        let near = |it: &f64| it.abs() < 0.25;
        ensure!(granted.iter().all(near), "Q4 {granted:.2?} later");
        Ok(())
    });
}

#[test]
fn the_short_flow_seals_when_the_server_has_greeted_and_q4_beside() {
    // The last is no more than an acknowledgement.
    expect("short", Start::First, 5, 2.0);
}

#[test]
fn a_later_start_of_the_short_flow_seals_with_the_last_message_of_the_handshake() {
    expect("short", Start::Later, 3, 1.0);
}

#[test]
fn the_papers_flow_has_its_messages_with_those_of_the_handshake() {
    expect("paper", Start::First, 5, 2.0);
}

#[test]
fn a_pre_shared_key_costs_two_messages_beside_the_tunnels() {
    expect("psk", Start::First, 6, 3.0);
}
