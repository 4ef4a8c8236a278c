//! CPU time per packet, beside a forwarder that does nothing but read from one TUN device and write to the other.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::schedule::go_first;
use bentpipe_sys::tun::Tun;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

use super::Measured;
use super::traffic::{Load, count, send_paced};
use super::wire::{Wire, address, namespaces, sockets};
use crate::Stop;
use crate::selftest::model::constant;
use crate::selftest::row::Row;

const BYTES: usize = 1428;

/// Mbit/s.
pub(super) fn rates(quick: bool) -> Vec<u64> {
    if quick {
        vec![10, 100]
    } else {
        vec![10, 50, 100, 250]
    }
}

pub(super) fn measure(megabits: u64, quick: bool) -> Result<Measured> {
    let time = Duration::from_secs(if quick { 2 } else { 5 });
    let rate = megabits as f64 * 1e6;
    // Faster than what is sent: nothing may be dropped here.
    let wire = Wire::start(&constant(
        &format!("{} Mbit/s", megabits * 2),
        "25 ms",
        "[queue]\npackets = 10000\n",
    ))?;
    load(&wire.terminal, &wire.gateway, rate, time)?;
    let stats = wire.finish()?;
    let own = stats.emulator.cpu_us_per_packet;
    let bare = forwarder(rate, time)?;
    let share = own * (rate / (BYTES as f64 * 8.0)) / 1e6 * 100.0;
    let figure = format!("{own:.1} µs, bare {bare:.1} µs");
    let case = format!("CPU per packet of {BYTES} B at {megabits} Mbit/s");
    let expected = format!("less than a core ({share:.0} %)");
    Ok(Measured {
        rows: vec![Row::new("CPU", case, figure, expected, share < 100.0)],
        stats: vec![stats],
        unfit: None,
    })
}

/// Sends through the link for `time`, forward.
fn load(terminal: &NetNs, gateway: &NetNs, rate: f64, time: Duration) -> Result<()> {
    let (from, to) = sockets(terminal, gateway)?;
    let load = Load {
        rate,
        bytes: BYTES,
        time,
        head: Duration::ZERO,
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let counter = scope.spawn(|| count(&to, &done));
        let sent = send_paced(&from, Instant::now(), load);
        done.store(true, Ordering::Relaxed);
        let arrived = counter
            .join()
            .map_err(|_| anyhow::anyhow!("the sink panicked"))??;
        let sent = sent?;
        ensure!(
            arrived.packets == sent.packets,
            "{} of {} packets arrived",
            arrived.packets,
            sent.packets
        );
        Ok(())
    })
}

/// CPU time per packet of the bare forwarder, in microseconds.
fn forwarder(rate: f64, time: Duration) -> Result<f64> {
    let (terminal, gateway) = namespaces()?;
    let make = |namespace: &NetNs| -> Result<Tun> {
        let tun = namespace.enter(|| Tun::create("sat0"))??;
        namespace.run(
            "ip",
            &[
                "link",
                "set",
                "dev",
                "sat0",
                "addrgenmode",
                "none",
                "txqueuelen",
                "10000",
            ],
        )?;
        namespace.run("ip", &["link", "set", "dev", "sat0", "up"])?;
        Ok(tun)
    };
    let devices = [make(&terminal)?, make(&gateway)?];
    address(&terminal, &gateway)?;
    let stop = Stop::new()?;
    thread::scope(|scope| {
        let running = scope.spawn(|| forward(&devices, &stop));
        let loaded = load(&terminal, &gateway, rate, time);
        stop.stop();
        let cost = running
            .join()
            .map_err(|_| anyhow::anyhow!("the forwarder panicked"))?;
        loaded.and(cost)
    })
}

fn forward(devices: &[Tun; 2], stop: &Stop) -> Result<f64> {
    // As the emulator does: what differs is the model.
    let _ = go_first();
    let mut packets = 0u64;
    let mut buffer = vec![0; 65_536];
    loop {
        let mut wanted = [
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::new(&devices[0], PollFlags::IN),
            PollFd::new(&devices[1], PollFlags::IN),
        ];
        poll(&mut wanted, None).context("waiting for packets")?;
        if !wanted[0].revents().is_empty() {
            break;
        }
        for (from, to) in [(&devices[0], &devices[1]), (&devices[1], &devices[0])] {
            loop {
                match from.read(&mut buffer) {
                    Ok(length) => {
                        to.write(&buffer[..length])?;
                        packets += 1;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("bare forwarder"),
                }
            }
        }
    }
    let cpu = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    Ok(cpu.as_secs_f64() * 1e6 / packets.max(1) as f64)
}
