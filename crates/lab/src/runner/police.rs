//! A policer of UDP at both ends of the satellite link, as operators put before what they do not know.

use anyhow::{Context as _, Result};
use bentpipe_sys::nft::Table;
use bentpipe_units::BitRate;

use bentpipe_emulator::topology::{LINK_DEVICE, Topology};

/// The policer's table.
const POLICER: &str = "lab_policer";

/// Drops what of UDP exceeds the rate, before it enters the satellite link at either end. The kernel's bucket holds what may
/// pass in a second.
pub(super) fn police(topology: &Topology, rate: BitRate) -> Result<()> {
    let rate = rate.as_u64() / 8;
    let rules = format!(
        "chain police {{\ntype filter hook postrouting priority 0;\n\
         oifname \"{LINK_DEVICE}\" meta l4proto udp limit rate over {rate} bytes/second drop\n}}\n"
    );
    for end in [topology.terminal(), topology.gateway()] {
        end.enter(|| Table::new(POLICER).replace(&rules))?
            .context("cannot police UDP")?;
    }
    Ok(())
}
