//! Firewall: what client and server share of nftables and of the kernel's forwarding. Names of tables, the builder of
//! their text, settings that were changed, and a way through firewalls of others.
//!
//! ```text
//!   client: table, guard ─┐              ┌─► Settings: what the kernel may forward, noted in the table itself
//!                         ├─► firewall ──┤
//!   server: table ────────┘              └─► Passage: rules at the head of chains of others that drop what is forwarded
//! ```
//!
//! This module and its users (client, server, PEP) decide; crate `sys` only writes the decisions to the kernel.

mod leftover;
mod passage;
mod router;
mod ruleset;
mod setting;
mod settings;
#[cfg(test)]
pub(crate) mod snapshot;

pub(crate) use leftover::{tell_of_passages, tell_of_rules, tell_of_table};
pub(crate) use passage::{Passage, close_passages, closed_passages, is_ours, open_passages};
pub(crate) use router::Router;
pub(crate) use ruleset::{Chain, Family, Mark, Set, anonymous};
pub(crate) use setting::{Setting, interfaces, is_shut, is_shut6};
pub(crate) use settings::{Settings, prepare_device};

/// Name of the client's table; fixed, so that the leftover of a killed process is found.
pub(crate) const CLIENT_TABLE: &str = "bentpipe_client";
/// Name of the guard's table.
pub(crate) const GUARD_TABLE: &str = "bentpipe_guard";
/// Name of the server's table.
pub(crate) const SERVER_TABLE: &str = "bentpipe_server";
/// Name of the table of a server that takes in outer connections on their way.
pub(crate) const SLE_TABLE: &str = "bentpipe_sle";
/// Name of a PEP's table.
pub(crate) const PEP_TABLE: &str = "bentpipe_pep";
/// Name of tables that are tried: none of ours in force is touched, not even by a trial.
pub(crate) const TRIAL_TABLE: &str = "bentpipe_trial";
