//! A PEP between two true ends of LES: what it opens, and what the ends take from it.

use std::time::Duration;

use bentpipe_proto::packets::is_true_tcp;
use bentpipe_sealed::Exporter;
use bentpipe_sealed::les::sa::Grant;
use bentpipe_sealed::les::{
    ClientKey, Delivered, Discarded, EndReceiver, EndSender, Flows, Grants, HeaderReader,
    HeaderWriter, Roots, Spi, SpiPair, Writer, spi_of,
};
use bentpipe_segments::Flags;
use zeroize::Zeroizing;

use super::*;
use crate::process;

const SCOPE: Scope = [7; 16];

/// Keys of one association.
struct OneAssociation {
    scope: Scope,
    readers: [HeaderReader; 2],
    writers: [HeaderWriter; 2],
}

impl OneAssociation {
    fn new(roots: &Roots) -> Self {
        let both = [Toward::B, Toward::A];
        let (root, spis) = (roots.header(), roots.spis());
        let pep = Writer::FIRST_PEP;
        Self {
            scope: SCOPE,
            readers: both.map(|to| HeaderReader::new(root.clone(), spis.of(to), to)),
            writers: both.map(|to| HeaderWriter::new(root, spis.of(to), to, pep)),
        }
    }
}

impl HeaderKeys for OneAssociation {
    fn open(&mut self, _: Instant, datagram: &Bytes) -> Result<OpenedPacket, StaysClosed> {
        for (reader, toward) in self.readers.iter_mut().zip([Toward::B, Toward::A]) {
            match reader.open(datagram) {
                Ok(opened) => {
                    return Ok(OpenedPacket {
                        scope: self.scope,
                        toward,
                        spi: reader.spi(),
                        renewed: false,
                        header: Bytes::copy_from_slice(opened.header()),
                        zone: opened
                            .zone()
                            .map_or_else(Bytes::new, |zone| datagram.slice_ref(zone)),
                    });
                }
                Err(Discarded::Packet(_)) => return Err(StaysClosed::Copy),
                Err(_) => {}
            }
        }
        Err(StaysClosed::NoKey)
    }

    fn write(
        &mut self,
        _: Instant,
        (_, toward): (&Scope, Toward),
        (header, zone): (&[u8], Option<(Spi, &[u8])>),
        out: &mut BytesMut,
    ) -> Result<(), StaysUnwritten> {
        let zone = zone.map(|(_, zone)| zone);
        let written = self.writers[place(toward)].write(header, zone, out);
        written.map_err(|_| StaysUnwritten)
    }

    fn lacks(&self, (scope, toward): (&Scope, Toward), spi: Spi) -> bool {
        self.holds(scope) && self.readers[place(toward)].spi() != spi
    }

    fn holds(&self, scope: &Scope) -> bool {
        *scope == self.scope
    }

    fn stays(&self, scope: &Scope) -> bool {
        self.holds(scope)
    }
}

fn roots() -> Roots {
    roots_of(0)
}

/// Keys of the association with this count.
fn roots_of(count: u32) -> Roots {
    let spi = |number| Spi::new(number).expect("not reserved");
    let spis = SpiPair {
        to_b: spi(1000 + count),
        to_a: spi(2000 + count),
    };
    let exporter = Exporter::new(Zeroizing::new([3; 32]));
    Roots::derive(&exporter, count, &[4; 32], None, spis)
}

/// Inner packet of the segment between these ends.
fn inner(name: &FlowName, segment: &Segment) -> Vec<u8> {
    let mut out = BytesMut::new();
    assert!(Headers::write(name.lan, name.wan, segment, &mut out));
    out.extend_from_slice(&segment.zone);
    assert!(write_checksums(&mut out));
    out.to_vec()
}

/// IP packet of a datagram, from or to the client.
fn outer(datagram: &[u8], from_client: bool) -> Bytes {
    let mut packet = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 60, UDP, 0, 0];
    let ends = [[198, 51, 100, 7], [192, 0, 2, 1]];
    let [from, to] = if from_client {
        ends
    } else {
        [ends[1], ends[0]]
    };
    packet.extend(from.into_iter().chain(to));
    packet.extend([0x9c, 0x40, 0x11, 0x95, 0, 0, 0, 0]);
    packet.extend_from_slice(datagram);
    assert!(finish(&mut packet, 28));
    packet.into()
}

fn seal(sender: &mut EndSender, packet: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    sender.seal(packet, &mut out).expect("carried");
    out.to_vec()
}

