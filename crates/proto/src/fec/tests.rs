//! Both halves together: what is lost between them comes back, and nothing else does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;

mod hostile;

const RTT: Duration = Duration::from_millis(600);
/// Content of a packet, and of a repair.
const PACKET: usize = 1400;

#[expect(clippy::disallowed_methods, reason = "the origin of virtual time")]
fn origin() -> Instant {
    Instant::now()
}

fn path(loss: Option<Loss>) -> Path {
    Path {
        loss,
        rtt: RTT,
        ..Path::default()
    }
}

struct Both {
    now: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Bytes that the receiver has of each stream, and its end.
    received: BTreeMap<u64, Vec<Option<u8>>>,
    ends: BTreeMap<u64, u64>,
    repairs: usize,
    count: usize,
}

impl Both {
    fn new(fec: Fec, loss: Option<Loss>) -> Self {
        let now = origin();
        let mut outgoing = Outgoing::default();
        outgoing.configure(fec, 1 << 24);
        outgoing.on_path(&path(loss));
        outgoing.on_sent(400_000_000);
        let mut incoming = Incoming::default();
        incoming.keep(1 << 24);
        Self {
            now,
            outgoing,
            incoming,
            received: BTreeMap::new(),
            ends: BTreeMap::new(),
            repairs: 0,
            count: 0,
        }
    }

    /// `stream` carries `bytes`, in packets of which those are lost that `lose` names, by their number from the beginning.
    fn send(&mut self, stream: u64, bytes: usize, lose: impl Fn(usize) -> bool) {
        let offset = self.received.entry(stream).or_default().len();
        let content: Vec<u8> = (offset..offset + bytes).map(|n| byte(stream, n)).collect();
        for (index, chunk) in content.chunks(PACKET).enumerate() {
            let (at, chunk) = (offset + index * PACKET, Bytes::copy_from_slice(chunk));
            self.outgoing
                .on_written(self.now, stream, at as u64, chunk.clone());
            let lost = lose(self.count);
            self.count += 1;
            let received = self.received.entry(stream).or_default();
            received.extend(chunk.iter().map(|byte| (!lost).then_some(*byte)));
            if !lost {
                self.incoming.on_received(stream, at as u64, &chunk);
            }
        }
    }

    fn dry(&mut self, stream: u64, fin: bool) {
        let end = self.received.entry(stream).or_default().len();
        self.outgoing.on_dry(self.now, stream, end as u64, fin);
    }

    /// Repairs leave and arrive but for those that `lose` names.
    fn repair(&mut self, lose: impl Fn(usize) -> bool) {
        self.now += RTT / 8;
        while let Some(repair) = self.outgoing.poll(self.now, PACKET) {
            assert!(repair.len() <= PACKET && Repair::is_meant(&repair));
            let number = self.repairs;
            self.repairs += 1;
            if !lose(number) {
                assert!(self.incoming.on_datagram(&repair));
            }
        }
        while self.incoming.work(self.now) {}
        assert_eq!(self.outgoing.poll_timeout(), None);
        while let Some(mended) = self.incoming.poll() {
            match mended {
                Mended::Bytes {
                    stream,
                    offset,
                    bytes,
                } => {
                    let held = self.received.get_mut(&stream).expect("it was sent");
                    for (at, byte) in (offset as usize..).zip(bytes) {
                        held[at] = Some(byte);
                    }
                }
                Mended::End { stream, offset } => {
                    self.ends.insert(stream, offset);
                }
            }
        }
    }

    /// Everything is there and as it was sent.
    fn is_whole(&self) -> bool {
        self.received.iter().all(|(stream, bytes)| {
            let right = |(at, held): (usize, &Option<u8>)| *held == Some(byte(*stream, at));
            bytes.iter().enumerate().all(right)
        })
    }
}

fn byte(stream: u64, at: usize) -> u8 {
    (stream as usize * 31 + at * 7 + at / 251) as u8
}

const FIXED: Fec = Fec::Fixed { repair: 1, per: 5 };
const LOSS: Loss = Loss {
    share: 0.02,
    bursts: 2.0,
};

/// Repairs are due until they are made or given up: a peer that takes no DATAGRAM frames must not keep its shard busy.
#[test]
fn repairs_for_which_there_is_no_room_are_given_up() {
    let mut both = Both::new(Fec::Fixed { repair: 1, per: 1 }, None);
    both.send(0, 10_000, |_| false);
    both.dry(0, true);
    assert!(both.outgoing.poll_timeout().is_some());
    both.now += RTT;
    assert_eq!(both.outgoing.poll(both.now, 0), None);
    assert_eq!(both.outgoing.poll_timeout(), None);
}

