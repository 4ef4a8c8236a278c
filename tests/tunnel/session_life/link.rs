//! What happens to a link in the field: outages, a new port of the terminal's NAT.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{LINK_DEVICE, Topology};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::site::PORT;

/// Drops whatever arrives over the satellite, at both ends: nobody's send fails.
const OUTAGE: &str = "table inet outage {
    chain arriving { type filter hook prerouting priority -400; iifname sat0 drop; }
}";

/// No packet crosses the link for `duration`. Returns when the outage ended.
pub(crate) fn outage(topology: &Topology, duration: Duration) -> Result<Instant> {
    let ends = [topology.terminal(), topology.gateway()];
    for end in ends {
        nft(end, OUTAGE)?;
    }
    thread::sleep(duration);
    for end in ends {
        nft(end, "delete table inet outage")?;
    }
    Ok(Instant::now())
}

/// The terminal's NAT forgets the tunnel's port `old` and gives it `new`; datagrams to the old one are lost.
pub(crate) fn change_port(topology: &Topology, old: u16, new: u16) -> Result<()> {
    ensure!(old != new, "the same port");
    // Without connection tracking, which would hold on to the old port.
    let table = format!(
        "table ip rebind {{
            chain leaving {{ type filter hook postrouting priority 300;
                oifname {LINK_DEVICE} udp dport {PORT} udp sport {old} udp sport set {new};
            }}
            chain arriving {{ type filter hook prerouting priority -300;
                iifname {LINK_DEVICE} udp sport {PORT} udp dport {old} drop;
                iifname {LINK_DEVICE} udp sport {PORT} udp dport {new} udp dport set {old};
            }}
        }}"
    );
    nft(topology.terminal(), &table)
}

fn nft(netns: &NetNs, script: &str) -> Result<()> {
    run_with_input(netns.command("nft").args(["-f", "-"]), script)?;
    Ok(())
}