fn open(receiver: &mut EndReceiver, flows: &mut Flows, packet: &Bytes) -> Vec<u8> {
    let header = Header::parse(packet).expect("an IP packet");
    assert_eq!((header.protocol, header.offset), (UDP, 20));
    let mut out = Vec::new();
    let opened = receiver.open(&packet[28..], flows, &mut out);
    assert_eq!(opened, Ok(Delivered::Packet));
    out
}

fn flow() -> FlowName {
    FlowName {
        scope: SCOPE,
        lan: ([192, 168, 1, 10].into(), 51_000),
        wan: ([192, 0, 2, 80].into(), 443),
    }
}

fn segment(number: u32, flags: Flags, payload: &'static [u8]) -> Segment {
    Segment {
        number,
        acknowledgement: 500,
        flags,
        window: 1000,
        length: u16::try_from(payload.len()).expect("short"),
        zone: Bytes::from_static(payload),
        ..Segment::default()
    }
}

#[test]
fn what_a_pep_sends_is_taken_by_the_ends_and_payload_stays_closed() {
    let (roots, now, name) = (roots(), process::now(), flow());
    let ((mut a, _), (mut b, mut b_receives)) = (roots.end_a(), roots.end_b());
    let (_, mut a_receives) = roots.end_a();
    let (mut to_b, mut to_a) = (Flows::default(), Flows::default());
    let mut layers = Layers::new(Box::new(OneAssociation::new(&roots)));

    // The client is on the LAN of this PEP. Its SYN passes, then its data is taken in.
    let syn = segment(100, Flags::SYN, b"");
    let packet = outer(&seal(&mut a, &inner(&name, &syn)), true);
    let opened = layers
        .open(now, Side::Lan, &packet)
        .expect("its key is here");
    assert_eq!((opened.name, opened.segment.number), (name, 100));
    assert!(opened.segment.flags.has(Flags::SYN) && !opened.renewed);
    open(&mut b_receives, &mut to_b, &packet);
    let data = segment(101, Flags::ACK | Flags::PSH, b"a secret of the ends");
    let packet = outer(&seal(&mut a, &inner(&name, &data)), true);
    let taken = layers
        .open(now, Side::Lan, &packet)
        .expect("its key is here");
    let again = layers.open(now, Side::Lan, &packet);
    assert_eq!(again.err(), Some(StaysClosed::Copy));
    let zone = &taken.segment.zone;
    assert_eq!((taken.segment.length, zone.len()), (20, 44));
    assert!(!zone.windows(8).any(|part| part == b"a secret"));

    // Before anything came from the other end there is no way to send in its name.
    let ack = segment(501, Flags::ACK, b"");
    let unknown = layers.write(now, (&name, Side::Lan), &ack);
    assert_eq!(unknown, Err(StaysUnwritten));
    let turned = FlowName {
        lan: name.wan,
        wan: name.lan,
        ..name
    };
    let answer = segment(500, Flags::SYN | Flags::ACK, b"");
    let packet = outer(&seal(&mut b, &inner(&turned, &answer)), false);
    layers
        .open(now, Side::Wan, &packet)
        .expect("its key is here");
    open(&mut a_receives, &mut to_a, &packet);

    // The PEP's acknowledgement reaches the client, and the blob the other end, byte for byte.
    let packet = layers.write(now, (&name, Side::Lan), &ack).expect("a key");
    let said = open(&mut a_receives, &mut to_a, &packet);
    assert!(is_true_tcp(&said) && said.len() == 40);
    let packet = layers.write(now, (&name, Side::Wan), &taken.segment);
    let said = open(&mut b_receives, &mut to_b, &packet.expect("a key"));
    assert!(said.ends_with(b"a secret of the ends"));

    // What a PEP shortens, the end refuses.
    let mut short = taken.segment.clone();
    short.length -= 1;
    short.zone = short.zone.slice(..zone.len() - 1);
    let packet = layers
        .write(now, (&name, Side::Wan), &short)
        .expect("a key");
    let opened = b_receives.open(&packet[28..], &mut to_b, &mut Vec::new());
    assert!(opened.is_err(), "{opened:?}");
}

/// Grant of the association with these `roots`, for this time.
fn grant(roots: &Roots, lifetime: Duration) -> Grant {
    Grant {
        spis: roots.spis(),
        ends: [[198, 51, 100, 7].into(), [192, 0, 2, 1].into()],
        selectors: vec!["192.0.2.0/24".parse().expect("a prefix")],
        writer: Writer::FIRST_PEP,
        root: roots.header().clone(),
        lifetime,
        renewed: false,
    }
}

