//! The real engine, tunnel and relay logic over the link model, in virtual time.

mod acks;
mod beside;
mod bulk;
mod cold;
mod ends;
mod flood;
mod forger;
mod hostile;
mod inbound;
mod inbound_losses;
mod ledger;
#[allow(dead_code, reason = "the table's own")]
#[path = "../limits/limit.rs"]
mod limit;
mod memory;
mod outage;
mod packets;
mod physics;
mod policed;
mod published;
mod repair;
mod resume;
mod satellite;
mod settings;
mod shared;
#[allow(dead_code, unused_imports, reason = "each target uses its part")]
#[path = "../world/mod.rs"]
mod world;
