//! What an accelerator between two hosts could see of flows that are sealed: its memory, and all of its wires.

use std::io::Write as _;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::LINK_DEVICE;
use bentpipe_lab::capture::{Capture, ExpectedPackets, Tunnel};
use bentpipe_lab::workload::MARKER;
use bentpipe_testbed::memory::{holds, memory};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::route::Route;
use bentpipe_testbed::site::{PORT, Site};

use crate::talk::talk;

/// Words that an accelerator may not see.
const CANARY: &[u8] = b"9c07-in-no-memory-of-an-accelerator-e3d8a1";

/// Times that they are said and heard.
const TIMES: usize = 64;

/// Says words over `route`, and fails if they can be read in the memory of either end of the accelerator at `site`, or where its
/// packets pass.
pub(super) fn expect_unseen(site: &Site, route: &Route) -> Result<()> {
    let topology = &site.topology;
    let wires = ExpectedPackets {
        idle: [Some(Tunnel::Udp(PORT)), None, None],
        ..Tunnel::EveryTcp.into()
    };
    let watched = [
        (topology.terminal(), "lan0"),
        (topology.terminal(), LINK_DEVICE),
        (topology.gateway(), "wan0"),
    ];
    let captures = watched.map(|(place, device)| Capture::start(place, device, wires));
    let mut words = talk(route)?;
    let said = [CANARY, MARKER].concat();
    for _ in 0..TIMES {
        words.write_all(&said)?;
        ensure!(read_exactly(&mut words, said.len())? == said);
    }
    for (end, process) in [("client", site.client()), ("server", site.server())] {
        let memory = memory(process.id())?;
        ensure!(!holds(&memory, CANARY), "the {end} holds what was said");
    }
    ensure!(!holds(site.logs().as_bytes(), CANARY), "in a log");
    for capture in captures {
        let crossed = capture?.stop()?;
        let (missed, readable) = (crossed.missed, crossed.marker_packets);
        ensure!((missed, readable) == (0, 0), "crossed: {crossed}");
        let own = crossed.tunnel_packets + crossed.idle_packets;
        ensure!(own > TIMES as u64, "the capture saw {own} packets");
    }
    // The search finds what is there.
    ensure!(holds(&memory(std::process::id())?, CANARY));
    Ok(())
}
