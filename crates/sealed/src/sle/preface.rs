//! Preface: the first bytes of an outer connection, from the client, in clear (`PROTOCOL.md`
//! §18.2).
//!
//! Read before anything is known of who sends; believed once record 0, whose tag covers it, has
//! been opened.

/// Length of a preface, bytes.
pub const PREFACE: usize = 16;

/// Version of SLE spoken here.
const VERSION: u8 = 1;

/// Flag of a preface whose sender waits for an answer.
pub(super) const ASKS: u8 = 1;

/// First bytes of an outer connection: which keys its records are under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    /// Epoch of the tunnel.
    pub epoch: u16,
    /// Name that the server has given to the tunnel.
    pub id: u32,
    /// Number of the connection in its epoch, never used twice.
    pub number: u64,
    /// The client waits for the server's answer before it says more.
    pub asks: bool,
}

/// Fault in a preface: not SLE, or another version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefaceError {
    /// The first byte is not the version spoken here.
    #[error("preface: version {0}, only {VERSION} is spoken here")]
    Version(u8),
    /// The second byte has flags that mean nothing here.
    #[error("preface: flags {0:#04x} mean nothing here")]
    Flags(u8),
}

impl Preface {
    /// Bytes of the preface.
    #[must_use]
    pub fn encode(&self) -> [u8; PREFACE] {
        let mut out = [0; PREFACE];
        (out[0], out[1]) = (VERSION, u8::from(self.asks));
        out[2..4].copy_from_slice(&self.epoch.to_be_bytes());
        out[4..8].copy_from_slice(&self.id.to_be_bytes());
        out[8..].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    /// Reads a preface.
    ///
    /// # Errors
    /// [`PrefaceError`]: of another version or form.
    pub fn parse(bytes: &[u8; PREFACE]) -> Result<Self, PrefaceError> {
        check(bytes)?;
        let [.., a, b, c, d, e, f, g, h] = *bytes;
        let [_, flags, high, low, i, j, k, l, ..] = *bytes;
        Ok(Self {
            epoch: u16::from_be_bytes([high, low]),
            id: u32::from_be_bytes([i, j, k, l]),
            number: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            asks: flags == ASKS,
        })
    }
}

/// Preface that is still on its way.
#[derive(Debug, Default)]
pub(super) struct PrefaceReader {
    bytes: [u8; PREFACE],
    come: usize,
}

impl PrefaceReader {
    /// Takes what belongs to the preface from `input`. `None`: need more bytes.
    ///
    /// # Errors
    /// [`PrefaceError`], with the first byte that shows it.
    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<Option<Preface>, PrefaceError> {
        let part = input.len().min(PREFACE - self.come);
        let (own, rest) = input.split_at(part);
        self.bytes[self.come..self.come + part].copy_from_slice(own);
        self.come += part;
        *input = rest;
        if self.come == PREFACE {
            return Preface::parse(&self.bytes).map(Some);
        }
        check(&self.bytes[..self.come]).map(|()| None)
    }
}

/// Looks at the first two bytes, as far as they have come.
fn check(bytes: &[u8]) -> Result<(), PrefaceError> {
    match bytes {
        [version, ..] if *version != VERSION => Err(PrefaceError::Version(*version)),
        [_, flags, ..] if *flags & !ASKS != 0 => Err(PrefaceError::Flags(*flags)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Preface = Preface {
        epoch: 0x0102,
        id: 0x0304_0506,
        number: 0x0708_090a_0b0c_0d0e,
        asks: false,
    };

    #[test]
    fn every_field_has_its_place() {
        let bytes = [1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        assert_eq!(SOME.encode(), bytes);
        assert_eq!(Preface::parse(&bytes), Ok(SOME));
        let asking = Preface { asks: true, ..SOME };
        assert_eq!(asking.encode()[..2], [1, 1]);
        assert_eq!(Preface::parse(&asking.encode()), Ok(asking));
    }

    #[test]
    fn however_cut_it_is_read_and_what_follows_is_left() {
        let mut bytes = SOME.encode().to_vec();
        bytes.extend(*b"rest");
        for size in 1..=bytes.len() {
            let mut reader = PrefaceReader::default();
            let (mut found, mut left) = (None, Vec::new());
            for mut piece in bytes.chunks(size) {
                if found.is_none() {
                    found = reader.read(&mut piece).unwrap();
                }
                left.extend_from_slice(piece);
            }
            assert_eq!((found, left), (Some(SOME), b"rest".to_vec()), "{size}");
        }
    }

    #[test]
    fn what_is_no_sle_is_refused_with_its_first_byte() {
        let read = |bytes: &[u8]| PrefaceReader::default().read(&mut &*bytes);
        assert_eq!(read(b"G"), Err(PrefaceError::Version(b'G')));
        assert_eq!(read(&[1]), Ok(None));
        assert_eq!(read(&[1, 9]), Err(PrefaceError::Flags(9)));
        let text = read(&[2]).unwrap_err().to_string();
        assert_eq!(text, "preface: version 2, only 1 is spoken here");
        let mut whole = SOME.encode();
        whole[1] = 3;
        assert_eq!(Preface::parse(&whole), Err(PrefaceError::Flags(3)));
    }
}
