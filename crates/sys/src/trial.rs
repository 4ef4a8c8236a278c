//! Trials of what this kernel and these tools can do for bentpipe; nothing in the kernel changes by them.
//!
//! `nft --check` has the kernel look at every expression of a table and then forget it. A transaction of which one message
//! must fail is forgotten likewise.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use crate::command::{run_with_input, tool};
use crate::forwarding;
use crate::intercept::{self, Gate, Interception, Other, Rule};
use crate::nft::Table;
use crate::socket::transparent_listener;

/// Name of the tables that are tried: none of ours in force is touched, not even by a trial.
const TABLE: &str = "bentpipe_trial";

/// Tries a client's table with everything that a configuration can ask for.
///
/// # Errors
/// `nft` or the privilege is missing, or kernel or `nft` do not know an expression; the text says which.
pub fn client_table() -> io::Result<()> {
    let it = Interception {
        interfaces: vec!["lan0".into()],
        other: Other::Tunnel,
        dns_port: Some(4453),
        published: vec![(5060, SocketAddr::from(([192, 0, 2, 1], 5060)))],
        gates: vec![Gate {
            ports: vec![25],
            destinations: Vec::new(),
            shut: true,
        }],
        rules: vec![Rule {
            learned: true,
            protocols: vec![17],
            ports: vec![443],
            dscp: vec![46],
            ..Rule::for_all(intercept::Action::Block)
        }],
        ..Interception::new(4480)
    };
    check(&it.ruleset(&[]))
}

/// Tries a server's table that forwards.
///
/// # Errors
/// As [`client_table`].
pub fn server_table() -> io::Result<()> {
    check(&forwarding::trial_body())
}

/// Tries a TPROXY listener, on a port of loopback that the kernel chooses.
///
/// # Errors
/// The privilege is missing, or the kernel has no transparent sockets.
pub fn transparent_socket() -> io::Result<()> {
    transparent_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 0).map(drop)
}

/// Whether this kernel has tables that belong to a process and outlive it (Linux 6.9).
///
/// # Errors
/// The privilege is missing.
pub fn owned_tables() -> io::Result<bool> {
    intercept::owned_tables()
}

fn check(body: &str) -> io::Result<()> {
    let script = Table::new(TABLE).replacement(body);
    run_with_input(tool("nft").args(["--check", "-f", "-"]), &script).map(drop)
}
