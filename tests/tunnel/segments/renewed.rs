//! Keys of LES that are renewed while PEPs hold what was sealed under the old ones.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::peer::{accept, payload, read_to_the_end};
use bentpipe_testbed::transfer::{Transfer, Way};
use socket2::SockRef;

use super::layered_site::{LayeredSite, Role, on_layered_site};
use super::site::{Pep, SOON};
use super::{AGREED, LENGTH};

/// Fails if a PEP has reset a flow, or an end has refused what came.
fn expect_no_harm(les: &LayeredSite) -> Result<()> {
    for pep in Pep::BOTH {
        let reset = les.site.figure(pep, "/reset_total/tunnel")?;
        ensure!(reset == 0, "{reset} flows are reset at {pep:?}");
    }
    let client = &les.status(Role::Client)?["les"];
    let server = &les.status(Role::Server)?["clients"][0]["les"];
    for end in [client, server] {
        let forged = &end["refused_total"]["forged"];
        ensure!(*forged == 0, "{end}");
    }
    Ok(())
}

#[test]
fn what_peps_have_on_their_way_when_keys_are_renewed_arrives() {
    on_layered_site("keys renewed under traffic", LayeredSite::start, |les| {
        let [route, _] = les.site.routes();
        let download = Transfer::start(&route, Way::Download, 10 * LENGTH)?;
        let upload = Transfer::start(&route, Way::Upload, 10 * LENGTH)?;
        download.until(LENGTH / 4, SOON)?;
        upload.until(LENGTH / 4, SOON)?;
        les.renew()?;
        ensure!(les.relayed()? == [2; 2], "{:?} relayed", les.relayed()?);
        download.finish_whole().context("download")?;
        upload.finish_whole().context("upload")?;
        // The server reports once a second.
        thread::sleep(Duration::from_millis(1500));
        expect_no_harm(les)
    });
}

/// Bytes that PEPs hold for a user who does not read, until this long after keys were renewed; and the end that the user then hears.
fn read_late(les: &LayeredSite, pause: Duration) -> Result<(usize, Vec<u8>, std::io::Result<()>)> {
    /// More than both hosts take for a reader who does not read.
    const HELD: usize = 1_000_000;
    let [route, _] = les.site.routes();
    let (listener, address) = route.listen()?;
    let mut user = route.connect(address)?;
    // Else the kernel reads in the user's place.
    SockRef::from(&user).set_recv_buffer_size(64 << 10)?;
    let mut web = accept(&listener, 2 * route.patience + pause)?;
    let writer = thread::spawn(move || {
        web.write_all(&payload(HELD))?;
        web.shutdown(Shutdown::Write)?;
        web.read(&mut [0]).map(drop)
    });
    // Until windows are full.
    thread::sleep(10 * AGREED);
    let relayed = les.relayed()?;
    ensure!(relayed == [1; 2], "{relayed:?} flows are relayed");
    let held = les.site.figure(Pep::Terminal, "/memory_bytes")?;
    ensure!(held > 100_000, "the PEP holds {held} bytes");
    les.renew()?;
    thread::sleep(pause);
    let (heard, end) = read_to_the_end(&mut user);
    drop(user);
    let _ = writer.join().expect("no panic");
    ensure!(payload(HELD).starts_with(&heard), "other bytes came");
    Ok((HELD, heard, end))
}

#[test]
fn what_peps_hold_for_a_slow_reader_arrives_under_the_old_keys() {
    on_layered_site("a slow reader", LayeredSite::start, |les| {
        let (held, heard, end) = read_late(les, Duration::from_secs(1))?;
        end?;
        ensure!(heard.len() == held, "{} of {held} bytes", heard.len());
        expect_no_harm(les)
    });
}
