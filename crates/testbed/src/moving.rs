//! A terminal that moves: its address on the satellite link is another.

use std::net::Ipv4Addr;

use anyhow::Result;
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

/// Gives `terminal` the address `new` on the satellite link and takes `old` away.
pub fn change_address(terminal: &NetNs, old: Ipv4Addr, new: Ipv4Addr) -> Result<()> {
    let lines = format!(
        "addr del {old}/24 dev {LINK_DEVICE}\n\
         addr add {new}/24 dev {LINK_DEVICE} noprefixroute\n\
         route replace 10.20.0.0/24 dev {LINK_DEVICE} src {new}\n\
         route replace default via {GATEWAY_SAT} dev {LINK_DEVICE} src {new}\n"
    );
    let mut command = terminal.command("ip");
    run_with_input(command.args(["-batch", "-"]), &lines)?;
    Ok(())
}
