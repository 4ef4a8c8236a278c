//! Keys of one association (`PROTOCOL.md` §20.2): K1 for the ends, K2 for them and the PEPs; of
//! each one key for every direction, of K2 one for every writer besides.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::{EndReceiver, EndSender, HeaderReader, HeaderWriter};
use crate::counted_key::{CountedKey, IV, KEY};
use crate::epoch::{Exporter, expand};

/// Name of one direction of one association, in clear on every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spi(u32);

impl Spi {
    /// Lowest name; those below are reserved, as ESP's are (RFC 4303 §2.1).
    pub const FIRST: u32 = 256;

    /// Name with this number. `None`: the number is reserved.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (number >= Self::FIRST).then_some(Self(number))
    }

    /// Number of the name.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Names of both directions of one association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpiPair {
    /// Name of the direction from A to B.
    pub to_b: Spi,
    /// Name of the direction from B to A.
    pub to_a: Spi,
}

impl SpiPair {
    /// Name of one direction.
    #[must_use]
    pub fn of(self, toward: Toward) -> Spi {
        match toward {
            Toward::B => self.to_b,
            Toward::A => self.to_a,
        }
    }
}

/// Direction of a packet, by the end that it goes to. A is the client's end, B the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Toward {
    /// From A to B.
    B,
    /// From B to A.
    A,
}

impl Toward {
    /// The other direction.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::B => Self::A,
            Self::A => Self::B,
        }
    }

    /// Number in derivations.
    const fn code(self) -> u8 {
        self as u8
    }
}

/// Holder of a key that packets are written with: one of the ends, or a PEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Writer(u8);

impl Writer {
    /// End A, the client's.
    pub const A: Self = Self(0);
    /// End B, the server's.
    pub const B: Self = Self(1);
    /// First of the PEPs' numbers, 2. A gives each number out once in an association.
    pub const FIRST_PEP: Self = Self(2);

    /// Writer with this number.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Number of the writer.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Says whether the writer writes in the direction: an end does in its own, a PEP in both.
    #[must_use]
    pub fn writes(self, toward: Toward) -> bool {
        match self {
            Self::A => toward == Toward::B,
            Self::B => toward == Toward::A,
            _ => true,
        }
    }
}

/// Key of the zone that `label` names, for the direction and the writer in `context`.
fn zone_key(root: &[u8; 32], label: &[u8], context: &[u8]) -> CountedKey {
    let mut bytes = Zeroizing::new([0; KEY + IV]);
    expand(root, &[label, context], &mut *bytes);
    let (key, iv) = bytes.split_at(KEY);
    CountedKey::new(key, iv)
}

/// K2 of one association: opens and writes header zones, and says nothing about K1.
#[derive(Clone)]
pub struct HeaderRoot(Zeroizing<[u8; 32]>);

impl HeaderRoot {
    /// K2 with these bytes, as they have come in Q4.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Bytes of K2, for Q4.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Says whether both are the same, in a time that does not depend on how they differ.
    pub(super) fn is(&self, other: &Self) -> bool {
        verify_slices_are_equal(&*self.0, &*other.0).is_ok()
    }

    /// Key of one direction and writer.
    pub(super) fn key(&self, toward: Toward, writer: Writer) -> CountedKey {
        zone_key(&self.0, b"les k2", &[toward.code(), writer.get()])
    }
}

impl fmt::Debug for HeaderRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderRoot(…)")
    }
}

/// Token that nobody but the ends of an association can make: who shows it may end that association.
/// The token tells nothing about the association's keys.
#[derive(Clone)]
pub struct EndToken(Zeroizing<[u8; 32]>);

impl EndToken {
    /// Token with these bytes, as they have come in Q1.
    pub(super) fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Bytes of the token, for Q1.
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PartialEq for EndToken {
    /// Compares in a time that does not depend on how both differ.
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&*self.0, &*other.0).is_ok()
    }
}

impl Eq for EndToken {}

impl fmt::Debug for EndToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndToken(…)")
    }
}

/// Both root keys of one association.
pub struct Roots {
    count: u32,
    spis: SpiPair,
    k1: Zeroizing<[u8; 32]>,
    k2: HeaderRoot,
}

