//! The link emulator: `bentpipe_link`'s model on the real clock, between TUN devices or interfaces of this machine.
//!
//! One thread reads the packets that each side routes into its device, passes them through the model and writes them
//! to the other side when they are due: never before, and how much later is measured. It changes no packet, adds no
//! header, and sets neither addresses nor routes. Its report says whether the run may be believed.
//!
//! ```text
//!  gateway                          one thread                          terminals
//!     sat0  ──read──► handle_packet ─ forward link ─ poll_output ──write──►  sat0
//!     sat0  ◄─write── poll_output ─── return link ─ handle_packet ◄──read──  sat0
//!                          │                  │
//!                          ▼ Live: status     ▼ record: probes, packet log, capture
//! ```

mod core;
mod device;
mod health;
mod lateness;
mod live;
mod packet;
mod record;
mod report;
mod running;
mod snapshot;
pub mod status;
mod trains;

use std::os::fd::BorrowedFd;

use anyhow::{Context as _, Result, ensure};
use bentpipe_link::{Files, Model, Scenario};
use bentpipe_sys::ethernet::Ethernet;
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::tun::Tun;

pub use self::core::{Course, Outcome, run};
pub use self::device::PacketDevice;
pub use self::health::KernelDrops;
pub(crate) use self::lateness::Histogram;
pub use self::lateness::Lateness;
pub use self::live::Live;
pub use self::record::{Outputs, try_out};
pub use self::report::{EmulatorStats, Health, TOLERABLE_LATENESS, Verdict};
pub use self::running::Running;
pub use self::snapshot::Snapshot;
pub use bentpipe_sys::schedule::keep_memory;

use crate::addresses::Addresses;
use crate::router::Router;

/// Link to emulate, and files to write about it.
#[derive(Debug, Clone)]
pub struct EmulatorConfig {
    /// The link.
    pub scenario: Scenario,
    /// The files that it names.
    pub files: Files,
    /// Files to write.
    pub outputs: Outputs,
    /// Figures that others read while it runs.
    pub live: Live,
}

impl From<Scenario> for EmulatorConfig {
    /// A scenario that names no files, watched by nobody.
    fn from(scenario: Scenario) -> Self {
        Self {
            scenario,
            files: Files::default(),
            outputs: Outputs::default(),
            live: Live::default(),
        }
    }
}

impl EmulatorConfig {
    /// The link's model.
    ///
    /// # Errors
    /// The scenario contradicts itself.
    pub fn model(&self) -> Result<Model> {
        self.scenario.build(&self.files).context("scenario")
    }
}

/// An emulated link. Its devices vanish when it is dropped.
#[derive(Debug)]
pub struct Emulator {
    course: Course,
    scenario: Scenario,
    devices: Devices,
    /// Namespaces in which the kernel's losses are counted, and on which device.
    watched: Vec<(NetNs, Option<String>)>,
}

#[derive(Debug)]
enum Devices {
    Tun {
        gateway: Tun,
        terminals: Vec<Tun>,
    },
    Ethernet {
        gateway: Ethernet,
        terminals: Vec<Ethernet>,
    },
}

impl Emulator {
    /// Makes the TUN device `device` in each namespace: up, without addresses. `router` is asked only if there are
    /// several terminals.
    ///
    /// # Errors
    /// The scenario contradicts itself or has another number of terminals, privileges are missing, or the device exists.
    pub fn join(
        config: &EmulatorConfig,
        terminals: &[&NetNs],
        gateway: &NetNs,
        device: &str,
        router: Router,
    ) -> Result<Self> {
        // Told now, and not after the devices have been made.
        let model = config.model()?;
        let expected = model.terminals().len();
        ensure!(
            terminals.len() == expected,
            "the scenario has {expected} terminals, but {} namespaces of terminals were named",
            terminals.len()
        );
        let make = |namespace: &&NetNs| {
            make_device(namespace, device).context("terminal side of the link")
        };
        let devices = Devices::Tun {
            terminals: terminals.iter().map(make).collect::<Result<_>>()?,
            gateway: make_device(gateway, device).context("gateway side of the link")?,
        };
        let router = if expected == 1 {
            Router::single()
        } else {
            router
        };
        let all = terminals.iter().copied().chain([gateway]);
        let watched = all.map(|namespace| (namespace.clone(), Some(device.to_owned())));
        Ok(Self::new(config, model, router, devices, watched.collect()))
    }

