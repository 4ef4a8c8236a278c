//! The test vectors of `PROTOCOL.md` §20.8: both ends and a PEP write and read exactly these bytes,
//! and the page shows them.

use super::*;
use crate::page;

fn vector(name: &str) -> Vec<u8> {
    page::vector("20.8", name)
}

fn run(first: u8) -> [u8; 32] {
    std::array::from_fn(|at| first + at as u8)
}

/// Association of the page.
fn roots() -> Roots {
    let exporter = Exporter::new(Zeroizing::new(run(0)));
    let [to_b, to_a] = [0x0a0b_0c0d, 0x0102_0304].map(|number| Spi::new(number).unwrap());
    let spis = SpiPair { to_b, to_a };
    Roots::derive(&exporter, 0, &run(0x20), Some(&run(0x40)), spis)
}

#[test]
fn keys_and_names_are_those_of_the_page() {
    let roots = roots();
    let both = [*roots.k1(), *roots.header().bytes()].concat();
    assert_eq!(both, vector("LES: roots"));
    let names = Roots::short_spis(&Exporter::new(Zeroizing::new(run(0)))).unwrap();
    let names = [names.to_b, names.to_a].map(|spi| spi.get().to_be_bytes());
    assert_eq!(names.concat(), vector("LES: names of the short flow"));
}

#[test]
fn packets_of_an_end_are_those_of_the_page() {
    let roots = roots();
    let (mut sender, mut receiver) = ends(&roots);
    let mut flows = Flows::default();
    for (inner, sealed, arrives) in [
        ("inner SYN", "SYN", "inner SYN as it arrives"),
        ("inner data", "data", "inner data"),
        ("inner datagram", "datagram", "inner datagram"),
    ] {
        let [inner, expected, arrives] =
            [inner, sealed, arrives].map(|it| vector(&format!("LES: {it}")));
        assert_eq!(seal(&mut sender, &inner), expected, "{sealed}");
        let opened = open(&mut receiver, &mut flows, &expected);
        assert_eq!(opened, Ok((Delivered::Packet, arrives)));
    }
}

#[test]
fn packets_of_a_pep_are_those_of_the_page() {
    let roots = roots();
    let (mut reader, mut writer) = pep(&roots);
    let data = vector("LES: data");
    let zone = reader.open(&data).unwrap().zone();
    let changed = vector("LES: inner data as a PEP has written it");
    let mut out = BytesMut::new();
    writer.write(&changed[..40], zone, &mut out).unwrap();
    let name = "LES: data, written by a PEP";
    assert_eq!(out, vector(name));
    assert_eq!(fresh(&roots, &out), Ok((Delivered::Packet, changed)));
    let spi = roots.spis().to_a;
    let mut writer = HeaderWriter::new(roots.header(), spi, Toward::A, Writer::FIRST_PEP);
    let mut receiver = roots.end_a().1;
    for (name, expected) in [
        ("acknowledgement", Delivered::Packet),
        ("RST", Delivered::GaveUp),
    ] {
        let inner = vector(&format!("LES: inner {name}"));
        let mut out = BytesMut::new();
        writer.write(&inner, None, &mut out).unwrap();
        let name = name.replace("RST", "RST of a PEP");
        assert_eq!(out, vector(&format!("LES: {name}")));
        let opened = open(&mut receiver, &mut Flows::default(), &out);
        assert_eq!(opened, Ok((expected, inner)));
    }
}
