//! The real engine, tunnel and relay logic over the link model, in virtual time.

mod acks;
mod beside;
mod bulk;
mod ends;
mod flood;
mod memory;
mod outage;
mod published;
mod satellite;
mod settings;
mod shared;
#[allow(dead_code, unused_imports, reason = "each target uses its part")]
#[path = "../world/mod.rs"]
mod world;
