//! TCP through two PEPs is TCP: the cases of plain TCP, in clear and by LES, whose headers the PEPs may read.

use anyhow::{Result, ensure};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Route;
use bentpipe_testbed::site::fast_geo;

use super::CLEAR;
use super::layered_site::{LayeredSite, Role};
use super::site::{Pep, PepSite};
use crate::fidelity::{LOSS, Outcome, all_cases, judge, together};

/// Connections of both routes that the cases hold for longer than two PEPs need to agree: the thousand, and what fills the link.
const RELAYED: u64 = 2 * (1000 + 3);

/// Tables of PEPs that have room for all connections at once.
const LIMITS: &str = "[limits]\nflow_memory = \"256 KiB\"\n";

fn every_case(routes: &[Route]) -> Vec<Outcome> {
    let mut outcomes = all_cases(routes);
    outcomes.extend(together(routes, LOSS));
    outcomes
}

/// Fails unless the PEPs have relayed what they can, and have reset nothing on their own account.
fn expect_relayed(site: &PepSite) -> Result<()> {
    for pep in Pep::BOTH {
        let relayed = site.figure(pep, "/relayed_total")?;
        println!("{relayed} flows relayed at {pep:?}");
        ensure!(relayed >= RELAYED, "{relayed} flows relayed at {pep:?}");
        for cause in ["tunnel", "fault", "silent", "idle", "earlier"] {
            let reset = site.figure(pep, &format!("/reset_total/{cause}"))?;
            ensure!(reset == 0, "{reset} flows are reset at {pep:?}: {cause}");
        }
    }
    Ok(())
}

#[test]
fn peps_in_clear_pass_every_case() {
    if !privileged("fidelity of PEPs") {
        return;
    }
    let tables = format!("{CLEAR}{LIMITS}");
    let site = PepSite::start(fast_geo(), &tables).expect("a site");
    judge(&every_case(&site.routes()), &site.logs());
    expect_relayed(&site).expect("relayed");
}

#[test]
fn peps_that_relay_les_pass_every_case() {
    if !privileged("fidelity of PEPs and LES") {
        return;
    }
    let les = LayeredSite::over(fast_geo(), "short", LIMITS).expect("a site");
    judge(&every_case(&les.site.routes()), &les.logs());
    expect_relayed(&les.site).expect("relayed");
    let client = les.status(Role::Client).expect("a status");
    assert_eq!(client["flows"]["opened_total"], 0, "{client}");
}
