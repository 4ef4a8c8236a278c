//! Messages with which both ends of a tunnel begin an association of LES (`PROTOCOL.md` §20.1).
//!
//! What is in them is read and written where the keys are made; here are values on the control stream.

use std::fmt;

use zeroize::Zeroizing;

/// Message of LES on the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LesKind {
    /// Proposal of the client.
    Q1,
    /// Answer of the server.
    Q2,
    /// Proof of the client, in the paper's flow.
    Q3,
}

impl LesKind {
    const ALL: [Self; 3] = [Self::Q1, Self::Q2, Self::Q3];

    /// Type of the control frame.
    #[must_use]
    pub const fn code(self) -> u8 {
        0x28 + self as u8
    }

    /// Message with this type of control frame.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Body of a message of LES, which may hold random bytes of a key: wiped, and not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct LesBody(Zeroizing<Vec<u8>>);

impl LesBody {
    /// Body of at most [`MAX_FRAME`](super::MAX_FRAME) bytes.
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for LesBody {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for LesBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LesBody({} bytes)", self.0.len())
    }
}
