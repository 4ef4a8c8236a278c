//! `bentpipe emulate`: the link emulator, between namespaces that exist or in a topology of its own.

use std::os::fd::AsFd;

use bentpipe_lab::Stop;
use bentpipe_lab::emulator::Emulator;
use bentpipe_lab::machine::{Tool, prepare, require_root};
use bentpipe_lab::scenario;
use bentpipe_lab::topology::{LINK_DEVICE, Topology, TopologyConfig, unique_prefix};
use bentpipe_lab::workload::PAGE_HOSTS;
use tracing::info;

use crate::cli::Emulate;
use crate::exit::Failure;

/// Emulates until a signal.
pub(crate) fn run(options: &Emulate) -> Result<(), Failure> {
    let scenario = scenario::load(&options.scenario)?;
    let name = scenario.general.name.clone();
    let stats = if let Some((terminal, gateway)) = &options.join {
        require_root(&[Tool::Ip])?;
        let stop = Stop::on_signals()?;
        let mut emulator = Emulator::join_named(&scenario, terminal, gateway, LINK_DEVICE)?;
        ready(&format!(
            "{name}: {LINK_DEVICE} in {terminal} and {gateway}"
        ))?;
        emulator.run(stop.as_fd())?
    } else {
        // Before the first thread: see there.
        let standing = prepare(&[Tool::Ip])?;
        let stop = Stop::on_signals()?;
        let topology = Topology::build(&TopologyConfig {
            scenario,
            prefix: unique_prefix(),
            hosts: PAGE_HOSTS,
        })?;
        super::print(&topology.doors(standing))?;
        ready(&format!("{name}: user, terminal, gateway, web"))?;
        stop.forever();
        topology.finish()?
    };
    super::print(&stats.to_json())
}

/// To whoever reads the output, and to whoever reads the log, as the daemons do.
fn ready(what: &str) -> Result<(), Failure> {
    info!("ready: {what}");
    super::print(&format!("ready: {what}"))
}
