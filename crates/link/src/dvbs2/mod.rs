//! DVB-S2 (EN 302 307-1): MODCODs, the timing of PLFRAMEs, adaptive coding.
//!
//! Normal FECFRAMEs of 64,800 bits, with or without pilots. No S2X, no short frames.

mod acm;
mod carrier;
mod modcod;
mod ticks;

pub(crate) use acm::{AcmConfig, Adaptation};
pub use acm::{Reported, Select};
pub(crate) use carrier::{Coding, PlFrames, PlFramesConfig};
pub(crate) use modcod::Modcod;
pub use modcod::ModcodSet;
