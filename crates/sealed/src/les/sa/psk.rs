//! Pre-shared key, for the lab alone: the keys of associations without a tunnel, and Q1 and Q2 in
//! datagrams (`PROTOCOL.md` §20.1).

use std::fmt;

use aws_lc_rs::hmac;
use bentpipe_proto::tunnel::LesKind;
use zeroize::Zeroizing;

use crate::Exporter;
use crate::epoch::expand;

/// First bytes of a datagram that is a message: an SPI that is reserved.
const NO_SPI: [u8; 4] = [0; 4];

/// Length of a message's HMAC.
const CODE: usize = 32;

/// Key that both ends have had before. Who has it and a recording opens all of it: there is no
/// forward secrecy.
pub struct Psk(Zeroizing<[u8; 32]>);

impl Psk {
    /// Key made of a `secret`, as its file has it.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let mut salt = Zeroizing::new([0; 32]);
        salt[..16].copy_from_slice(b"bentpipe les psk");
        Self(Exporter::new(salt).extract(secret))
    }

    /// Stands for the exporter of a tunnel, for association `count`.
    #[must_use]
    pub fn exporter(&self, count: u32) -> Exporter {
        let mut bytes = Zeroizing::new([0; 32]);
        expand(&self.0, &[b"les psk x", &count.to_be_bytes()], &mut *bytes);
        Exporter::new(bytes)
    }

    /// Datagram that carries Q1.
    #[must_use]
    pub fn ask(&self, q1: &[u8]) -> Vec<u8> {
        self.seal(LesKind::Q1, q1, &[])
    }

    /// Q1 of a datagram. `None`: this is another, or nobody's who has the key.
    #[must_use]
    pub fn asked<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        self.open(LesKind::Q1, datagram, &[])
    }

    /// Datagram that carries `q2`, the answer to `q1`.
    #[must_use]
    pub fn answer(&self, q2: &[u8], q1: &[u8]) -> Vec<u8> {
        self.seal(LesKind::Q2, q2, q1)
    }

    /// Q2 of a datagram. `None`: this is another, or nobody's who has the key, or not the answer to
    /// `q1`.
    #[must_use]
    pub fn answered<'a>(&self, datagram: &'a [u8], q1: &[u8]) -> Option<&'a [u8]> {
        self.open(LesKind::Q2, datagram, q1)
    }

    /// Says whether a datagram is to be a message, be it nobody's who has the key, and no packet.
    #[must_use]
    pub fn is_message(datagram: &[u8]) -> bool {
        datagram.starts_with(&NO_SPI)
    }

    /// Says whether a datagram has the form of a message of this kind, whoever has made it.
    #[must_use]
    pub fn has_form(kind: LesKind, datagram: &[u8]) -> bool {
        let rest = datagram.strip_prefix(&NO_SPI);
        rest.is_some_and(|rest| rest.first() == Some(&kind.code()) && rest.len() > CODE)
    }

    /// Message of a kind, bound to the one before, if there is one.
    fn seal(&self, kind: LesKind, body: &[u8], before: &[u8]) -> Vec<u8> {
        let mut out = [&NO_SPI[..], &[kind.code()], body].concat();
        let code = hmac::sign(&self.key(), &bound(&out, before));
        out.extend_from_slice(code.as_ref());
        out
    }

    fn open<'a>(&self, kind: LesKind, datagram: &'a [u8], before: &[u8]) -> Option<&'a [u8]> {
        let (text, mac) = datagram.split_last_chunk::<CODE>()?;
        let (&code, body) = text.strip_prefix(&NO_SPI)?.split_first()?;
        let own = code == kind.code();
        hmac::verify(&self.key(), &bound(text, before), mac).ok()?;
        own.then_some(body)
    }

    fn key(&self) -> hmac::Key {
        let mut bytes = Zeroizing::new([0; 32]);
        expand(&self.0, &[b"les psk mac"], &mut *bytes);
        hmac::Key::new(hmac::HMAC_SHA256, &*bytes)
    }
}

/// Bytes that the code of a message is made of: its own, and those of the message before.
fn bound(text: &[u8], before: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new([text, before].concat())
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(…)")
    }
}
