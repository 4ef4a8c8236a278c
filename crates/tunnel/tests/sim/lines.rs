//! Lines from clients to a PEP, in virtual time: who gets in, what crosses, and how each end learns of the other's end.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bentpipe_tunnel::engine::identity::{self, PublicKey};
use bentpipe_tunnel::engine::{ConnectionId, ServerSetup};
use bentpipe_tunnel::lines::{LineCode, LineEnd, LineNotice, Lines, MAX_LINE_WORD};
use bentpipe_units::Seed;

use crate::identity::wire::{key, start};

/// Numbers of keys.
const PEP: u8 = 0;
const CLIENT: u8 = 1;
const STRANGER: u8 = 2;

/// Half of a round trip.
const HALF: Duration = Duration::from_millis(250);

fn address(host: u8) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::new(192, 0, 2, host)), 4502).into()
}

fn pep() -> Lines {
    let known = |key_: &PublicKey| *key_ == key(CLIENT).public();
    let crypto = identity::les_server_crypto(&key(PEP), Arc::new(known), false).unwrap();
    let token_key = identity::token_key(&key(PEP));
    let setup = ServerSetup { crypto, token_key };
    Lines::new(identity::reset_key(&key(PEP)), Some(setup), Seed::new(1))
}

fn client(number: u8) -> Lines {
    Lines::new(identity::reset_key(&key(number)), None, Seed::new(2))
}

/// Ends of some lines, and what is between them.
struct Net {
    now: Instant,
    ends: Vec<(SocketAddr, Lines)>,
    under_way: VecDeque<(Instant, SocketAddr, SocketAddr, Vec<u8>)>,
    /// News of the ends, in their order.
    said: Vec<(usize, ConnectionId, String)>,
    /// Nothing crosses.
    cut: bool,
}

impl Net {
    fn new(ends: Vec<Lines>) -> Self {
        let ends = ends.into_iter().zip(1..);
        Self {
            now: start(),
            ends: ends.map(|(end, host)| (address(host), end)).collect(),
            under_way: VecDeque::new(),
            said: Vec::new(),
            cut: false,
        }
    }

