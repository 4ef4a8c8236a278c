//! Keys of LES that are renewed while PEPs hold what was sealed under the old ones.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

/// Bytes that are said to a user who does not read: more than both hosts take for him.
const HELD: usize = 1_000_000;

/// A user who does not read, and the thread of the web that says [`HELD`] bytes to him, once keys were renewed.
fn held(les: &LayeredSite, patience: Duration) -> Result<(TcpStream, JoinHandle<io::Result<()>>)> {
    let [route, _] = les.site.routes();
    let (listener, address) = route.listen()?;
    let user = route.connect(address)?;
    // Else the kernel reads in the user's place.
    SockRef::from(&user).set_recv_buffer_size(64 << 10)?;
    let mut web = accept(&listener, 2 * route.patience + patience)?;
    let writer = thread::spawn(move || {
        web.write_all(&payload(HELD))?;
        web.shutdown(Shutdown::Write)?;
        web.read(&mut [0]).map(drop)
    });
    // Until windows are full.
    thread::sleep(3 * AGREED);
    let relayed = les.relayed()?;
    ensure!(relayed == [1; 2], "{relayed:?} flows are relayed");
    let held = les.site.figure(Pep::Terminal, "/memory_bytes")?;
    ensure!(held > 100_000, "the PEP holds {held} bytes");
    les.renew()?;
    Ok((user, writer))
}

#[test]
fn what_peps_hold_for_a_slow_reader_arrives_under_the_old_keys() {
    on_layered_site("a slow reader", LayeredSite::start, |les| {
        let pause = Duration::from_secs(1);
        let (mut user, writer) = held(les, pause)?;
        thread::sleep(pause);
        let (heard, end) = read_to_the_end(&mut user);
        drop(user);
        let _ = writer.join().expect("no panic");
        end?;
        ensure!(heard.len() == HELD, "{} of {HELD} bytes", heard.len());
        ensure!(payload(HELD) == heard, "other bytes came");
        expect_no_harm(les)
    });
}

/// A user need not read on to hear that the payload that the PEP holds for him cannot be opened any more.
#[test]
#[ignore = "takes two and a half minutes"]
fn a_connection_whose_reader_pauses_longer_than_keys_live_is_reset_meanwhile() {
    /// Time that keys live after they were renewed, and that PEPs take to erase them.
    const LIVE: Duration = Duration::from_secs(123);
    /// Time that payload waits for a key that may be behind, and a busy machine.
    const RESET: Duration = Duration::from_secs(15);
    on_layered_site("a reader who pauses", LayeredSite::start, |les| {
        let (mut user, writer) = held(les, LIVE + RESET)?;
        let renewed = Instant::now();
        let reset = || les.site.figure(Pep::Terminal, "/reset_total/tunnel");
        while reset()? == 0 {
            let waited = renewed.elapsed();
            ensure!(waited < LIVE + RESET, "no reset after {waited:?}");
            thread::sleep(Duration::from_millis(500));
        }
        println!("reset {:?} after keys were renewed", renewed.elapsed());
        let said = writer.join().expect("no panic");
        ensure!(said.is_err(), "the web has not heard of it");
        let (heard, end) = read_to_the_end(&mut user);
        ensure!(heard.len() < HELD, "{} of {HELD} bytes", heard.len());
        ensure!(end.is_err(), "{} bytes and a clean end", heard.len());
        Ok(())
    });
}
