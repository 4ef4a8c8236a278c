//! Frames on the air, and the packets that are cut to fill them: shared by all standards and channels.

use std::time::Instant;

use bentpipe_units::Decibel;

/// A frame on the air.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frame {
    /// Instant at which its last symbol leaves.
    pub(crate) end: Instant,
    pub(crate) code: Code,
}

/// Strength of the code of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Code {
    /// C/N at which frames are lost with the `reference` probability.
    pub(crate) threshold: Decibel,
    /// Decades of loss probability per decibel.
    pub(crate) slope: f64,
    pub(crate) reference: f64,
}

impl Code {
    /// Probability of losing a frame.
    pub(crate) fn loss(self, cn: Decibel) -> f64 {
        let above = (cn - self.threshold).as_f64();
        (self.reference * 10f64.powf(-self.slope * above)).min(1.0)
    }
}

/// Part of one packet that is left to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// Without headers of the encapsulation.
    pub(crate) bytes: u32,
    /// True if a fragment has been sent.
    pub(crate) begun: bool,
}

impl Remaining {
    /// Makes a fragment with so long a header, of what fits behind it into `space`; says how many bytes that takes, and
    /// what remains. The last byte is never cut off: what ends a packet, a CRC or a sequence number, comes with at least
    /// a byte. Takes nothing where not one byte would fit.
    pub(crate) fn cut(self, space: u32, header: u32) -> (u32, Option<Self>) {
        let fits = space
            .saturating_sub(header)
            .min(self.bytes.saturating_sub(1));
        if fits == 0 {
            return (0, Some(self));
        }
        let rest = Self {
            bytes: self.bytes - fits,
            begun: true,
        };
        (header + fits, Some(rest))
    }
}
