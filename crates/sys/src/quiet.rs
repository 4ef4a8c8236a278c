//! The server's table `inet bentpipe_server`: keeps the kernel from answering for a killed daemon.
//!
//! Clients keep sending to a server that was killed. Without a socket the kernel answers every datagram
//! with an ICMP error across the satellite link, where nothing but the tunnel is to be seen. The table
//! outlives SIGKILL; the next start replaces it and a clean stop removes it.

use std::fmt::Write as _;
use std::io;

use crate::nft::Table;

/// The table's name.
pub const TABLE: &str = "bentpipe_server";

/// The table in force; dropping it removes it.
#[derive(Debug)]
pub struct Quiet(Table);

impl Quiet {
    /// Drops the kernel's own "port unreachable" about datagrams to these UDP `ports`.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; nothing has changed then.
    pub fn install(ports: &[u16]) -> io::Result<Self> {
        let table = Table::new(TABLE);
        table.replace(&body(ports))?;
        Ok(Self(table))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A table that stays keeps the kernel quiet, and the next start replaces it.
        let _ = self.0.remove();
    }
}

/// The error quotes the datagram: its destination port stands behind 8 bytes of ICMP, the quoted IP
/// header (20 or 40 bytes) and the source port.
fn body(ports: &[u16]) -> String {
    let mut text = String::from(
        "  chain quiet {\n    type filter hook output priority filter; policy accept;\n",
    );
    for port in ports {
        for (icmp, offset) in [("icmp", (8 + 20 + 2) * 8), ("icmpv6", (8 + 40 + 2) * 8)] {
            let _ = writeln!(
                text,
                "    {icmp} type destination-unreachable {icmp} code port-unreachable @th,{offset},16 {port} drop"
            );
        }
    }
    text.push_str("  }\n");
    text
}