#[test]
fn as_many_packets_as_repairs_come_back() {
    let mut both = Both::new(FIXED, None);
    both.send(1, 40 * PACKET + 100, |n| [0, 7, 8, 9, 39, 40].contains(&n));
    both.dry(1, true);
    both.repair(|_| false);
    assert_eq!((both.repairs, both.is_whole()), (8, true));
    assert_eq!(both.ends, [(1, 40 * PACKET as u64 + 100)].into());
    assert!(both.incoming.stats().mended > 5 * 1400);
}

#[test]
fn lost_repairs_do_not_matter_while_enough_come() {
    let mut both = Both::new(FIXED, None);
    both.send(1, 40 * PACKET, |n| n % 10 == 3);
    both.dry(1, false);
    both.repair(|n| n % 4 == 1);
    assert!(both.is_whole() && both.ends.is_empty());
}

#[test]
fn too_many_losses_are_left_to_retransmission() {
    let mut both = Both::new(FIXED, None);
    both.send(1, 40 * PACKET, |n| n % 4 == 3);
    both.dry(1, true);
    both.repair(|_| false);
    assert!(!both.is_whole() && both.ends.is_empty());
    assert_eq!(both.incoming.stats().mended, 0);
}

#[test]
fn streams_share_a_block() {
    let mut both = Both::new(Fec::Auto, Some(LOSS));
    for stream in 0..60 {
        both.send(stream, 16 * PACKET, |n| n % 50 == 17);
        both.dry(stream, true);
    }
    both.repair(|n| n % 50 == 3);
    assert!(both.is_whole());
    assert_eq!(both.ends.len(), 60);
    assert!(both.repairs < 960 / 12, "{}", both.repairs);
}

#[test]
fn the_last_flight_of_a_fast_link_is_many_blocks() {
    let mut both = Both::new(Fec::Auto, Some(LOSS));
    both.send(5, 8_000 * PACKET, |n| n % 64 == 17);
    both.dry(5, true);
    both.repair(|n| n % 64 == 3);
    assert!(both.is_whole());
    // A fiftieth is lost, up to 3 % are the margin, and a lost packet hits more symbols than one holds.
    assert!(both.repairs < 8_000 / 16, "{}", both.repairs);
}

#[test]
fn a_stream_that_goes_on_is_not_repaired() {
    let mut both = Both::new(FIXED, None);
    both.send(1, 10 * PACKET, |_| false);
    both.dry(1, false);
    both.now += PAUSE;
    both.send(1, 10 * PACKET, |_| false);
    assert_eq!(both.outgoing.poll_timeout(), None);
    both.dry(1, false);
    both.repair(|_| false);
    assert_eq!(both.repairs, 4);
    both.dry(1, false);
    both.repair(|_| false);
    assert_eq!(both.repairs, 4, "nothing new was sent");
}

/// Less than the time after which a stream counts as dry.
const PAUSE: Duration = Duration::from_millis(3);

/// While others go on, a stream that is dry waits for those that become so, and half a round trip at most.
#[test]
fn streams_that_run_dry_together_are_one_block() {
    let mut outgoing = Both::new(Fec::Auto, Some(LOSS)).outgoing;
    let start = origin();
    let step = Duration::from_millis(10);
    outgoing.on_written(start, 0, 0, Bytes::from_static(&[1; 1000]));
    outgoing.on_dry(start, 0, 1000, false);
    for stream in 1..100 {
        let now = start + step * stream;
        outgoing.on_written(now, stream.into(), 0, Bytes::from_static(&[2; 1000]));
        outgoing.on_dry(now, stream.into(), 1000, false);
        let due = outgoing.poll_timeout().expect("streams are dry");
        assert_eq!(due, (now + RTT / 32).min(start + RTT / 2));
        if due <= now {
            assert_eq!(now, start + RTT / 2);
            let repair = outgoing.poll(now, PACKET).expect("it is due");
            let ranges = Repair::decode(&repair).expect("a repair").shape.ranges;
            assert_eq!(ranges.len(), MAX_RANGES);
            return;
        }
    }
    panic!("nothing was repaired");
}

#[test]
fn a_near_path_is_not_repaired_unless_the_operator_asks_for_a_rate() {
    let near = Path {
        rtt: Duration::from_millis(9),
        ..path(Some(LOSS))
    };
    for (fec, active) in [(Fec::Auto, false), (FIXED, true)] {
        let mut outgoing = Outgoing::default();
        outgoing.configure(fec, 1 << 24);
        outgoing.on_path(&path(Some(LOSS)));
        assert!(outgoing.is_active());
        outgoing.on_written(origin(), 0, 0, Bytes::from_static(&[3; 4000]));
        outgoing.on_path(&near);
        assert_eq!(
            (outgoing.is_active(), outgoing.memory() > 0),
            (active, active)
        );
    }
}

