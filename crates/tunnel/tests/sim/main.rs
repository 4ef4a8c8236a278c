//! The real engine, tunnel and relay logic over the link model, in virtual time.

mod acks;
mod beside;
mod bulk;
mod cold;
mod ends;
mod flood;
mod forger;
mod hostile;
mod identity;
mod inbound;
mod inbound_losses;
mod ledger;
mod memory;
mod model;
mod outage;
mod packets;
mod physics;
mod policed;
mod published;
mod released;
mod repair;
mod resume;
mod satellite;
mod settings;
mod shared;
mod wire;