/// Payload that a PEP has taken in, or has on its way, when the ends renew their keys.
#[test]
fn payload_leaves_under_the_keys_that_it_came_under() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (old, new, now) = (roots_of(0), roots_of(1), process::now());
    let mut grants = Grants::default();
    let client = ClientKey([7; 32]);
    let granted = grants.grant(now, client, &grant(&old, MINUTE));
    let scope = granted.expect("the first").scope();
    grants
        .grant(now, client, &grant(&new, 60 * MINUTE))
        .expect("another one");
    let mut layers = Layers::new(Box::new(grants));
    let name = FlowName { scope, ..flow() };
    let (mut a, (_, mut b_receives)) = (old.end_a().0, old.end_b());
    let mut to_b = Flows::default();

    let data = segment(101, Flags::ACK | Flags::FIN, b"under the old keys");
    let packet = outer(&seal(&mut a, &inner(&name, &data)), true);
    let taken = layers.open(now, Side::Lan, &packet).expect("a key").segment;
    let ack = segment(119, Flags::ACK, b"");
    let packet = outer(&seal(&mut new.end_a().0, &inner(&name, &ack)), true);
    layers.open(now, Side::Lan, &packet).expect("a key");

    let spi = |packet: &Bytes| spi_of(&packet[28..]).expect("a packet of LES");
    let packet = layers.write(now, (&name, Side::Wan), &taken).expect("keys");
    assert_eq!(spi(&packet), old.spis().to_b);
    let said = open(&mut b_receives, &mut to_b, &packet);
    assert!(said.ends_with(b"under the old keys"));
    // What is bound to no keys leaves under those that the ends use.
    let packet = layers.write(now, (&name, Side::Wan), &ack).expect("keys");
    assert_eq!(spi(&packet), new.spis().to_b);
    // Under other keys no end would take it.
    let late = now + MINUTE;
    let written = layers.write(late, (&name, Side::Wan), &taken);
    assert_eq!(written, Err(StaysUnwritten));
    assert!(layers.write(late, (&name, Side::Wan), &ack).is_ok());
}

#[test]
fn without_a_key_nothing_is_opened_or_written() {
    let (roots, now) = (roots(), process::now());
    let mut layers = Layers::new(Box::new(NoKeys));
    let syn = segment(100, Flags::SYN, b"");
    let packet = outer(&seal(&mut roots.end_a().0, &inner(&flow(), &syn)), true);
    let opened = layers.open(now, Side::Lan, &packet);
    assert_eq!(opened.err(), Some(StaysClosed::NoKey));
    let written = layers.write(now, (&flow(), Side::Lan), &syn);
    assert_eq!(written, Err(StaysUnwritten));
}

/// Keys of one pair after another, each gone when the next comes.
struct EverAnother(OneAssociation);

impl HeaderKeys for EverAnother {
    fn open(&mut self, now: Instant, datagram: &Bytes) -> Result<OpenedPacket, StaysClosed> {
        let number = u128::from_be_bytes(self.0.scope) + 1;
        self.0.scope = number.to_be_bytes();
        self.0.open(now, datagram)
    }

    fn write(
        &mut self,
        now: Instant,
        (scope, toward): (&Scope, Toward),
        parts: (&[u8], Option<(Spi, &[u8])>),
        out: &mut BytesMut,
    ) -> Result<(), StaysUnwritten> {
        if !self.holds(scope) {
            return Err(StaysUnwritten);
        }
        self.0.write(now, (scope, toward), parts, out)
    }

    fn lacks(&self, pair: (&Scope, Toward), spi: Spi) -> bool {
        self.0.lacks(pair, spi)
    }

    fn holds(&self, scope: &Scope) -> bool {
        self.0.holds(scope)
    }

    fn stays(&self, scope: &Scope) -> bool {
        self.0.stays(scope)
    }
}

#[test]
fn pairs_whose_keys_have_gone_take_no_room() {
    let (roots, now) = (roots(), process::now());
    let mut layers = Layers::new(Box::new(EverAnother(OneAssociation::new(&roots))));
    let mut a = roots.end_a().0;
    for number in 0..5000 {
        let data = segment(100 + number, Flags::ACK, b"a");
        let packet = outer(&seal(&mut a, &inner(&flow(), &data)), true);
        let opened = layers.open(now, Side::Lan, &packet).expect("a key");
        let (name, segment) = (opened.name, opened.segment);
        assert!(layers.write(now, (&name, Side::Wan), &segment).is_ok());
        assert_eq!(layers.pairs.len(), 1);
    }
}
