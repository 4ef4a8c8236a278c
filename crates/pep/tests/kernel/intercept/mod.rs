//! Interception end to end: LAN host, router, uplink. What must be relayed is, what must not leave
//! does not, and nothing of ours stays behind.

mod astray;
mod bridges;
mod connections;
mod draining;
mod foreign;
mod inside;
mod lans;
mod late;
mod net;
mod packets;
mod policy;
mod routed;
mod upkeep;
mod way_back;