    /// [`Emulator::join`] for namespaces that others have made, by name or path: the terminals', then the gateway's.
    ///
    /// # Errors
    /// There is no such namespace, and as for `join`.
    pub fn join_named(
        config: &EmulatorConfig,
        namespaces: &[String],
        device: &str,
    ) -> Result<Self> {
        let opened = namespaces.iter().map(|name| NetNs::open(name));
        let opened: Vec<_> = opened.collect::<Result<_, _>>()?;
        let (gateway, terminals) = opened.split_last().context("no namespace was named")?;
        let terminals: Vec<_> = terminals.iter().collect();
        let router = Addresses::new(&config.scenario.network, terminals.len())?.router();
        Self::join(config, &terminals, gateway, device, router)
    }

    /// Takes over two Ethernet interfaces of this machine: whole frames cross, whatever is in them.
    ///
    /// # Errors
    /// The scenario contradicts itself or has several terminals, an interface is missing, or privileges are.
    pub fn between_interfaces(
        config: &EmulatorConfig,
        terminal: &str,
        gateway: &str,
    ) -> Result<Self> {
        let model = config.model()?;
        let expected = model.terminals().len();
        ensure!(
            expected == 1,
            "the scenario has {expected} terminals, but an interface is one terminal: remove the others"
        );
        ensure!(
            terminal != gateway,
            "terminal and gateway need two interfaces, not {terminal} twice"
        );
        let devices = Devices::Ethernet {
            terminals: vec![Ethernet::open(terminal)?],
            gateway: Ethernet::open(gateway)?,
        };
        Ok(Self::new(
            config,
            model,
            Router::single(),
            devices,
            Vec::new(),
        ))
    }

    fn new(
        config: &EmulatorConfig,
        model: Model,
        router: Router,
        devices: Devices,
        watched: Vec<(NetNs, Option<String>)>,
    ) -> Self {
        Self {
            course: Course {
                model,
                router,
                period: config.scenario.probes.period.get(),
                outputs: config.outputs.clone(),
                live: config.live.clone(),
            },
            scenario: config.scenario.clone(),
            devices,
            watched,
        }
    }

    /// Counts losses at the receivers in this namespace too.
    pub fn watch(&mut self, namespace: &NetNs) {
        self.watched.push((namespace.clone(), None));
    }

    /// Carries packets until `stop` is readable (a [`crate::Stop`], or any other descriptor). Blocks the thread.
    ///
    /// # Errors
    /// A device can no longer be read, or an output cannot be made.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<EmulatorStats> {
        let before = self.kernel_drops()?;
        let mut outcome = match &self.devices {
            Devices::Tun { gateway, terminals } => run(&self.course, gateway, terminals, stop)?,
            Devices::Ethernet { gateway, terminals } => {
                run(&self.course, gateway, terminals, stop)?
            }
        };
        outcome.health.kernel_drops = self.kernel_drops()?.since(before);
        let probe = outcome.probe;
        let terminals = probe.terminals.iter();
        Ok(EmulatorStats {
            scenario: self.scenario.general.name.clone(),
            seed: self.scenario.general.seed,
            duration: outcome.duration.into(),
            verdict: outcome.health.verdict(),
            forward_link: terminals
                .clone()
                .map(|terminal| terminal.forward_link.counters)
                .sum(),
            return_link: terminals
                .map(|terminal| terminal.return_link.counters)
                .sum(),
            terminals: probe.terminals,
            emulator: outcome.health,
            behind_gateway: None,
            file_fault: outcome.file_fault,
        })
    }

    /// Carries packets on a thread of its own.
    ///
    /// # Errors
    /// No thread or descriptor is left.
    pub fn spawn(self) -> Result<Running> {
        Running::start(self)
    }

    fn kernel_drops(&self) -> Result<KernelDrops> {
        let mut sum = KernelDrops::default();
        for (namespace, device) in &self.watched {
            sum = sum.plus(KernelDrops::now(namespace, device.as_deref())?);
        }
        if let Devices::Ethernet { gateway, terminals } = &self.devices {
            for interface in terminals.iter().chain([gateway]) {
                // The kernel counts from the last question on: the first one, before the run, starts from zero.
                sum.device += u64::from(interface.missed()?);
            }
        }
        Ok(sum)
    }
}

fn make_device(netns: &NetNs, device: &str) -> Result<Tun> {
    let tun = netns.enter(|| Tun::create(device))??;
    // The kernel's queue must never be the one that drops: that is the model's work.
    let queue = ["link", "set", "dev", device, "txqueuelen", "10000"];
    netns.run("ip", &queue)?;
    bring_up(netns, device)?;
    Ok(tun)
}

/// Without an IPv6 link-local address, so no router solicitations or duplicate detection cross the link by themselves.
pub(crate) fn bring_up(netns: &NetNs, device: &str) -> Result<()> {
    let set =
        |settings: &[&str]| netns.run("ip", &[&["link", "set", "dev", device], settings].concat());
    // Apart: in one command the device would be up, and have its address, before the mode is changed.
    set(&["addrgenmode", "none"])?;
    set(&["up"])?;
    Ok(())
}
