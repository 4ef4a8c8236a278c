//! Every bit: of what an outsider can touch, and of what a PEP with K2 can.

use super::*;

/// Inner packets of all kinds that have a payload zone.
fn kinds() -> Vec<Vec<u8>> {
    let syn = [2, 4, 5, 0, 4, 2, 1, 1, 1, 3, 3, 7];
    let sack = [1, 1, 5, 10, 9, 9, 9, 9, 8, 8, 8, 8];
    [false, true]
        .into_iter()
        .flat_map(|v6| {
            let segment = |flags, payload: &[u8]| Segment::new(v6, flags, payload);
            vec![
                segment(ACK | PSH, b"GET /").options(&sack).bytes(),
                segment(SYN, b"").options(&syn).bytes(),
                segment(SYN | ACK, b"x").options(&syn).bytes(),
                segment(FIN | ACK, b"").bytes(),
                segment(FIN | ACK, b"last").bytes(),
                segment(RST, b"").bytes(),
                segment(URG | ACK, b"now").bytes(),
                datagram(v6, b"query"),
            ]
        })
        .collect()
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
    bytes
}

#[test]
fn an_outsider_changes_no_bit_and_no_length_unnoticed() {
    let roots = roots(0);
    let bare = Segment::new(false, ACK, b"").bytes();
    for inner in kinds().into_iter().chain([bare]) {
        let sealed = seal(&mut ends(&roots).0, &inner);
        assert!(fresh(&roots, &sealed).is_ok());
        for bit in 0..sealed.len() * 8 {
            let fault = fresh(&roots, &flipped(&sealed, bit)).unwrap_err();
            let front = matches!(
                fault,
                Discarded::Form(..)
                    | Discarded::Spi(_)
                    | Discarded::Writer(_)
                    | Discarded::Number(_)
                    | Discarded::HeaderTag
                    | Discarded::Size(_)
            );
            assert!(front || fault == Discarded::PayloadTag, "{bit}: {fault}");
        }
        for cut in 0..sealed.len() {
            assert!(fresh(&roots, &sealed[..cut]).is_err());
        }
        let longer = [sealed, vec![0]].concat();
        assert!(fresh(&roots, &longer).is_err());
    }
}

/// Bits of the header zone that a PEP may write, as PROTOCOL.md §20.3 lists them. Checksums are
/// written anew in any case.
fn may_change(inner: &[u8], bit: usize) -> bool {
    let (at, v6) = (bit / 8, inner[0] >> 4 == 6);
    let ip = if v6 { 40 } else { 20 };
    let in_byte = 0x80_u8 >> (bit % 8);
    if at < ip {
        return match (v6, at) {
            // traffic class, identification, "don't fragment", TTL, checksum
            (false, 1 | 4 | 5 | 8 | 10 | 11) => true,
            (false, 6) => in_byte == 0x40,
            // traffic class and flow label, hop limit
            (true, 0) => in_byte & 0x0f != 0,
            (true, 1..=3 | 7) => true,
            _ => false,
        };
    }
    if inner[if v6 { 6 } else { 9 }] == 17 {
        return matches!(at - ip, 6 | 7);
    }
    let syn = inner[ip + 13] & SYN != 0;
    match at - ip {
        // acknowledgement number, window, checksum
        8..=11 | 14..=17 => true,
        // AE
        12 => in_byte == 1,
        13 => in_byte & (FIN | SYN | RST | URG) == 0,
        20.. => !syn,
        _ => false,
    }
}

