//! LES between the hosts, whose headers both PEPs may read: what they relay arrives whole, and they never see what is said.

use std::fs;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::LINK_DEVICE;
use bentpipe_lab::capture::{Capture, ExpectedPackets, Tunnel};
use bentpipe_lab::workload::MARKER;
use bentpipe_testbed::memory::{holds, memory};
use bentpipe_testbed::peer::{read_exactly, read_to_reset};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::layered_site::{KEYS, LayeredSite, PACKETS, Role, TUNNEL, on_layered_site};
use super::site::{PORT, Pep, SOON};
use super::{LENGTH, both_whole_or_reset, reset, transfers};
use crate::talk::{half_close, talk};

/// Words that no PEP may see.
const CANARY: &[u8] = b"5e1f-in-no-memory-of-a-pep-b04c7a";

/// Packets of LES on any hop: the hosts', those between the PEPs, keys of headers.
pub(super) fn of_les() -> ExpectedPackets {
    ExpectedPackets {
        idle: [PORT, TUNNEL, KEYS].map(|port| Some(Tunnel::Udp(port))),
        ..PACKETS.into()
    }
}

/// Fails if a file of a PEP's directory holds the canary.
fn expect_no_canary_in_files(les: &LayeredSite, pep: Pep) -> Result<()> {
    let mut directories = vec![les.site.home(pep)];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                files += 1;
                let path = entry.path();
                ensure!(!holds(&fs::read(&path)?, CANARY), "{}", path.display());
            }
        }
    }
    ensure!(files > 1, "{pep:?} has {files} files");
    Ok(())
}

#[test]
fn peps_relay_what_they_cannot_read() {
    on_layered_site("what PEPs cannot read", LayeredSite::start, |les| {
        let [route, _] = les.site.routes();
        let download = Transfer::start(&route, Way::Download, LENGTH)?;
        download.finish_whole()?;
        Transfer::start(&route, Way::Upload, LENGTH)?.finish_whole()?;
        half_close(&route)?;
        reset(&route)?;
        let topology = &les.site.topology;
        let watched = [
            (topology.terminal(), "lan0"),
            (topology.terminal(), LINK_DEVICE),
            (topology.gateway(), LINK_DEVICE),
            (topology.gateway(), "wan0"),
        ];
        let captures = watched.map(|(place, device)| Capture::start(place, device, of_les()));
        let mut words = talk(&route)?;
        let said = [CANARY, MARKER].concat();
        for _ in 0..64 {
            words.write_all(&said)?;
            ensure!(read_exactly(&mut words, said.len())? == said);
        }
        let relayed = les.relayed()?;
        ensure!(relayed == [6; 2], "{relayed:?} flows were relayed");
        for pep in Pep::BOTH {
            let pid = les.site.pid(pep).expect("both run");
            ensure!(!holds(&memory(pid)?, CANARY), "{pep:?} holds what was said");
            expect_no_canary_in_files(les, pep)?;
        }
        ensure!(!holds(les.site.logs().as_bytes(), CANARY), "in a log");
        for capture in captures {
            let crossed = capture?.stop()?;
            let (clear, readable) = (crossed.clear_packets, crossed.marker_packets);
            ensure!((clear, readable) == (0, 0), "crossed: {crossed}");
            let own = crossed.tunnel_packets + crossed.idle_packets;
            ensure!(own > 64, "the capture saw {own} packets");
        }
        // The search finds what is there.
        ensure!(holds(&memory(std::process::id())?, CANARY));
        Ok(())
    });
}

#[test]
fn peps_relay_what_a_pre_shared_key_seals_and_status_says_that_it_is_one() {
    let site = || LayeredSite::started("psk");
    on_layered_site("a pre-shared key", site, |les| {
        let [route, _] = les.site.routes();
        Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
        Transfer::start(&route, Way::Upload, LENGTH)?.finish_whole()?;
        half_close(&route)?;
        ensure!(les.relayed()? == [3; 2], "{:?}", les.relayed()?);
        let client = les.status(Role::Client)?;
        ensure!(client["les"]["laboratory"] == true, "{client}");
        ensure!(client["les"]["stands"] == true, "{client}");
        let server = les.status(Role::Server)?;
        ensure!(
            server.to_string().contains("\"laboratory\":true"),
            "{server}"
        );
        Ok(())
    });
}

#[test]
fn a_client_whose_address_has_changed_between_two_starts_connects() {
    const ADDRESS: &str = "100.96.77.7";
    on_layered_site("another address", LayeredSite::start, |les| {
        les.stop(Role::Client)?;
        les.stop(Role::Server)?;
        les.assign(ADDRESS)?;
        les.run(Role::Server)?;
        les.run(Role::Client)?;
        les.until_keyed()?;
        let [route, _] = les.site.routes();
        Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
        let status = les.status(Role::Client)?;
        let assigned = &status["packets"]["assigned"][0];
        ensure!(*assigned == ADDRESS, "{status:#}");
        let log = les.log(Role::Client);
        ensure!(!log.contains("was put back"), "its own change is no fault");
        ensure!(les.relayed()? == [1; 2], "{:?} relayed", les.relayed());
        Ok(())
    });
}

#[test]
fn a_client_that_takes_its_keys_back_is_passed_untouched() {
    on_layered_site(
        "a client that takes its keys back",
        LayeredSite::start,
        |les| {
            let [route, _] = les.site.routes();
            talk(&route)?;
            ensure!(les.relayed()? == [1; 2]);
            les.revoke()?;
            Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
            ensure!(les.relayed()? == [1; 2], "flows are relayed without keys");
            ensure!(les.site.figure(Pep::Gateway, "/passed_total/no_key")? > 0);
            Ok(())
        },
    );
}

/// Has flows that are relayed lose their PEPs' keys by what `revoke` does: all are reset, and soon.
fn reset_by(
    les: &mut LayeredSite,
    revoke: impl FnOnce(&mut LayeredSite) -> Result<()>,
) -> Result<()> {
    let [route, _] = les.site.routes();
    let mut idle = talk(&route)?;
    let under_way = transfers([&route, &route])?;
    ensure!(les.relayed()? == [3; 2], "they are relayed");
    revoke(les)?;
    let revoked = Instant::now();
    let ends = both_whole_or_reset(under_way)?;
    let heard = read_to_reset(&mut idle)?;
    ensure!(heard.is_empty() && ends == [false; 2], "{ends:?}");
    let waited = revoked.elapsed();
    println!("all flows are reset after {waited:?}");
    ensure!(waited < SOON, "they stood still for {waited:?}");
    Ok(())
}

#[test]
fn flows_of_peps_that_are_all_revoked_at_once_are_reset() {
    on_layered_site("PEPs that are revoked at once", LayeredSite::start, |les| {
        reset_by(les, |les| les.revoke())?;
        let [route, _] = les.site.routes();
        Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
        ensure!(les.relayed()? == [3; 2], "flows are relayed without keys");
        Ok(())
    });
}

/// A PEP that is dead cannot reset what it has relayed, so the other one does, whose keys are taken back and given anew.
fn revoked_alone(dead: Pep) {
    on_layered_site("a dead PEP that is revoked", LayeredSite::start, |les| {
        reset_by(les, |les| {
            les.site.kill(dead)?;
            les.take_off(Some(dead.name()))
        })
    });
}

#[test]
fn flows_of_a_dead_pep_at_the_terminal_that_is_revoked_alone_are_reset() {
    revoked_alone(Pep::Terminal);
}

#[test]
fn flows_of_a_dead_pep_at_the_gateway_that_is_revoked_alone_are_reset() {
    revoked_alone(Pep::Gateway);
}
