//! The real engine, tunnel and relay logic over the link model, in virtual time.

mod apps;
mod beside;
mod bulk;
mod ends;
mod flood;
mod memory;
mod outage;
mod satellite;
mod world;
