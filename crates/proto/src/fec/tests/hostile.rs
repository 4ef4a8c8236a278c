//! Repairs of a peer that means harm: what they may cost, and what they may spoil.

use super::*;

#[test]
fn a_peer_that_sends_nothing_gets_no_work_done() {
    let mut incoming = Incoming::default();
    incoming.keep(1 << 24);
    let shape = block::Shape {
        symbol: 100,
        repairs: 7,
        ranges: vec![Range {
            stream: 0,
            start: 0,
            end: 1 << 20,
            fin: true,
        }],
    };
    for block in 0..100 {
        let repair = Repair {
            block,
            shape: shape.clone(),
            first: 0,
            symbols: &[7; 700],
        };
        assert!(incoming.on_datagram(&repair.encode()));
        incoming.work(origin());
    }
    assert_eq!(incoming.poll(), None);
    assert_eq!(incoming.stats().mended, 0);
}

#[test]
fn repairs_survive_the_wire_and_malformed_ones_are_dropped() {
    let range = Range {
        stream: 3,
        start: 1000,
        end: 1900,
        fin: true,
    };
    let repair = Repair {
        block: 9,
        shape: block::Shape {
            symbol: 200,
            repairs: 10,
            ranges: vec![range],
        },
        first: 5,
        symbols: &[1; 400],
    };
    let bytes = repair.encode();
    assert_eq!(Repair::decode(&bytes), Some(repair.clone()));
    for (stream, exists) in [((1 << 61) + 3, true), ((1 << 60) + 3, false)] {
        let mut other = repair.clone();
        other.shape.ranges[0].stream = stream;
        assert_eq!(Repair::decode(&other.encode()).is_some(), exists);
    }
    for cut in 1..bytes.len() {
        let read = Repair::decode(&bytes[..cut]);
        assert!(read.is_none_or(|read| read.symbols.len() < 400 && read.symbols.len() % 200 == 0));
    }
    let beyond = Repair {
        first: 9,
        ..repair.clone()
    };
    assert_eq!(Repair::decode(&beyond.encode()), None);
    let mut odd = repair;
    odd.shape.symbol = 201;
    assert_eq!(Repair::decode(&odd.encode()), None);
}

/// A peer may send what it likes: what it garbles is a stream of its own, within the bounds that it named.
#[test]
fn symbols_that_fit_nothing_garble_only_what_they_name() {
    let mut incoming = Incoming::default();
    incoming.keep(1 << 20);
    for stream in [1, 2] {
        incoming.on_received(stream, 0, &vec![9; 3000].into());
        incoming.on_received(stream, 4000, &vec![9; 3000].into());
    }
    let mut random = 1_u32;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24) as u8
    };
    let mut garbled = 0;
    for block in 0..50 {
        let range = Range {
            stream: 1,
            start: 100,
            end: 6000,
            fin: block % 2 == 0,
        };
        let repair = Repair {
            block,
            shape: block::Shape {
                symbol: 200,
                repairs: 7,
                ranges: vec![range],
            },
            first: 0,
            symbols: &(0..1400).map(|_| noise()).collect::<Vec<_>>(),
        };
        incoming.on_datagram(&repair.encode());
        incoming.work(origin());
        while let Some(mended) = incoming.poll() {
            let (Mended::Bytes { stream, .. } | Mended::End { stream, .. }) = mended;
            assert_eq!(stream, 1);
            if let Mended::Bytes { offset, bytes, .. } = mended {
                assert!(offset >= 100 && offset + bytes.len() as u64 <= 6000);
                garbled += 1;
            }
        }
    }
    assert!(garbled > 0, "the test shows nothing");
}

/// A peer that repairs what was never lost: each block covers `bytes` of stream 5, of which `incoming` misses the last.
struct Bomber {
    now: Instant,
    incoming: Incoming,
    bytes: u64,
}

impl Bomber {
    fn new(bytes: u64) -> Self {
        let mut incoming = Incoming::default();
        incoming.keep(64 << 20);
        Self {
            now: origin(),
            incoming,
            bytes,
        }
    }

    /// Uploads so much on another stream, which pays for work.
    fn upload(&mut self, bytes: u64) {
        for at in (0..bytes).step_by(1000) {
            self.incoming.on_received(99, at, &vec![0; 1000].into());
        }
    }

