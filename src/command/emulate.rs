//! `bentpipe emulate`: the link emulator, between namespaces that exist, in a topology of its own, or between interfaces
//! of this machine; its self-test and its plots.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use bentpipe_emulator::Stop;
use bentpipe_emulator::machine::{Standing, Tool, prepare, require_places, require_root};
use bentpipe_emulator::selftest::{self, NoSuchRow, Selection};
use bentpipe_emulator::topology::{LINK_DEVICE, Topology, TopologyConfig, unique_prefix};
use bentpipe_emulator::uplink::Uplink;
use bentpipe_emulator::{
    Emulator, EmulatorConfig, EmulatorStats, Live, Outputs, keep_memory, status, try_out,
};
use bentpipe_emulator::{plot, scenario};
use bentpipe_lab::workload::corpus;
use tracing::{info, warn};

use crate::cli::{Emulate, Namespaces};
use crate::exit::Failure;

/// Does what was asked.
pub(crate) fn run(options: &Emulate) -> Result<(), Failure> {
    if options.presets {
        return super::print(&scenario::presets());
    }
    if options.selftest {
        return certify(Selection {
            quick: options.quick,
            only: options.only.clone(),
        });
    }
    if let (Some(probes), Some(page)) = (&options.from, &options.outputs.plot) {
        return Ok(plot::draw(probes, page, None)?);
    }
    // clap has seen to it that there is one.
    let name = options.scenario.as_deref().unwrap_or_default();
    let (scenario, files) = scenario::load(name)?;
    let drawing = Drawing::prepare(options)?;
    if let Some(page) = &options.outputs.plot {
        try_out(page)?;
    }
    let config = EmulatorConfig {
        scenario,
        files,
        outputs: Outputs {
            probes: drawing.probes.clone(),
            packet_log: options.outputs.packet_log.clone(),
            pcap: options.outputs.pcap.clone(),
        },
        live: Live::default(),
    };
    config.outputs.try_out()?;
    let stats = emulate(options, config)?;
    // The report first: what follows may fail for want of a disk's room.
    info!("{}", stats.verdict);
    super::print(&stats.to_json().to_string())?;
    stats.files_are_whole()?;
    if let Some(page) = &options.outputs.plot
        && let Some(probes) = &drawing.probes
    {
        plot::draw(probes, page, Some(&stats))?;
    }
    Ok(())
}

/// Emulates until a signal.
fn emulate(options: &Emulate, config: EmulatorConfig) -> Result<EmulatorStats, Failure> {
    let name = config.scenario.general.name.clone();
    let (mut emulator, place, namespaces) = if let Some(Namespaces(namespaces)) = &options.join {
        require_root(&[Tool::Ip])?;
        require_places(namespaces, &[])?;
        let emulator = Emulator::join_named(&config, namespaces, LINK_DEVICE)?;
        (
            emulator,
            format!("{LINK_DEVICE} in {}", namespaces.join(" and ")),
            namespaces.clone(),
        )
    } else if let Some((terminal, gateway)) = &options.interfaces {
        require_root(&[])?;
        require_places(&[], &[terminal, gateway])?;
        let emulator = Emulator::between_interfaces(&config, terminal, gateway)?;
        (
            emulator,
            format!("{terminal} (terminal) and {gateway} (gateway)"),
            Vec::new(),
        )
    } else {
        return in_topology(options, config);
    };
    let stop = start(options, &config)?;
    ready(&name, &place, &namespaces, None)?;
    Ok(emulator.run(stop.as_fd())?)
}

fn in_topology(options: &Emulate, config: EmulatorConfig) -> Result<EmulatorStats, Failure> {
    // Before the first thread: see there.
    let standing = match &options.uplink {
        None => prepare(&[Tool::Ip])?,
        // A user namespace has no power over this machine's interfaces.
        Some(interface) => {
            require_root(&[Tool::Ip, Tool::Nft])?;
            require_places(&[], &[interface])?;
            Standing::Root
        }
    };
    let stop = start(options, &config)?;
    let name = config.scenario.general.name.clone();
    let network = config.scenario.network;
    let topology = Topology::build(&TopologyConfig {
        link: config,
        prefix: options.prefix.clone().unwrap_or_else(unique_prefix),
        hosts: corpus::HOSTS,
    })?;
    let interface = options.uplink.as_deref();
    let open = |interface| Uplink::open(interface, &topology, &network, |line| warn!("{line}"));
    let uplink = interface.map(open).transpose()?;
    // Without a standard error there is nobody to tell.
    let _ = write!(io::stderr(), "{}", topology.doors(standing));
    let namespaces = topology.namespaces();
    let names: Vec<_> = namespaces.iter().map(|one| one.name().to_owned()).collect();
    ready(&name, &names.join(", "), &names, interface)?;
    stop.forever();
    drop(uplink);
    Ok(topology.finish()?)
}

/// The switch that ends the run, and what goes on beside it.
fn start(options: &Emulate, config: &EmulatorConfig) -> Result<Stop, Failure> {
    if !keep_memory() {
        warn!("memory is not locked (CAP_IPC_LOCK is missing): a busy machine may delay packets");
    }
    let stop = Stop::on_signals()?;
    if let Some(duration) = options.duration {
        stop.after(duration.get())?;
    }
    status::show(config.live.clone(), stop.clone())?;
    Ok(stop)
}

/// Directory for probes, if they are wanted for themselves or for a plot.
struct Drawing {
    probes: Option<PathBuf>,
    _scratch: Option<plot::Scratch>,
}

impl Drawing {
    fn prepare(options: &Emulate) -> Result<Self, Failure> {
        let outputs = &options.outputs;
        if outputs.probes.is_some() || outputs.plot.is_none() {
            return Ok(Self {
                probes: outputs.probes.clone(),
                _scratch: None,
            });
        }
        let scratch = plot::Scratch::new()?;
        Ok(Self {
            probes: Some(scratch.probes()),
            _scratch: Some(scratch),
        })
    }
}

/// Prints the self-test's table.
fn certify(selection: Selection) -> Result<(), Failure> {
    // Before the first thread: see there.
    prepare(&[Tool::Ip])?;
    let stop = Stop::on_signals()?;
    let mut is_read = true;
    let mut say = |line: &str| {
        is_read = super::deliver(line).map_err(|failure| anyhow::anyhow!("{failure}"))?;
        anyhow::ensure!(is_read, "nobody reads the table");
        Ok(())
    };
    match selftest::run(&selection, &stop, &mut say) {
        Err(_) if !is_read => Ok(()),
        Err(fault) if fault.is::<NoSuchRow>() => Err(Failure::Usage(fault.to_string())),
        done => Ok(done.map(drop)?),
    }
}

/// Says so to who reads the log, and by a line of JSON to a program that reads the output.
fn ready(
    scenario: &str,
    place: &str,
    namespaces: &[String],
    uplink: Option<&str>,
) -> Result<(), Failure> {
    info!("ready: {scenario}: {place}");
    let mut line = serde_json::json!({
        "state": "ready",
        "scenario": scenario,
        "namespaces": namespaces,
    });
    if let Some(interface) = uplink {
        info!("hosts of the LAN reach this machine's network by {interface}");
        line["uplink"] = interface.into();
    }
    super::print(&line.to_string())
}