    fn connect(&mut self, end: usize, shows: u8, asks: u8) -> ConnectionId {
        let crypto = identity::les_client_crypto(&key(shows), key(asks).public(), false).unwrap();
        let now = self.now;
        self.ends[end].1.connect(now, crypto, address(1)).unwrap()
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            for index in 0..self.ends.len() {
                let (from, lines) = &mut self.ends[index];
                while let Some((to, bytes)) = lines.poll_output() {
                    if !self.cut {
                        let to = to.destination;
                        self.under_way
                            .push_back((self.now + HALF, *from, to, bytes));
                    }
                }
                while let Some((id, notice)) = lines.poll_notice() {
                    let said = match notice {
                        LineNotice::Up(_) => "up".to_owned(),
                        LineNotice::Word(word) => String::from_utf8_lossy(&word).into_owned(),
                        LineNotice::Down(LineEnd::Lost(_)) => "lost".to_owned(),
                        LineNotice::Down(end) => format!("{end:?}"),
                    };
                    self.said.push((index, id, said));
                }
            }
            let timers = self.ends.iter_mut().map(|(_, lines)| lines.poll_timeout());
            let arrives = self.under_way.front().map(|it| it.0);
            let next = timers.chain([arrives]).flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = next.max(self.now);
            while let Some((_, from, to, bytes)) =
                self.under_way.pop_front_if(|it| it.0 <= self.now)
            {
                if let Some((_, lines)) = self.ends.iter_mut().find(|(own, _)| *own == to) {
                    lines.handle_datagram(self.now, (from, None), &bytes);
                }
            }
            for (_, lines) in &mut self.ends {
                lines.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    /// News of one end.
    fn of(&self, end: usize) -> Vec<&str> {
        let own = self.said.iter().filter(|(index, ..)| *index == end);
        own.map(|(.., said)| &said[..]).collect()
    }
}

#[test]
fn words_cross_whole_and_in_order_and_the_client_ends_the_line() {
    let mut net = Net::new(vec![pep(), client(CLIENT)]);
    let line = net.connect(1, CLIENT, PEP);
    let now = net.now;
    net.ends[1].1.send(now, line, b"before it is up");
    // A round trip for the handshake; the word is on its way as soon as the PEP has said that it takes it.
    net.run(6 * HALF);
    assert_eq!(net.of(0), ["up", "before it is up"]);
    let long = "x".repeat(MAX_LINE_WORD);
    for word in [&long[..], "second", &long, &long] {
        let now = net.now;
        net.ends[1].1.send(now, line, word.as_bytes());
    }
    net.run(Duration::from_secs(3));
    assert_eq!(net.of(0)[2..], [&long[..], "second", &long, &long]);
    // It stands, however long nobody says anything.
    net.run(Duration::from_secs(3600));
    assert_eq!((net.of(1), net.of(0).len()), (vec!["up"], 6));
    assert_eq!(net.ends[0].1.up().count(), 1);
    let now = net.now;
    net.ends[1].1.close(now, line, LineCode::Revoked, "no more");
    net.run(Duration::from_secs(3));
    assert_eq!(net.of(0).last(), Some(&"Closed(Revoked)"));
    assert_eq!((net.of(1), net.ends[0].1.up().count()), (vec!["up"], 0));
}

#[test]
fn whoever_is_not_listed_is_told_so_and_says_nothing() {
    let mut net = Net::new(vec![pep(), client(STRANGER), client(CLIENT)]);
    let line = net.connect(1, STRANGER, PEP);
    let now = net.now;
    net.ends[1].1.send(now, line, b"let me in");
    net.connect(2, CLIENT, STRANGER);
    net.run(Duration::from_secs(9));
    assert_eq!(net.of(1), ["NotListed"]);
    assert_eq!(net.of(2), ["WrongPeer"]);
    assert!(net.of(0).is_empty(), "{:?}", net.said);
}

#[test]
fn a_client_that_comes_again_takes_the_place_of_its_earlier_line() {
    let mut net = Net::new(vec![pep(), client(CLIENT), client(CLIENT)]);
    net.connect(1, CLIENT, PEP);
    net.run(Duration::from_secs(3));
    net.connect(2, CLIENT, PEP);
    net.run(Duration::from_secs(3));
    assert_eq!(net.of(1), ["up", "Closed(Replaced)"]);
    assert_eq!((net.of(0), net.of(2)), (vec!["up", "up"], vec!["up"]));
}

#[test]
fn an_end_that_is_gone_is_noticed() {
    let mut net = Net::new(vec![pep(), client(CLIENT)]);
    net.connect(1, CLIENT, PEP);
    net.run(Duration::from_secs(3));
    // A PEP that was restarted knows nothing, and says so.
    net.ends[0].1 = pep();
    net.run(Duration::from_secs(20));
    assert_eq!(net.of(1), ["up", "lost"]);
    net.connect(1, CLIENT, PEP);
    net.run(Duration::from_secs(3));
    net.cut = true;
    net.run(Duration::from_secs(80));
    assert_eq!(net.of(1), ["up", "lost", "up", "lost"]);
    assert_eq!(net.of(0), ["up", "up", "lost"]);
}

#[test]
fn strangers_who_flood_a_pep_hold_little_and_keep_no_client_out() {
    static SOURCES: Mutex<u16> = Mutex::new(0);

    let mut net = Net::new(vec![pep(), client(CLIENT)]);
    let mut flood = client(STRANGER);
    let mut answered = 0;
    for _ in 0..20 {
        for _ in 0..100 {
            let crypto =
                identity::les_client_crypto(&key(STRANGER), key(PEP).public(), false).unwrap();
            flood.connect(net.now, crypto, address(1)).unwrap();
            let mut number = SOURCES.lock().unwrap();
            *number += 1;
            let [high, low] = number.to_be_bytes();
            let source = (IpAddr::from([10, high, low, 9]), 999).into();
            while let Some((_, bytes)) = flood.poll_output() {
                let now = net.now;
                net.ends[0].1.handle_datagram(now, (source, None), &bytes);
            }
            while net.ends[0].1.poll_output().is_some() {
                answered += 1;
            }
        }
        net.run(Duration::from_millis(100));
    }
    assert!(answered <= 2 * 2000 + 64, "{answered} answers");
    net.connect(1, CLIENT, PEP);
    net.run(Duration::from_secs(5));
    assert_eq!(net.of(1), ["up"]);
}
