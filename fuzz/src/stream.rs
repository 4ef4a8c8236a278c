//! Datagrams in a byte stream (PROTOCOL.md §17): what a stranger sends to the TLS port.

use bentpipe_proto::stream::{Deframer, MAX_DATAGRAM, PREFACE, StreamFault, frame};

/// Datagrams of `stream`, which comes in pieces of `size`, and the fault that ends it.
fn read(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, Option<StreamFault>) {
    let (mut deframer, mut datagrams) = (Deframer::default(), Vec::new());
    for piece in stream.chunks(size) {
        deframer.push(piece);
        loop {
            match deframer.read() {
                Ok(Some(datagram)) => datagrams.push(datagram.to_vec()),
                Ok(None) => break,
                Err(fault) => return (datagrams, Some(fault)),
            }
        }
    }
    (datagrams, None)
}

/// A stream, cut at will: the first byte says where.
pub fn tls_wire(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else {
        return;
    };
    let whole = read(stream, stream.len().max(1));
    let cut = read(stream, usize::from(size).max(1));
    assert_eq!(whole, cut, "cuts change nothing");
    let (datagrams, _) = whole;
    let mut again = PREFACE.to_vec();
    for datagram in &datagrams {
        assert!((1..=MAX_DATAGRAM).contains(&datagram.len()));
        assert!(frame(datagram, &mut again));
    }
    assert!(datagrams.is_empty() || stream.starts_with(&again));
}

/// Valid streams.
pub fn tls_wire_seeds() -> Vec<Vec<u8>> {
    let stream = |datagrams: &[usize]| {
        let mut bytes = [&[7], &PREFACE[..]].concat();
        for &size in datagrams {
            assert!(frame(&vec![0x40; size], &mut bytes));
        }
        bytes
    };
    vec![
        stream(&[]),
        stream(&[1, 1200]),
        stream(&[44, MAX_DATAGRAM, 3]),
    ]
}
