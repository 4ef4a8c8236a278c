//! LES (PROTOCOL.md §20): packets as an end and a PEP read them from a stranger, inner packets as hosts send them, and
//! headers as a PEP that keeps to no rule writes them.

use std::sync::OnceLock;

use bentpipe_sealed::Exporter;
use bentpipe_sealed::les::{
    Delivered, Flows, HeaderReader, HeaderWriter, MTU, OVERHEAD, Roots, Spi, SpiPair, Toward,
    Writer,
};
use bytes::BytesMut;
use zeroize::Zeroizing;

/// Keys of the association that all packets belong to.
fn roots() -> &'static Roots {
    static ROOTS: OnceLock<Roots> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let exporter = Exporter::new(Zeroizing::new([7; 32]));
        let [to_b, to_a] = [0x1000, 0x1001].map(|number| Spi::new(number).expect("not reserved"));
        Roots::derive(&exporter, 0, &[8; 32], None, SpiPair { to_b, to_a })
    })
}

/// Inner packets, each with the packet that carries it as the first of its association.
fn sealed() -> &'static [(Vec<u8>, Vec<u8>)] {
    static SEALED: OnceLock<Vec<(Vec<u8>, Vec<u8>)>> = OnceLock::new();
    SEALED.get_or_init(|| {
        let all = inner().into_iter();
        all.map(|packet| {
            let sealed = seal(&packet).expect("carried");
            (packet, sealed)
        })
        .collect()
    })
}

fn seal(packet: &[u8]) -> Option<Vec<u8>> {
    let mut out = BytesMut::new();
    let done = roots().end_a().0.seal(packet, &mut out);
    assert!(done.is_ok() || out.is_empty());
    done.is_ok().then(|| out.to_vec())
}

fn open(packet: &[u8]) -> Option<(Delivered, Vec<u8>)> {
    let mut out = Vec::new();
    let (mut receiver, mut flows) = (roots().end_b().1, Flows::default());
    let opened = receiver.open(packet, &mut flows, &mut out).ok()?;
    assert!(
        receiver.open(packet, &mut flows, &mut out).is_err(),
        "a copy"
    );
    Some((opened, out))
}

/// One input in three roles: a packet, an inner packet, a header that a PEP writes.
pub fn packet(data: &[u8]) {
    stranger(data);
    host(data);
    pep(data);
}

/// Nobody without a key has anything delivered but what was sealed.
fn stranger(data: &[u8]) {
    if open(data).is_some() {
        assert!(sealed().iter().any(|(_, known)| known == data));
    }
}

/// An inner packet that is carried arrives: its payload as it was, and once more through LES as a whole.
fn host(data: &[u8]) {
    let Some(packet) = seal(data) else { return };
    assert!(packet.len() <= data.len() + OVERHEAD && data.len() <= MTU);
    let (delivered, first) = open(&packet).expect("of the end");
    assert_eq!((delivered, first.len()), (Delivered::Packet, data.len()));
    let again = seal(&first).and_then(|packet| open(&packet));
    assert_eq!(again, Some((Delivered::Packet, first)));
}

/// A PEP with K2 has delivered what needs no payload zone, or the payload of an end where it belongs.
fn pep(data: &[u8]) {
    let Some((&choice, header)) = data.split_first() else {
        return;
    };
    let (spi, root) = (roots().spis().to_b, roots().header());
    let reader = || HeaderReader::new(root.clone(), spi, Toward::B);
    let chosen = sealed().get(usize::from(choice));
    let mut own = reader();
    let taken = chosen.map(|(_, packet)| own.open(packet).expect("true"));
    let zone = taken.as_ref().and_then(|opened| opened.zone());
    let mut out = BytesMut::new();
    let mut writer = HeaderWriter::new(root, spi, Toward::B, Writer::FIRST_PEP);
    if writer.write(header, zone, &mut out).is_err() {
        return assert!(out.is_empty());
    }
    let mut next = reader();
    let read = next.open(&out).expect("written");
    assert_eq!((read.header().len(), read.zone()), (header.len(), zone));
    match (open(&out), &taken) {
        (Some((_, packet)), Some(taken)) if zone.is_some() => {
            assert_eq!(read.flow(), taken.flow());
            let payload = chosen.map(|(inner, _)| &inner[inner.len() - taken.payload()..]);
            assert_eq!(Some(&packet[header.len()..]), payload);
        }
        (Some((delivered, _)), _) => assert!(
            read.payload() == 0 && {
                let reset =
                    read.flow().is_some() && read.header()[header_flags(read.header())] & 4 != 0;
                (delivered == Delivered::GaveUp) == reset
            }
        ),
        (None, _) => assert!(zone.is_some()),
    }
}

/// Place of TCP's flags in a header.
fn header_flags(header: &[u8]) -> usize {
    if header[0] >> 4 == 4 { 33 } else { 53 }
}

/// Inner packets of all kinds, of both families.
fn inner() -> Vec<Vec<u8>> {
    let tcp = |flags: u8, options: &[u8], payload: &[u8]| {
        let words = ((20 + options.len()) / 4) as u8;
        let head = [
            0xc7,
            0x38,
            1,
            0xbb,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            words << 4,
            flags,
            2,
            0,
            0,
            0,
            0,
            0,
        ];
        [&head, options, payload].concat()
    };
    let syn = [
        2, 4, 35, 40, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7,
    ];
    let segments = [
        (6, tcp(0x18, &[], b"GET /")),
        (6, tcp(0xc2, &syn, b"")),
        (6, tcp(0x10, &[1, 1, 5, 10, 9, 9, 9, 9, 8, 8, 8, 8], b"")),
        (6, tcp(0x11, &[], b"last")),
        (6, tcp(0x04, &[], b"")),
        (
            17,
            [&[0xc7, 0x38, 1, 0xbb, 0, 13, 0, 0], &b"query"[..]].concat(),
        ),
    ];
    let ip = |(protocol, segment): &(u8, Vec<u8>)| {
        let length = segment.len() as u8;
        let v4 = [
            0x45,
            0,
            0,
            20 + length,
            0,
            1,
            0x40,
            0,
            64,
            *protocol,
            0,
            0,
            192,
            168,
            1,
            10,
            192,
            0,
            2,
            1,
        ];
        let v6 = [&[0x60, 0, 0, 0, 0, length, *protocol, 64], &[1; 32][..]].concat();
        [v4.to_vec(), v6].map(|head| [&head[..], segment].concat())
    };
    segments.iter().flat_map(ip).collect()
}

/// Packets, inner packets, and headers after the number of the packet whose payload they take.
pub fn packet_seeds() -> Vec<Vec<u8>> {
    let headers = (0..).zip(sealed()).map(|(choice, (inner, packet))| {
        let header = usize::from(packet[6]) * 4;
        [&[choice], &inner[..header]].concat()
    });
    let bare = sealed().iter().map(|(inner, packet)| {
        let header = usize::from(packet[6]) * 4;
        [&[0xff], &inner[..header]].concat()
    });
    let both = sealed()
        .iter()
        .flat_map(|(inner, packet)| [inner.clone(), packet.clone()]);
    both.chain(headers).chain(bare).collect()
}
