//! TCP: the kernel's CUBIC over the GEO link of the CNES measurements.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Measured;
use crate::scenario::preset;
use crate::selftest::row::Row;
use crate::topology::{Topology, TopologyConfig, WEB, unique_prefix};

const PORT: u16 = 7001;
const BYTES: usize = 30_000_000;
/// CUBIC without HyStart, from the CNES measurements; 29.9 s with.
const SECONDS: f64 = 29.4;

pub(super) fn measure() -> Result<Measured> {
    let scenario = preset("geo").context("the preset geo")?;
    let topology = Topology::build(&TopologyConfig {
        link: scenario.into(),
        prefix: format!("{}-self", unique_prefix()),
        hosts: 0,
    })?;
    let listener = topology.web().enter(|| TcpListener::bind((WEB, PORT)))??;
    let seconds = thread::scope(|scope| -> Result<f64> {
        let server = scope.spawn(move || -> Result<()> {
            let (mut socket, _) = listener.accept()?;
            let block = vec![0; 1 << 16];
            let mut left = BYTES;
            while left > 0 {
                let length = left.min(block.len());
                socket.write_all(&block[..length])?;
                left -= length;
            }
            Ok(())
        });
        let start = Instant::now();
        let received = download(&topology)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(received == BYTES, "{received} of {BYTES} bytes arrived");
        server
            .join()
            .map_err(|_| anyhow::anyhow!("the server panicked"))??;
        Ok(seconds)
    })?;
    let range = SECONDS * 0.9..=SECONDS * 1.1;
    let row = Row::within(
        "TCP",
        "30 MB of CUBIC, 10 Mbit/s, 250 ms one way",
        seconds,
        range,
        "s",
        1,
    );
    Ok(Measured {
        rows: vec![row],
        stats: vec![topology.finish()?],
        unfit: None,
    })
}

fn download(topology: &Topology) -> Result<usize> {
    let connect = || TcpStream::connect_timeout(&(WEB, PORT).into(), Duration::from_secs(10));
    let mut socket = topology.user().enter(connect)??;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut block = vec![0; 1 << 16];
    let mut received = 0;
    loop {
        match socket.read(&mut block)? {
            0 => return Ok(received),
            length => received += length,
        }
    }
}
