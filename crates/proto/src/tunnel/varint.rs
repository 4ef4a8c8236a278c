//! QUIC variable-length integers, the only integer coding of the tunnel protocol's headers.
//!
//! RFC 9000 §16: the two high bits of the first byte give the length (1, 2, 4 or 8 bytes), the rest is big-endian.
//! We write the shortest form and read every form. Values above [`MAX`] do not exist on the wire: [`encode`] clamps.

/// Largest value a variable-length integer can carry, 2^62 − 1 (RFC 9000 §16).
pub const MAX: u64 = (1 << 62) - 1;

/// Appends `value` to `out` in its shortest form, 1 to 8 bytes. A value above [`MAX`] is written as [`MAX`].
pub fn encode(value: u64, out: &mut Vec<u8>) {
    let value = value.min(MAX);
    let (prefix, len) = match value {
        0..=0x3f => (0b00, 1),
        0x40..=0x3fff => (0b01, 2),
        0x4000..=0x3fff_ffff => (0b10, 4),
        _ => (0b11, 8),
    };
    let mut bytes = value.to_be_bytes();
    let start = bytes.len() - len;
    bytes[start] |= prefix << 6;
    out.extend_from_slice(&bytes[start..]);
}

/// Reads the integer at the start of `buf` and says how many bytes it took, 1 to 8.
/// `None`: `buf` ends inside it. Never an error: every byte string is a prefix of some integer.
#[must_use]
pub fn decode(buf: &[u8]) -> Option<(u64, usize)> {
    let first = *buf.first()?;
    let len = 1_usize << (first >> 6);
    let mut value = u64::from(first & 0x3f);
    for byte in buf.get(1..len)? {
        value = value << 8 | u64::from(*byte);
    }
    Some((value, len))
}

/// Reads the integer at the start of `rest`, which is moved behind it. `None`: `rest` ends inside it, and stays.
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    let (value, used) = decode(rest)?;
    *rest = rest.get(used..)?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 §A.1.
    #[test]
    fn rfc_9000_examples() {
        let cases: [(u64, &[u8]); 4] = [
            (
                151_288_809_941_952_652,
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            ),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
        ];
        for (value, bytes) in cases {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), None);
            }
        }
        assert_eq!(
            decode(&[0x40, 0x25]),
            Some((37, 2)),
            "longer than needed is allowed"
        );
    }

    #[test]
    fn boundaries_and_clamp() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(decode(&out), Some((value, out.len())));
        }
        let mut out = Vec::new();
        encode(u64::MAX, &mut out);
        assert_eq!(decode(&out), Some((MAX, 8)));
    }
}
