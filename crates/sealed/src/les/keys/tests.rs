//! Keys: every input counts, each writer has its own, none is printed.

use super::*;

fn exporter(byte: u8) -> Exporter {
    Exporter::new(Zeroizing::new([byte; 32]))
}

fn spis(to_b: u32, to_a: u32) -> SpiPair {
    let [to_b, to_a] = [to_b, to_a].map(|number| Spi::new(number).unwrap());
    SpiPair { to_b, to_a }
}

#[test]
fn every_input_changes_both_roots_and_the_count_alone_none() {
    let root = |exporter: &Exporter, count, random_a, random_b: Option<[u8; 32]>, names| {
        let roots = Roots::derive(exporter, count, &random_a, random_b.as_ref(), names);
        (*roots.k1, *roots.header().bytes())
    };
    let (own, names) = (exporter(7), spis(300, 301));
    let a = [1; 32];
    let all = [
        root(&own, 0, a, None, names),
        root(&exporter(8), 0, a, None, names),
        root(&own, 0, [2; 32], None, names),
        root(&own, 0, a, Some([0; 32]), names),
        root(&own, 0, a, None, spis(301, 300)),
    ];
    let mut keys: Vec<_> = all.iter().flat_map(|it| [it.0, it.1]).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 2 * all.len());
    assert_eq!(root(&own, 9, a, None, names), all[0]);
}

#[test]
fn each_zone_direction_and_writer_has_its_own_key() {
    let roots = Roots::derive(&exporter(7), 0, &[1; 32], None, spis(300, 301));
    let seal = |key: CountedKey| key.seal(1, b"", &mut []);
    let mut tags: Vec<_> = [Toward::A, Toward::B]
        .into_iter()
        .flat_map(|toward| {
            let writers = (0..=u8::MAX).map(Writer::new);
            let headers = writers.map(move |writer| (toward, writer));
            let mut tags: Vec<_> = headers.map(|it| seal(roots.k2.key(it.0, it.1))).collect();
            tags.push(seal(roots.payload(toward)));
            tags
        })
        .collect();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 2 * 257);
}

#[test]
fn names_below_256_are_reserved() {
    assert_eq!(
        (Spi::new(255), Spi::new(256).map(Spi::get)),
        (None, Some(256))
    );
    let (first, second) = (exporter(7), exporter(8));
    let names = Roots::short_spis(&first).unwrap();
    assert_eq!(Roots::short_spis(&first), Some(names));
    assert_ne!(Roots::short_spis(&second), Some(names));
    assert_ne!(names.to_a, names.to_b);
}

#[test]
fn an_end_writes_in_its_own_direction_a_pep_in_both() {
    let writes = |writer: Writer| [Toward::B, Toward::A].map(|toward| writer.writes(toward));
    assert_eq!(writes(Writer::A), [true, false]);
    assert_eq!(writes(Writer::B), [false, true]);
    assert_eq!(writes(Writer::FIRST_PEP), [true, true]);
}

/// Fails to compile where a secret is held in anything that is not wiped.
#[test]
fn keys_are_wiped_and_not_printed() {
    fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
    let roots = Roots::derive(&exporter(7), 3, &[1; 32], None, spis(300, 301));
    wiped(&roots.k1);
    wiped(&roots.k2.0);
    wiped(roots.payload(Toward::A).iv());
    let expected = "Roots(3, SpiPair { to_b: Spi(300), to_a: Spi(301) }, …) HeaderRoot(…)";
    assert_eq!(format!("{roots:?} {:?}", roots.header()), expected);
}
