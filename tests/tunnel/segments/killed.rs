//! PEPs with keys of LES that are killed in use and started again.

use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::layered_site::{LayeredSite, on_layered_site};
use super::site::Pep;
use super::{NOTICED, expect_both_reset, go_on_and_relay, transfers, until_whole};
use crate::talk::talk;

/// One PEP is killed in the middle of transfers, and started again.
fn killed_with_keys(les: &mut LayeredSite, pep: Pep) -> Result<()> {
    let [route, _] = les.site.routes();
    let under_way = transfers([&route, &route])?;
    ensure!(les.relayed()? == [2; 2], "{:?} relayed", les.relayed()?);
    les.site.kill(pep)?;
    // What begins before the other PEP notices is offered to the dead one, and reset afterwards.
    thread::sleep(NOTICED);
    until_whole(&route).with_context(|| format!("a transfer while {pep:?} is dead"))?;
    let mut between = talk(&route)?;
    les.site.run(pep)?;
    les.site.until_joined()?;
    les.until_keyed()?;
    expect_both_reset(under_way)?;
    go_on_and_relay(&route, &mut between, || les.relayed())
}

#[test]
fn a_pep_with_keys_that_connects_and_is_killed_cuts_nothing_short() {
    on_layered_site("a killed PEP with keys", LayeredSite::start, |les| {
        killed_with_keys(les, Pep::Terminal)
    });
}

#[test]
fn a_pep_with_keys_that_listens_and_is_killed_cuts_nothing_short() {
    let name = "a killed PEP with keys at the gateway";
    on_layered_site(name, LayeredSite::start, |les| {
        killed_with_keys(les, Pep::Gateway)
    });
}