impl Roots {
    /// Keys of association `count` of a tunnel, whose `exporter` was made for that count.
    ///
    /// `random_b` is empty in the short flow, where A begins alone.
    #[must_use]
    pub fn derive(
        exporter: &Exporter,
        count: u32,
        random_a: &[u8; 32],
        random_b: Option<&[u8; 32]>,
        spis: SpiPair,
    ) -> Self {
        let mut both = Zeroizing::new(Vec::with_capacity(64));
        both.extend_from_slice(random_a);
        both.extend_from_slice(random_b.map_or(&[], |random| random));
        let secret = exporter.extract(&both);
        let names = [spis.to_b, spis.to_a].map(|spi| spi.get().to_be_bytes());
        let mut bytes = Zeroizing::new([0; 64]);
        expand(
            &secret,
            &[b"bentpipe les roots", &names[0], &names[1]],
            &mut *bytes,
        );
        let (mut k1, mut k2) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        k1.copy_from_slice(&bytes[..32]);
        k2.copy_from_slice(&bytes[32..]);
        Self {
            count,
            spis,
            k1,
            k2: HeaderRoot(k2),
        }
    }

    /// Names of the short flow, which both ends derive from the exporter. `None`: one is reserved,
    /// or both are the same; the next count has others.
    #[must_use]
    pub fn short_spis(exporter: &Exporter) -> Option<SpiPair> {
        let mut bytes = [0; 8];
        expand(exporter.secret(), &[b"bentpipe les spis"], &mut bytes);
        let [a, b, c, d, e, f, g, h] = bytes;
        let to_b = Spi::new(u32::from_be_bytes([a, b, c, d]))?;
        let to_a = Spi::new(u32::from_be_bytes([e, f, g, h]))?;
        (to_a != to_b).then_some(SpiPair { to_b, to_a })
    }

    /// Names of both directions.
    #[must_use]
    pub fn spis(&self) -> SpiPair {
        self.spis
    }

    /// K2, for the PEPs.
    #[must_use]
    pub fn header(&self) -> &HeaderRoot {
        &self.k2
    }

    /// End A: its sender and its receiver. An association has one sender at each end.
    #[must_use]
    pub fn end_a(&self) -> (EndSender, EndReceiver) {
        self.end(Toward::B, Writer::A)
    }

    /// End B: its sender and its receiver. An association has one sender at each end.
    #[must_use]
    pub fn end_b(&self) -> (EndSender, EndReceiver) {
        self.end(Toward::A, Writer::B)
    }

    fn end(&self, out: Toward, writer: Writer) -> (EndSender, EndReceiver) {
        let back = out.back();
        let headers = HeaderWriter::new(&self.k2, self.spis.of(out), out, writer);
        let reader = HeaderReader::new(self.k2.clone(), self.spis.of(back), back);
        let sender = EndSender::new(headers, self.payload(out));
        (
            sender,
            EndReceiver::new(reader, self.payload(back), self.count),
        )
    }

    /// HMAC of Q1 and Q2 under a key of K1: only who has the roots can make it.
    pub(super) fn prove(&self, proposal: &[u8], answer: &[u8]) -> [u8; 32] {
        let mut key = Zeroizing::new([0; 32]);
        expand(&self.k1, &[b"les q3"], &mut *key);
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &*key));
        context.update(proposal);
        context.update(answer);
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    /// Token with which A ends this association, and those before, in the PSK flow.
    pub(super) fn end_token(&self) -> EndToken {
        let mut token = Zeroizing::new([0; 32]);
        expand(&self.k1, &[b"les psk end"], &mut *token);
        EndToken(token)
    }

    fn payload(&self, toward: Toward) -> CountedKey {
        zone_key(&self.k1, b"les k1", &[toward.code()])
    }

    /// Bytes of K1.
    #[cfg(test)]
    pub(super) fn k1(&self) -> &[u8; 32] {
        &self.k1
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({}, {:?}, …)", self.count, self.spis)
    }
}

#[cfg(test)]
mod tests;