/// A PEP that keeps to no rule: it writes any header at all.
#[test]
fn a_pep_changes_what_it_may_and_nothing_else_unnoticed() {
    let roots = roots(0);
    for inner in kinds() {
        let sealed = seal(&mut ends(&roots).0, &inner);
        let (mut reader, _) = pep(&roots);
        let opened = reader.open(&sealed).expect("true");
        let (header, zone) = (opened.header(), opened.zone().expect("a zone"));
        let mut changed = 0;
        for bit in 0..header.len() * 8 {
            let mut out = BytesMut::new();
            let (_, mut writer) = pep(&roots);
            let forged = flipped(header, bit);
            let put = writer.put(opened.layout, &forged, true, &mut out);
            put.expect("numbers are left");
            out.extend_from_slice(zone);
            let result = fresh(&roots, &out);
            assert_eq!(
                result.is_ok(),
                may_change(&inner, bit),
                "{bit} of {inner:02x?}"
            );
            if let Ok((_, packet)) = result {
                changed += 1;
                let mut expected = [&forged, &inner[header.len()..]].concat();
                assert!(write_checksums(&mut expected));
                assert_eq!(packet, expected);
            }
        }
        assert!(changed > 0 && changed < header.len() * 8);
    }
}

#[test]
fn a_pep_changes_no_bit_of_the_payload_zone_and_not_its_length() {
    let roots = roots(0);
    for inner in kinds() {
        let sealed = seal(&mut ends(&roots).0, &inner);
        let (mut reader, _) = pep(&roots);
        let opened = reader.open(&sealed).expect("true");
        let zone = opened.zone().expect("a zone");
        let rewritten = |zone: &[u8]| {
            let mut out = BytesMut::new();
            let (_, mut writer) = pep(&roots);
            writer.write(opened.header(), Some(zone), &mut out)?;
            Ok::<_, Unwritten>(out)
        };
        let whole = rewritten(zone).expect("as it was");
        assert_eq!(
            fresh(&roots, &whole),
            Ok((Delivered::Packet, inner.clone()))
        );
        for bit in 0..zone.len() * 8 {
            let out = rewritten(&flipped(zone, bit)).expect("of that length");
            assert_eq!(fresh(&roots, &out), Err(Discarded::PayloadTag));
        }
        for cut in 0..zone.len() {
            assert!(
                rewritten(&zone[..cut]).is_err(),
                "the header names a length"
            );
        }
    }
}

#[test]
fn a_shorter_or_longer_payload_with_a_header_to_match_is_noticed() {
    let roots = roots(0);
    for v6 in [false, true] {
        let header = if v6 { 60 } else { 40 };
        let inner = Segment::new(v6, ACK, b"payload");
        let sealed = seal(&mut ends(&roots).0, &inner.bytes());
        let (mut reader, _) = pep(&roots);
        let zone = reader.open(&sealed).unwrap().zone().unwrap().to_vec();
        let (psn, rest) = zone.split_at(4);
        let (text, tag) = rest.split_at(b"payload".len());
        for (payload, text) in [
            (&b"payloa"[..], &text[..6]),
            (b"ayload", &text[1..]),
            (b"payload_", &[text, &[0]].concat()),
            (b"payload", text),
        ] {
            let matching = Segment::new(v6, ACK, payload).bytes();
            let (_, mut writer) = pep(&roots);
            let (mut out, zone) = (BytesMut::new(), [psn, text, tag].concat());
            let written = writer.write(&matching[..header], Some(&zone), &mut out);
            written.unwrap();
            let opened = fresh(&roots, &out);
            if payload.len() == text.len() && payload == b"payload" {
                assert_eq!(opened, Ok((Delivered::Packet, inner.bytes())));
            } else {
                assert_eq!(opened, Err(Discarded::PayloadTag), "{payload:?}");
            }
        }
    }
}

