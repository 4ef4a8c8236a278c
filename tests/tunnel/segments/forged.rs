//! ICMP errors that strangers forge about a PEP's own datagrams: no PEP ends by one.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::{GATEWAY_SAT6, LINK_DEVICE, TERMINAL_SAT6};
use bentpipe_testbed::forged::{Overhearing, forge_errors};
use bentpipe_testbed::site::near;
use bentpipe_testbed::transfer::{Transfer, Way};

use super::site::{PORT, Pep, PepSite, on_site};
use super::{CLEAR, LENGTH};

fn goes_on(site: &mut PepSite) -> Result<()> {
    let overhear = |pep| Overhearing::start(site.place(pep), LINK_DEVICE);
    let (at_gateway, at_terminal) = (overhear(Pep::Gateway)?, overhear(Pep::Terminal)?);
    for pep in Pep::BOTH {
        site.run(pep)?;
    }
    site.until_joined()?;
    let ends = at_gateway.datagram(PORT)?;
    let [own, other] = ends.map(|end| end.port());
    // The socket of a PEP that connects is one for both families.
    let ends6 = [
        SocketAddr::new(TERMINAL_SAT6.into(), own),
        SocketAddr::new(GATEWAY_SAT6.into(), other),
    ];
    for ends in [ends, ends6, at_terminal.datagram(PORT)?] {
        forge_errors(site.topology.web(), ends)?;
    }
    // A PEP that has ended answers nobody.
    for pep in Pep::BOTH {
        let state = site.status(pep);
        state.with_context(|| format!("the PEP at the {} has ended", pep.name()))?;
    }
    let [route, _] = site.routes();
    Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
    site.until_joined()
}

#[test]
fn no_forged_icmp_error_ends_a_pep() {
    on_site(
        "segments: forged ICMP errors",
        || PepSite::plain(near(), CLEAR),
        goes_on,
    );
}
