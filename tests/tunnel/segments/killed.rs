//! PEPs with keys of LES that are killed in use and started again.

use std::thread;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::layered_site::{LayeredSite, on_layered_site};
use super::site::{Pep, SOON};
use super::{LENGTH, NOTICED, whole_or_reset};
use crate::talk::{exchange, half_close, talk};

/// One PEP is killed in the middle of transfers, and started again.
fn killed_with_keys(les: &mut LayeredSite, pep: Pep) -> Result<()> {
    let [route, _] = les.site.routes();
    let download = Transfer::start(&route, Way::Download, 10 * LENGTH)?;
    let upload = Transfer::start(&route, Way::Upload, 10 * LENGTH)?;
    download.until(LENGTH / 4, SOON)?;
    upload.until(LENGTH / 4, SOON)?;
    ensure!(les.relayed()? == [2; 2], "{:?} relayed", les.relayed()?);
    les.site.kill(pep)?;
    // What begins before the other PEP notices is offered to the dead one, and reset afterwards.
    thread::sleep(NOTICED);
    Transfer::start(&route, Way::Download, LENGTH / 10)?
        .finish_whole()
        .with_context(|| format!("a transfer while {pep:?} is dead"))?;
    let mut between = talk(&route)?;
    les.site.run(pep)?;
    les.site.until_joined()?;
    les.until_keyed()?;
    let ends = [
        whole_or_reset("download", download)?,
        whole_or_reset("upload", upload)?,
    ];
    ensure!(
        ends == [false; 2],
        "what was acknowledged is lost: {ends:?}"
    );
    // What began without the PEP goes on.
    exchange(&mut between)?;
    let before = les.relayed()?;
    half_close(&route)?;
    let after = les.relayed()?;
    let more = before.iter().zip(&after).all(|(one, other)| one < other);
    ensure!(more, "{before:?} were relayed, and {after:?} after it");
    exchange(&mut between)
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