#[test]
fn a_pep_moves_no_payload_to_another_place() {
    let roots = roots(0);
    let (mut sender, _) = ends(&roots);
    let mut zone = |segment: &Segment| {
        let sealed = seal(&mut sender, &segment.bytes());
        let (mut reader, _) = pep(&roots);
        reader.open(&sealed).unwrap().zone().unwrap().to_vec()
    };
    let own = Segment::new(false, ACK, b"payload");
    let mut later = own.clone();
    later.sequence += 7;
    let others = [
        own.clone().port(51001),
        later,
        Segment::new(true, ACK, b"payload"),
    ];
    for other in others {
        let taken = zone(&other);
        let (_, mut writer) = pep(&roots);
        let mut out = BytesMut::new();
        let header = &own.bytes()[..40];
        writer.write(header, Some(&taken), &mut out).unwrap();
        assert_eq!(fresh(&roots, &out), Err(Discarded::PayloadTag));
    }
}

#[test]
fn a_pep_ends_and_opens_nothing_without_the_payload_zone() {
    let roots = roots(0);
    for flags in [SYN, FIN | ACK, URG | ACK, SYN | RST] {
        let bytes = Segment::new(false, flags, b"").bytes();
        let (_, mut writer) = pep(&roots);
        let mut out = BytesMut::new();
        let refused = writer.write(&bytes, None, &mut out);
        assert_eq!(refused, Err(Unwritten::Zone(ZoneFault::Missing)));
        let layout = segment::Layout::of_packet(&bytes).unwrap();
        writer.put(layout, &bytes, false, &mut out).unwrap();
        let expected = Discarded::Zone(ZoneFault::Missing);
        assert_eq!(fresh(&roots, &out), Err(expected));
    }
}

#[test]
fn a_pep_acknowledges_in_its_own_name_and_its_rst_is_an_abort() {
    let roots = roots(0);
    let (_, mut writer) = pep(&roots);
    for (flags, expected) in [
        (ACK, Delivered::Packet),
        (RST, Delivered::GaveUp),
        (RST | ACK, Delivered::GaveUp),
    ] {
        let inner = Segment::new(true, flags, b"").bytes();
        let mut out = BytesMut::new();
        writer.write(&inner, None, &mut out).unwrap();
        assert_eq!(fresh(&roots, &out), Ok((expected, inner)));
    }
    let rst = Segment::new(true, RST, b"").bytes();
    let sealed = seal(&mut ends(&roots).0, &rst);
    assert_eq!(fresh(&roots, &sealed), Ok((Delivered::Packet, rst)));
}

#[test]
fn a_pep_reads_headers_and_no_payload() {
    let roots = roots(0);
    let inner = Segment::new(false, ACK, b"secret payload");
    let sealed = seal(&mut ends(&roots).0, &inner.bytes());
    let (mut reader, _) = pep(&roots);
    let opened = reader.open(&sealed).unwrap();
    assert_eq!((opened.writer(), opened.payload()), (Writer::A, 14));
    let mut header = inner.bytes()[..40].to_vec();
    header[10..12].fill(0);
    header[36..38].fill(0);
    assert_eq!(opened.header(), header);
    let flow = opened.flow().unwrap();
    assert_eq!((flow.source.1, flow.destination.1), (51000, 443));
    assert_eq!(flow.source.0.to_string(), "192.168.1.10");
    let zone = opened.zone().unwrap();
    assert!(!zone.windows(6).any(|part| part == b"secret"));
    assert!(!format!("{opened:?}").contains("51000"));
}

#[test]
fn arbitrary_bytes_are_discarded() {
    use rand_core::{Rng, SeedableRng};
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(2);
    let roots = roots(0);
    let spi = roots.spis().to_b.get().to_be_bytes();
    for _ in 0..20_000 {
        let mut bytes = vec![0; random.next_u32() as usize % 120];
        random.fill_bytes(&mut bytes);
        if let Some(first) = bytes.first_chunk_mut() {
            *first = spi;
        }
        assert!(fresh(&roots, &bytes).is_err());
    }
    assert_eq!(
        (spi_of(&spi), spi_of(&spi[..3])),
        (Some(roots.spis().to_b), None)
    );
    let huge = vec![0x10; OVERHEAD + MTU + 1];
    assert!(fresh(&roots, &huge).is_err());
}