    /// A repair of one symbol, as block `number`, of the `place`-th range.
    fn repair(&mut self, number: u64, place: u64, symbol: usize) -> bool {
        let start = place * self.bytes;
        self.incoming
            .on_received(5, start, &vec![1; self.bytes as usize - 1].into());
        let range = Range {
            stream: 5,
            start,
            end: start + self.bytes,
            fin: false,
        };
        let repair = Repair {
            block: number,
            shape: block::Shape {
                symbol,
                repairs: 1,
                ranges: vec![range],
            },
            first: 0,
            symbols: &vec![9; symbol],
        };
        self.incoming.on_datagram(&repair.encode())
    }

    /// Pieces that were decoded.
    fn decoded(&mut self) -> usize {
        std::iter::from_fn(|| self.incoming.poll()).count()
    }
}

/// The code works on 64 bytes of each symbol: smaller ones would be work for nothing, and so would very many.
#[test]
fn symbols_that_cost_more_than_they_carry_are_refused() {
    for (symbol, bytes, taken) in [
        (2, 131_000, false),
        (62, 10_000, false),
        (64, 10_000, true),
        (64, 2_000_000, true),
        (64, 4_000_000, false),
        (1400, 4_000_000, true),
    ] {
        let repairs = Bomber::new(bytes).repair(0, 0, symbol);
        assert_eq!(repairs, taken, "symbols of {symbol} bytes over {bytes}");
    }
}

#[test]
fn no_byte_is_decoded_twice_whatever_the_block_is_called() {
    let mut bomber = Bomber::new(60_000);
    bomber.upload(20_000_000);
    let mut decoded = 0;
    for number in 0..200 {
        assert!(bomber.repair(number, 0, 64));
        while bomber.incoming.work(bomber.now) {}
        decoded += bomber.decoded();
    }
    assert_eq!(decoded, 1);
    // Others in between, until the first is forgotten.
    for number in 200..400 {
        bomber.repair(number, number, 64);
        while bomber.incoming.work(bomber.now) {}
    }
    bomber.decoded();
    for number in 400..600 {
        assert!(bomber.repair(number, 0, 64));
        while bomber.incoming.work(bomber.now) {}
    }
    assert_eq!(bomber.decoded(), 0);
}

/// Memory that others need is given back, whatever repairs the peer goes on sending.
#[test]
fn symbols_are_given_back_as_what_was_kept_is() {
    let mut incoming = Incoming::default();
    incoming.keep(64 << 20);
    let mut blocks = 0..;
    let mut burst = |incoming: &mut Incoming| {
        for block in blocks.by_ref().take(8) {
            let range = Range {
                stream: 5,
                start: block * MAX_BLOCK,
                end: (block + 1) * MAX_BLOCK,
                fin: false,
            };
            let shape = block::Shape {
                symbol: 1400,
                repairs: 1000,
                ranges: vec![range],
            };
            for first in 0..1000 {
                let repair = Repair {
                    block,
                    shape: shape.clone(),
                    first,
                    symbols: &[9; 1400],
                };
                assert!(incoming.on_datagram(&repair.encode()));
            }
        }
        incoming.memory()
    };
    let before = burst(&mut incoming);
    assert!(before > 6 << 20, "{before}");
    incoming.keep(1 << 20);
    assert!(incoming.memory() <= 1 << 20);
    let after = burst(&mut incoming);
    assert!((1..=1 << 20).contains(&after), "{after}");
    incoming.keep(0);
    assert_eq!(incoming.memory(), 0);
    assert_eq!(burst(&mut incoming), 0);
}

/// Decoding is paid for by bytes and time at its price, and one turn does not do all of it.
#[test]
fn decoding_is_paid_for_at_its_price_and_a_piece_at_a_time() {
    let mut bomber = Bomber::new(60_000);
    bomber.upload(1_000_000);
    let mut number = 0;
    let mut burst = |bomber: &mut Bomber| {
        for _ in 0..100 {
            number += 1;
            bomber.repair(number, number, 64);
        }
        let mut turns = 0;
        while bomber.incoming.work(bomber.now) {
            turns += 1;
        }
        (turns, bomber.decoded())
    };
    // A block is 1024 symbols and the fixed price: 1.06 MiB. 7 MB of streams, and the first second, paid for some 85 of them.
    let (turns, decoded) = burst(&mut bomber);
    assert!((60..100).contains(&decoded), "{decoded}");
    assert!(turns >= decoded - 1, "{decoded} in {turns} turns");
    // Afterwards six million bytes more pay for the next, and a second for thirty.
    bomber.now += Duration::from_secs(1);
    let (_, decoded) = burst(&mut bomber);
    assert!((60..90).contains(&decoded), "{decoded}");
}
