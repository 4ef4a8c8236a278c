//! ICMP errors that strangers forge about a daemon's own datagrams: no daemon ends by one.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT6, LINK_DEVICE, Process, TERMINAL_SAT6};
use bentpipe_testbed::forged::{Overhearing, forge_errors};
use bentpipe_testbed::site::{PORT, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};

use crate::{BENTPIPE, on_site};

/// Length of a transfer that shows that a tunnel carries, bytes.
const LENGTH: usize = 100_000;

/// Fails if the daemon has ended.
fn lives(daemon: &Process, role: &str) -> Result<()> {
    let ended = daemon.try_wait()?;
    ensure!(ended.is_none(), "the {role} has ended: {ended:?}");
    Ok(())
}

#[test]
fn no_forged_icmp_error_ends_a_client_or_a_server() {
    on_site("forged ICMP errors", SiteConfig::new(BENTPIPE), |site| {
        let overhear = |place| Overhearing::start(place, LINK_DEVICE);
        let at_gateway = overhear(site.topology.gateway())?;
        let at_terminal = overhear(site.topology.terminal())?;
        site.start_server()?;
        site.start_client()?;
        let ends = at_gateway.datagram(PORT)?;
        let [own, server] = ends.map(|end| end.port());
        // The client's socket is one for both families.
        let ends6 = [
            SocketAddr::new(TERMINAL_SAT6.into(), own),
            SocketAddr::new(GATEWAY_SAT6.into(), server),
        ];
        // From elsewhere: the gateway itself is kept from saying that a port is unreachable.
        let stranger = site.topology.web();
        for ends in [ends, ends6, at_terminal.datagram(PORT)?] {
            forge_errors(stranger, ends)?;
        }
        lives(site.client(), "client")?;
        lives(site.server(), "server")?;
        let [route, _] = site.routes();
        Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
        let log = site.client().stderr_text();
        ensure!(!log.contains("cannot receive"), "an error is not known");
        Ok(())
    });
}