/// A session that has earned little spreads it, and pays for nothing that brings no packet back.
#[test]
fn little_in_hand_is_spread_and_spent_on_whole_packets() {
    let mut outgoing = Outgoing::default();
    outgoing.configure(Fec::Auto, 1 << 24);
    outgoing.on_path(&path(Some(LOSS)));
    let mut now = origin();
    let (mut blocks, mut packets) = (0, Vec::new());
    for stream in 0..40 {
        outgoing.on_written(now, stream, 0, Bytes::from_static(&[3; 40_000]));
        outgoing.on_dry(now, stream, 40_000, true);
        now += RTT;
        packets.clear();
        packets.extend(std::iter::from_fn(|| outgoing.poll(now, PACKET)));
        blocks += usize::from(!packets.is_empty());
        let bytes: usize = packets.iter().map(Bytes::len).sum();
        assert!(
            bytes == 0 || bytes > PACKET,
            "{bytes} bytes bring no packet back"
        );
    }
    assert!(blocks >= 7, "{blocks} of 40 were repaired");
}

#[test]
fn an_end_that_comes_later_is_told_as_well() {
    let mut both = Both::new(FIXED, None);
    both.send(1, 10 * PACKET, |_| false);
    both.dry(1, false);
    both.repair(|_| false);
    both.dry(1, true);
    both.repair(|_| false);
    assert_eq!(both.ends, [(1, 10 * PACKET as u64)].into());
}

#[test]
fn a_clean_path_gets_nothing_and_costs_nothing() {
    let mut both = Both::new(Fec::Auto, None);
    both.send(1, 10 * PACKET, |_| false);
    both.dry(1, true);
    assert_eq!(both.outgoing.poll_timeout(), None);
    assert_eq!(both.outgoing.memory(), 0);
}

#[test]
fn a_session_spends_what_its_losses_justify() {
    let mut both = Both::new(Fec::Auto, Some(LOSS));
    both.outgoing = Outgoing::default();
    both.outgoing.configure(Fec::Auto, 1 << 24);
    let mut sent = 0;
    for stream in 0..500 {
        both.send(stream, 15 * PACKET, |_| false);
        both.outgoing.on_sent(15 * PACKET as u64);
        sent += 15 * PACKET;
        both.outgoing.on_path(&Path {
            lost: (sent as f64 * LOSS.share) as u64,
            ..path(Some(LOSS))
        });
        both.dry(stream, true);
        both.repair(|_| false);
    }
    // With something in hand for a session that has just begun.
    let share = (both.outgoing.stats().bytes as f64 - 12e3) / sent as f64;
    assert!((0.032..=0.0375).contains(&share), "{share}");
}

#[test]
fn memory_is_bounded_whatever_is_sent() {
    let mut both = Both::new(FIXED, None);
    both.outgoing.configure(FIXED, 1 << 20);
    both.incoming.keep(1 << 20);
    for stream in 0..100 {
        both.send(stream, 100 * PACKET, |_| false);
        assert!(both.outgoing.memory() <= 1 << 20 && both.incoming.memory() <= 1 << 20);
    }
    // Symbols of blocks that are never complete.
    for block in 0..4000_u64 {
        let shape = block::Shape {
            symbol: 1000,
            repairs: 100,
            ranges: vec![Range {
                stream: 7,
                start: block << 30,
                end: (block << 30) + (1 << 20),
                fin: false,
            }],
        };
        let repair = Repair {
            block,
            shape,
            first: 0,
            symbols: &[0; 50_000],
        };
        assert!(both.incoming.on_datagram(&repair.encode()));
        assert!(both.incoming.memory() <= 10 << 20);
    }
}

/// The bytes that were mended may come otherwise afterwards, cut in another way.
#[test]
fn what_comes_after_it_was_mended_changes_nothing() {
    let mut both = Both::new(FIXED, None);
    both.send(1, 40 * PACKET, |n| [7, 8, 20].contains(&n));
    both.dry(1, false);
    both.repair(|_| false);
    assert!(both.is_whole());
    let before = both.incoming.memory();
    for (at, length) in [(7 * PACKET, 2 * PACKET), (20 * PACKET - 100, PACKET + 200)] {
        let again: Vec<u8> = (at..at + length).map(|n| byte(1, n)).collect();
        both.incoming.on_received(1, at as u64, &again.into());
    }
    assert_eq!(both.incoming.memory(), before, "it is there once");
    both.send(1, 40 * PACKET, |n| n % 10 == 3);
    both.dry(1, true);
    both.repair(|_| false);
    assert!(both.is_whole());
}
