//! Flows of LES whose keys go while a PEP holds their payload.

use std::cell::Cell;
use std::time::Duration;

use bentpipe_sealed::les::{Spi, Toward};
use bentpipe_segments::{Cause, Flags, Opening};
use bytes::BytesMut;

use super::super::journal::JournalFile;
use super::super::les::{OpenedPacket, StaysUnwritten};
use super::super::setup;
use super::*;
use crate::keys::PrivateKey;
use crate::{config, process};
use bentpipe_tunnel::transport::MemoryPool;

const BOUNDS: Bounds = Bounds {
    known: 3,
    relayed: 2,
    room: 10_000,
};

const SCOPE: Scope = [7; 16];

/// Keys of one pair, of which the association that payload is bound to may be over.
struct PairKeys {
    over: Rc<Cell<bool>>,
}

impl HeaderKeys for PairKeys {
    fn open(&mut self, _: Instant, _: &Bytes) -> Result<OpenedPacket, StaysClosed> {
        Ok(OpenedPacket {
            scope: SCOPE,
            toward: Toward::B,
            spi: Spi::new(1000).expect("not reserved"),
            renewed: false,
            header: Bytes::new(),
            zone: Bytes::new(),
        })
    }

    fn write(
        &mut self,
        _: Instant,
        _: (&Scope, Toward),
        _: (&[u8], Option<(Spi, &[u8])>),
        _: &mut BytesMut,
    ) -> Result<(), StaysUnwritten> {
        Err(StaysUnwritten)
    }

    fn lacks(&self, (_, toward): (&Scope, Toward), spi: Spi) -> bool {
        assert_eq!((toward, spi.get()), (Toward::A, 2000));
        self.over.get()
    }

    fn holds(&self, _: &Scope) -> bool {
        true
    }

    fn stays(&self, _: &Scope) -> bool {
        true
    }
}

fn relays(keys: PairKeys, directory: &std::path::Path) -> SegmentRelays {
    let config = config::sample_pep(directory, "[clear]\n");
    let key = PrivateKey::from_seed([1; 32].into());
    let pool = std::sync::Arc::new(MemoryPool::new(1 << 20));
    let shard = Shard::new(setup::engine(&config, &key, None, &pool));
    let journal = JournalFile::new(directory.join("pep-flows"));
    let journal = Journal::load(journal, process::now());
    SegmentRelays::new(shard, BOUNDS, journal, Box::new(keys))
}

/// Packet of UDP, which tells where its pair is.
fn outer() -> Bytes {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 60, 17, 0, 0];
    packet.extend([198, 51, 100, 7, 192, 0, 2, 1]);
    packet.extend([0x9c, 0x40, 0x11, 0x95, 0, 8, 0, 0]);
    packet.into()
}

/// Relays a flow whose LAN end takes nothing, and holds payload for it that is bound to association 2000.
fn hold(relays: &mut SegmentRelays, now: Instant) {
    let name = FlowName {
        scope: SCOPE,
        lan: ([192, 168, 1, 10].into(), 51_000),
        wan: ([192, 0, 2, 80].into(), 443),
    };
    let give = |relays: &mut SegmentRelays, side, numbers: [u32; 2], flags, zone: Bytes| {
        let segment = Segment {
            number: numbers[0],
            acknowledgement: numbers[1],
            flags,
            length: u16::try_from(zone.len()).expect("short"),
            zone,
            ..Segment::default()
        };
        relays.on_segment(now, (Form::Zones, &name), side, &segment, false)
    };
    let none = Bytes::new;
    give(relays, Side::Lan, [99, 0], Flags::SYN, none());
    let answer = Flags::SYN | Flags::ACK;
    give(relays, Side::Wan, [499, 100], answer, none());
    let opening = Opening {
        form: Form::Zones,
        scope: SCOPE,
        initiator: name.lan,
        responder: name.wan,
        initial: [99, 499],
    };
    let table = relays.tables.get(Form::Zones);
    let invited = table.invite(now, &opening, Parser::default());
    invited.expect("its SYN was seen");
    let taken = give(relays, Side::Lan, [100, 500], Flags::ACK, none());
    assert_eq!(taken, Verdict::Taken);
    let zone = Bytes::from_static(b"\x00\x00\x07\xd0what was said");
    give(relays, Side::Wan, [500, 100], Flags::ACK, zone);
}

#[test]
fn a_flow_whose_end_takes_nothing_is_reset_when_its_keys_are_over() {
    let (over, now) = (Rc::new(Cell::new(false)), process::now());
    let directory = tempfile::tempdir().expect("a directory");
    let keys = PairKeys { over: over.clone() };
    let mut relays = relays(keys, directory.path());
    let opened = relays.open(now, Side::Lan, &outer());
    assert!(opened.is_err(), "nothing but the pair was learnt");
    hold(&mut relays, now);
    let mut reset = |second| {
        let now = now + Duration::from_secs(second);
        relays.tick(now);
        relays.serve(now);
        relays.tables.of(Form::Zones).counts().reset.clone()
    };
    assert_eq!(reset(0), [].into());
    assert_eq!(reset(60), [].into(), "its keys are here");
    over.set(true);
    for second in 61..=70 {
        assert_eq!(reset(second), [].into(), "they may be behind");
    }
    assert_eq!(reset(71), [(Cause::Lost, 1)].into());
}
