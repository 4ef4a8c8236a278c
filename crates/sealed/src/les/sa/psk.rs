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

    /// Datagram that carries a message.
    #[must_use]
    pub fn seal(&self, kind: LesKind, body: &[u8]) -> Vec<u8> {
        let head = [&NO_SPI[..], &[kind.code()]].concat();
        let mut out = [&head, body].concat();
        let code = hmac::sign(&self.key(), &out);
        out.extend_from_slice(code.as_ref());
        out
    }

    /// Message and its body of a datagram. `None`: this is a packet, or nobody's who has the key.
    #[must_use]
    pub fn open<'a>(&self, datagram: &'a [u8]) -> Option<(LesKind, &'a [u8])> {
        let (text, mac) = datagram.split_last_chunk::<CODE>()?;
        let (&code, body) = text.strip_prefix(&NO_SPI)?.split_first()?;
        hmac::verify(&self.key(), text, mac).ok()?;
        Some((LesKind::from_code(code)?, body))
    }

    fn key(&self) -> hmac::Key {
        let mut bytes = Zeroizing::new([0; 32]);
        expand(&self.0, &[b"les psk mac"], &mut *bytes);
        hmac::Key::new(hmac::HMAC_SHA256, &*bytes)
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(…)")
    }
}
