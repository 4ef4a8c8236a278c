//! IP and TCP headers: read from packets and from header zones of LES, and written for what a PEP
//! sends. Checksums are 0 here: the end writes them in LES, the shell in clear.

use std::net::IpAddr;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::segment::{Flags, Segment, SynOptions};
use crate::wire::Endpoint;

const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const PROTOCOL: u8 = 6;

/// Hops that a packet of a PEP may take.
const HOPS: u8 = 64;

/// Kinds of TCP options that a PEP can keep, or that change nothing: end, no operation, MSS, window
/// scale, SACK permitted (what it does not send is not missed), user timeout, fast open.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const HARMLESS: [u8; 3] = [4, 28, 34];

/// Headers of one TCP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Address and port of the sender.
    pub source: Endpoint,
    /// Address and port of the receiver.
    pub destination: Endpoint,
    /// Length of both headers, bytes.
    pub length: usize,
    /// Segment without its zone, which the caller puts there.
    pub segment: Segment,
}

impl Headers {
    /// Headers at the beginning of `bytes`; the payload may follow or not. `None`: this is no TCP, or
    /// a PEP does not touch it: fragments, IPv4 options, IPv6 extension headers.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (ip, whole, addresses) = match bytes.first()? >> 4 {
            4 => read_ipv4(bytes.first_chunk()?)?,
            6 => read_ipv6(bytes.first_chunk()?)?,
            _ => return None,
        };
        let tcp = bytes.get(ip..)?;
        let head: &[u8; TCP] = tcp.first_chunk()?;
        let own = usize::from(head[12] >> 4) * 4;
        let options = tcp.get(TCP..own)?;
        let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        let flags = Flags::new(u16_at(12));
        let syn = flags.has(Flags::SYN);
        let segment = Segment {
            number: u32_at(4),
            acknowledgement: u32_at(8),
            window: u16_at(14),
            flags,
            urgent: u16_at(18),
            length: u16::try_from(whole.checked_sub(ip + own)?).ok()?,
            zone: Bytes::new(),
            options: if syn {
                read_options(options)
            } else {
                SynOptions::default()
            },
        };
        Some(Self {
            source: (addresses[0], u16_at(0)),
            destination: (addresses[1], u16_at(2)),
            length: ip + own,
            segment,
        })
    }

    /// Appends the headers of a segment to `out`, without options. False: the addresses are of
    /// different families, or the packet would be too long.
    #[must_use]
    pub fn write(
        source: Endpoint,
        destination: Endpoint,
        segment: &Segment,
        out: &mut BytesMut,
    ) -> bool {
        let length = TCP + usize::from(segment.length);
        match (source.0, destination.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let Ok(whole) = u16::try_from(IPV4 + length) else {
                    return false;
                };
                out.put_slice(&[0x45, 0]);
                out.put_u16(whole);
                // Never cut, so that the identification means nothing (RFC 6864 §4.1).
                out.put_slice(&[0, 0, 0x40, 0, HOPS, PROTOCOL, 0, 0]);
                out.put_slice(&from.octets());
                out.put_slice(&to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let Ok(length) = u16::try_from(length) else {
                    return false;
                };
                out.put_slice(&[0x60, 0, 0, 0]);
                out.put_u16(length);
                out.put_slice(&[PROTOCOL, HOPS]);
                out.put_slice(&from.octets());
                out.put_slice(&to.octets());
            }
            _ => return false,
        }
        out.put_u16(source.1);
        out.put_u16(destination.1);
        out.put_u32(segment.number);
        out.put_u32(segment.acknowledgement);
        out.put_u16((TCP as u16 / 4) << 12 | segment.flags.bits());
        out.put_u16(segment.window);
        out.put_u16(0);
        out.put_u16(segment.urgent);
        true
    }
}

/// Length of the header, length of the packet, addresses.
type Parts = (usize, usize, [IpAddr; 2]);

fn read_ipv4(head: &[u8; IPV4]) -> Option<Parts> {
    let [
        first,
        _,
        high,
        low,
        _,
        _,
        cut,
        offset,
        _,
        protocol,
        _,
        _,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
    ] = *head;
    // All but "do not fragment".
    let part = u16::from_be_bytes([cut, offset]) & 0xbfff != 0;
    let tcp = first == 0x45 && protocol == PROTOCOL && !part;
    let addresses = [[a, b, c, d].into(), [e, f, g, h].into()];
    tcp.then_some((IPV4, u16::from_be_bytes([high, low]).into(), addresses))
}

