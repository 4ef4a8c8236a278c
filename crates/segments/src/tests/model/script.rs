//! Applications over the ends.

/// Microseconds of virtual time.
pub(crate) type Micros = u64;

/// Application over one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Bytes that it writes before it closes its direction.
    pub(crate) total: u64,
    /// Bytes of one write, and time between two.
    pub(crate) writes: (u64, Micros),
    /// Bytes of one read, and time between two.
    pub(crate) reads: (u64, Micros),
    /// Receive buffer.
    pub(crate) room: u64,
    pub(crate) mss: u16,
    pub(crate) scale: Option<u8>,
    /// Writes nothing before the other end has closed its direction.
    pub(crate) waits: bool,
    /// Probes a closed window with a byte, as BSD does, instead of an empty segment.
    pub(crate) byte_probes: bool,
    /// Number of bytes received at which it resets the connection.
    pub(crate) aborts: Option<u64>,
    /// Resets the connection once all that it has written is acknowledged, and says no end.
    pub(crate) leaves: bool,
    /// Asks after a minute of silence whether the other end is still there.
    pub(crate) keeps_alive: bool,
    /// Salt of its bytes.
    pub(crate) salt: u64,
    pub(crate) initial: u32,
    /// Seals payload in zones.
    pub(crate) zones: bool,
}

impl Script {
    /// Byte that is written at this index.
    pub(crate) fn byte(&self, index: u64) -> u8 {
        ((index ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }
}
