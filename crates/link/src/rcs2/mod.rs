//! The DVB-RCS2 return link (EN 301 545-2): terminals share a carrier in time, and ask for their share.
//!
//! ```text
//!   terminal                                            gateway (NCC)
//!   FIFOs ─► agent ─────────── control burst ─────────► controller
//!     │        (a request a period)                        │ each superframe: waveforms, CRA, RBDC, VBDC, FCA
//!     ▼                                                    ▼
//!   RLE ◄─── timeslots ◄───── burst time plan ◄──────── grants
//!     └───────────────────── bursts ───────────────────► reassembly
//! ```
//!
//! Superframe `j` is what the gateway receives from `j × superframe` on; each terminal sends as much earlier as it is
//! away. Pure machines in counted bytes and slots; packets and FIFOs stay in `channel`.

mod access;
mod agent;
mod controller;
mod model;
mod plan;
mod rle;
mod waveform;

pub(crate) use access::{Access, Note, Slot};
pub(crate) use controller::{Contract, Sharing};
pub(crate) use model::AccessModel;
pub(crate) use rle::Rle;
pub(crate) use waveform::WaveformSet;

#[cfg(test)]
mod tests;
