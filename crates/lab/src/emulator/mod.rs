//! The link emulator: `bentpipe_link`'s model on the real clock, between two TUN devices.
//!
//! One thread reads the packets that each side routes into its device, passes them through the model and writes them
//! to the other side when they are due: never before, and how much later is measured. It changes no packet, adds no
//! header, and sets neither addresses nor routes.
//!
//! ```text
//!  gateway netns                     one thread                     terminal netns
//!     sat0  ──read──► handle_packet ─ forward link ─ poll_output ──write──►  sat0
//!     sat0  ◄─write── poll_output ─── return link ─ handle_packet ◄──read──  sat0
//! ```

mod core;
mod lateness;
mod running;

use std::io;
use std::os::fd::BorrowedFd;

use anyhow::{Context as _, Result};
use bentpipe_link::Scenario;
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::tun::Tun;

pub use self::core::{EmulatorStats, PacketDevice, run};
pub use self::lateness::Lateness;
pub use self::running::Running;

impl PacketDevice for Tun {
    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }

    fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        self.write(packet).map(drop)
    }
}

/// An emulated link between two network namespaces. Its devices vanish when it is dropped.
#[derive(Debug)]
pub struct Emulator {
    scenario: Scenario,
    gateway: Tun,
    terminal: Tun,
}

impl Emulator {
    /// Makes the TUN device `device` in each namespace: up, without addresses.
    ///
    /// # Errors
    /// If the scenario contradicts itself, privileges are missing, or the device exists.
    pub fn join(
        scenario: &Scenario,
        terminal_netns: &NetNs,
        gateway_netns: &NetNs,
        device: &str,
    ) -> Result<Self> {
        // Told now, and not after the devices have been made.
        scenario.link_config().context("scenario")?;
        let terminal = make_device(terminal_netns, device).context("terminal side of the link")?;
        let gateway = make_device(gateway_netns, device).context("gateway side of the link")?;
        Ok(Self {
            scenario: scenario.clone(),
            gateway,
            terminal,
        })
    }

    /// [`Emulator::join`] for namespaces that others have made, by name or path.
    ///
    /// # Errors
    /// There is no such namespace, and as for `join`.
    pub fn join_named(
        scenario: &Scenario,
        terminal_netns: &str,
        gateway_netns: &str,
        device: &str,
    ) -> Result<Self> {
        let terminal = NetNs::open(terminal_netns)?;
        let gateway = NetNs::open(gateway_netns)?;
        Self::join(scenario, &terminal, &gateway, device)
    }

    /// Carries packets until `stop` is readable (a [`crate::Stop`], or any other descriptor). Blocks the thread.
    ///
    /// # Errors
    /// If a device can no longer be read.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<EmulatorStats> {
        let link = self.scenario.link_config().context("scenario")?;
        run(
            &link,
            self.scenario.general.seed,
            &self.gateway,
            &self.terminal,
            stop,
        )
    }

    /// Carries packets on a thread of its own.
    ///
    /// # Errors
    /// No thread or descriptor is left.
    pub fn spawn(self) -> Result<Running> {
        Running::start(self)
    }
}

fn make_device(netns: &NetNs, device: &str) -> Result<Tun> {
    let tun = netns.enter(|| Tun::create(device))??;
    let set =
        |settings: &[&str]| netns.run("ip", &[&["link", "set", "dev", device], settings].concat());
    // No IPv6 link-local address, so no router solicitations or duplicate detection cross the link by themselves. The
    // kernel's queue must never be the one that drops: that is the model's work.
    set(&["addrgenmode", "none", "txqueuelen", "10000"])?;
    // Apart: in one command the device would be up, and have its address, before the mode is changed.
    set(&["up"])?;
    Ok(tun)
}