fn read_ipv6(head: &[u8; IPV6]) -> Option<Parts> {
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let source: [u8; 16] = *head[8..].first_chunk()?;
    let destination: [u8; 16] = *head[24..].first_chunk()?;
    let addresses = [source.into(), destination.into()];
    (head[6] == PROTOCOL).then_some((IPV6, IPV6 + length, addresses))
}

/// Options of a SYN. What cannot be read is foreign.
fn read_options(mut rest: &[u8]) -> SynOptions {
    let mut found = SynOptions::default();
    while let Some((&kind, after)) = rest.split_first() {
        if kind == END {
            break;
        }
        if kind == NO_OPERATION {
            rest = after;
            continue;
        }
        let length = after.first().map_or(0, |length| usize::from(*length));
        let Some((option, after)) = rest.split_at_checked(length).filter(|_| length >= 2) else {
            found.foreign = true;
            break;
        };
        match *option {
            [MSS, _, high, low] => found.largest = Some(u16::from_be_bytes([high, low])),
            [SCALE, _, shift] => found.scale = Some(shift),
            [kind, ..] => found.foreign |= !HARMLESS.contains(&kind),
            [] => {}
        }
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inner SYN of PROTOCOL.md §20.8, with timestamps.
    const SYN: &str = "4500003c778840003f064080c0a8010ac0000201c73801bb0102030400000000a0c2fffff28c00000204\
                       05b40402080a010203040000000001030307";
    /// Inner SYN of PROTOCOL.md §20.8 as it arrives, without timestamps.
    const TIDY: &str = "4500003c778840003f064080c0a8010ac0000201c73801bb0102030400000000a002fffffab7000002\
                        0405540402010101010101010101010103 0307";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: String = hex.split_whitespace().collect();
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        (0..digits.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn a_syn_shows_what_a_pep_has_to_know() {
        let syn = Headers::read(&bytes(SYN)).expect("TCP");
        let address = |text: &str| text.parse().expect("an address");
        assert_eq!(syn.source, (address("192.168.1.10"), 51_000));
        assert_eq!(syn.destination, (address("192.0.2.1"), 443));
        assert_eq!((syn.length, syn.segment.length), (60, 0));
        assert_eq!(syn.segment.number, 0x0102_0304);
        assert!(syn.segment.flags.has(Flags::SYN) && syn.segment.flags.has(Flags::ECN));
        assert!(syn.segment.options.foreign, "timestamps");
        let tidy = Headers::read(&bytes(TIDY)).expect("TCP");
        let wanted = SynOptions {
            largest: Some(1364),
            scale: Some(7),
            foreign: false,
        };
        assert_eq!(tidy.segment.options, wanted);
        assert!(!tidy.segment.flags.has(Flags::ECN));
    }

    #[test]
    fn what_is_written_is_read() {
        let segment = Segment {
            number: 1,
            acknowledgement: 0xffff_fffe,
            window: 3,
            flags: Flags::new(0xe39),
            urgent: 5,
            length: 600,
            ..Segment::default()
        };
        for [from, to] in [["192.168.1.10", "192.0.2.1"], ["fd00::a", "2001:db8::1"]] {
            let source = (from.parse().expect("an address"), 51_000);
            let destination = (to.parse().expect("an address"), 443);
            let mut out = BytesMut::new();
            assert!(Headers::write(source, destination, &segment, &mut out));
            let read = Headers::read(&out).expect("TCP");
            assert_eq!(read.length, out.len());
            assert_eq!((read.source, read.destination), (source, destination));
            assert_eq!(read.segment, segment);
            // Too long for one packet.
            let long = Segment {
                length: u16::MAX - 10,
                ..segment.clone()
            };
            assert!(!Headers::write(source, destination, &long, &mut out));
        }
    }

    #[test]
    fn what_a_pep_does_not_touch_is_not_read() {
        let changed = |at: usize, byte: u8| {
            let mut packet = bytes(SYN);
            packet[at] = byte;
            Headers::read(&packet).is_some()
        };
        assert!(changed(8, 1), "a TTL");
        for (at, byte) in [
            (0, 0x46),
            (0, 0x55),
            (6, 0x20),
            (7, 1),
            (9, 17),
            (3, 59),
            (32, 0x40),
        ] {
            assert!(!changed(at, byte), "byte {at}");
        }
        let whole = bytes(SYN);
        for length in 0..whole.len() {
            assert_eq!(Headers::read(&whole[..length]), None, "{length} bytes");
        }
        for options in [
            &[2, 1][..],
            &[3],
            &[3, 40],
            &[99, 2],
            &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(read_options(options).foreign, "{options:?}");
        }
    }
}
