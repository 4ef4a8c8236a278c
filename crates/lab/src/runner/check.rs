//! A link without a contender: does a datagram find the delay that the model promises?

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::Kit;
use super::bounds::Watch;
use super::single::{link, since_1970};
use crate::experiment::NamedScenario;
use crate::results::LinkCheck;
use bentpipe_emulator::Live;
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{GATEWAY_SAT, TERMINAL_SAT, Topology, TopologyConfig};

const PROBES: u32 = 15;
const INTERVAL: Duration = Duration::from_millis(100);
/// Longer than any link here takes, access by request included.
const PATIENCE: Duration = Duration::from_secs(4);
const PORT: u16 = 7;

/// Sends datagrams from the terminal to the gateway and back, apart from each other.
pub(super) fn check(kit: &Kit, named: &NamedScenario, stop: &Stop) -> Result<LinkCheck> {
    let began = since_1970();
    let live = Live::default();
    let topology = Topology::build(&TopologyConfig {
        link: link(named, named.scenario.general.seed, live.clone()),
        prefix: kit.prefix.clone(),
        hosts: 0,
    })?;
    let watch = Watch::start(live)?;
    let bind = |address| -> Result<UdpSocket> {
        let socket = UdpSocket::bind((address, PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    };
    let near = topology.terminal().enter(|| bind(TERMINAL_SAT))??;
    let far = topology.gateway().enter(|| bind(GATEWAY_SAT))??;
    let echo = thread::spawn(move || {
        let mut buffer = [0; 64];
        // Ends when nothing has come for longer than anything is waited for.
        while let Ok((length, from)) = far.recv_from(&mut buffer) {
            let _ = far.send_to(&buffer[..length], from);
        }
    });
    let times = exchange(&near, stop);
    let best = watch.finish().best;
    drop(near);
    // A panic has been printed by its own thread.
    let _ = echo.join();
    let stats = topology.finish()?;
    stats.files_are_whole()?;
    let mut times = times?;
    times.sort_unstable();
    let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let expected = best.context("the link showed no state")?.rtt();
    Ok(LinkCheck {
        began,
        expected_rtt_ms: millis(expected),
        rtt_ms: times.get(times.len() / 2).copied().map(millis),
        answered: [u32::try_from(times.len()).unwrap_or(PROBES), PROBES],
        verdict: stats.verdict.to_string(),
    })
}

fn exchange(near: &UdpSocket, stop: &Stop) -> Result<Vec<Duration>> {
    let start = Instant::now();
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            for number in 0..PROBES {
                // Its number and when it left, in nanoseconds since the start.
                let sent = u64::try_from(start.elapsed().as_nanos())?;
                let _ = near.send_to(
                    &[&number.to_be_bytes()[..], &sent.to_be_bytes()].concat(),
                    (GATEWAY_SAT, PORT),
                );
                stop.sleep(INTERVAL)?;
            }
            Ok(())
        });
        let mut times = Vec::new();
        let mut buffer = [0; 64];
        while times.len() < PROBES as usize
            && let Ok(12) = near.recv(&mut buffer)
        {
            let mut sent = [0; 8];
            sent.copy_from_slice(&buffer[4..12]);
            let sent = Duration::from_nanos(u64::from_be_bytes(sent));
            times.push(start.elapsed().saturating_sub(sent));
        }
        sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(times)
    })
}
