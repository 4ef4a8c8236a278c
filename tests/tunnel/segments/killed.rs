//! PEPs with keys of LES, and a server beside them, that are killed in use and started again.

use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::layered_site::{LayeredSite, Role, on_layered_site};
use super::site::{Pep, SOON};
use super::{
    NOTICED, both_whole_or_reset, expect_both_reset, go_on_and_relay, transfers, until_whole,
};
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

/// PEPs hold payload that only the killed server could open; the client and its PEPs outlive it.
#[test]
#[ignore = "takes more than a minute"]
fn a_server_that_is_killed_leaves_no_connection_of_its_peps_standing() {
    on_layered_site("a killed server beside PEPs", LayeredSite::start, |les| {
        let [route, _] = les.site.routes();
        let mut idle = talk(&route)?;
        let under_way = transfers([&route, &route])?;
        ensure!(les.relayed()? == [3; 2], "{:?} relayed", les.relayed()?);
        les.kill(Role::Server)?;
        thread::sleep(NOTICED);
        les.run(Role::Server)?;
        let began = Instant::now();
        // Payload that PEPs hold is bound to keys that died with the server.
        let ends = both_whole_or_reset(under_way)?;
        let waited = began.elapsed();
        println!("whole: {ends:?}, {waited:?} after the server's start");
        // Until the client misses the server, which it does while nothing is asked of it, and the old keys are over.
        ensure!(waited < 6 * SOON, "they stood still for {waited:?}");
        // Of this one PEPs hold nothing.
        go_on_and_relay(&route, &mut idle, || les.relayed())
    });
}
