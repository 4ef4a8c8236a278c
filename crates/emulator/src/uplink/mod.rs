//! A way from the emulated LAN to the network that this machine is on: behind the emulated gateway, by one of the machine's
//! interfaces, in IPv4.
//!
//! ```text
//!  user ─ terminal ══ link ══ gateway  uplink0 ─veth─ bp-uplink  machine  INTERFACE ─► real network
//!                             └ NAT: one address         └ NAT: the interface's own; only what the LAN began
//! ```
//!
//! Both ends have a table of nftables, `rules`, which is watched and put back. The machine forwards for the interface while the
//! way is open; where it did not before, it forwards nothing else that comes by it. What a killed process leaves is removed by the
//! next one: `mark` says on the machine's device, and in its table, whose they are and what was before.

mod guard;
mod mark;
mod networks;
mod rules;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use bentpipe_link::Network;
use bentpipe_sys::command::run;
use bentpipe_sys::link;
use bentpipe_sys::nft::Table;
use bentpipe_sys::nftables::{FORWARD, base_chains};

use crate::addresses::Addresses;
use crate::stop::Stop;
use crate::topology::Topology;
use guard::{Guard, Setting};
use mark::Mark;
use networks::Transfer;
use rules::TABLE;

/// The machine's end of the way.
const DEVICE: &str = "bp-uplink";
/// The gateway's end of the way.
const GATEWAY_DEVICE: &str = "uplink0";

/// Receiver of a line that somebody should read.
pub type Say = fn(&str);

/// An open way to the real network; dropping it closes the way and puts the machine's settings back.
#[derive(Debug)]
pub struct Uplink {
    stop: Stop,
    guards: Vec<Guard>,
    mark: Mark,
}

impl Uplink {
    /// Opens the way by `interface` of the calling thread's namespace, the machine's own, behind the gateway of `topology`, whose
    /// addresses are those of `network`. What should be known of it, then and later, is said to `say`.
    ///
    /// # Errors
    /// There is no such interface, another emulation has the way, no addresses are free for it, or a privilege or `nft` is missing.
    /// Nothing is left behind.
    pub fn open(interface: &str, topology: &Topology, network: &Network, say: Say) -> Result<Self> {
        link::index(interface)?;
        if interface == "lo" || interface == DEVICE {
            bail!(
                "`{interface}` leads to no network; `ip route get 1.1.1.1` shows the interface that does"
            );
        }
        remove_leftover()?;
        for line in networks::collisions(network)? {
            say(&line);
        }
        let transfer = Transfer::free()?;
        let mark = Mark::here(interface, forwards(interface)?)?;
        let stop = Stop::new().context("cannot make a switch")?;
        // Who makes the device has the way: what is closed from here on is our own.
        make_device(topology.gateway().name())?;
        let mut uplink = Self {
            stop,
            guards: Vec::new(),
            mark,
        };
        uplink
            .connect(topology, network, transfer, say)
            .with_context(|| format!("cannot open the uplink {interface}"))?;
        for chain in base_chains()?
            .iter()
            .filter(|chain| chain.drops && chain.hook == FORWARD)
        {
            say(&format!(
                "the firewall's chain `{} {} {}` drops what is forwarded; have it accept what comes in by {DEVICE}, and what \
                 goes back",
                chain.family, chain.table, chain.name
            ));
        }
        Ok(uplink)
    }

    /// Makes addresses and routes, then rules, and has the machine forward last.
    fn connect(
        &mut self,
        topology: &Topology,
        network: &Network,
        transfer: Transfer,
        say: Say,
    ) -> Result<()> {
        let gateway = topology.gateway();
        self.mark.put_on(DEVICE)?;
        let Transfer {
            machine,
            gateway: own,
        } = transfer;
        run(
            "ip",
            &["addr", "add", &format!("{machine}/30"), "dev", DEVICE],
        )?;
        run("ip", &["link", "set", DEVICE, "up"])?;
        let addresses = Addresses::new(network, topology.sites().count())?;
        topology.configure(gateway, &networks::routes(&addresses, own, machine))?;
        let interface = self.mark.interface();
        let inside = rules::of_gateway(GATEWAY_DEVICE);
        let outside = rules::of_machine(DEVICE, own, &self.mark);
        let guard = gateway.enter(|| Guard::start(inside, Vec::new(), &self.stop, say))??;
        self.guards.push(guard);
        let settings = [(DEVICE, true), (interface, !self.mark.forwarded())];
        let settings = settings.map(|(interface, is_ours)| Setting {
            file: setting(interface),
            is_ours,
        });
        let settings = settings.into();
        self.guards
            .push(Guard::start(outside, settings, &self.stop, say)?);
        Ok(())
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.stop.stop();
        self.guards.drain(..).for_each(Guard::join);
        // Nobody is left to be told but the next one, who finds and removes what is left.
        let _ = close(&self.mark);
    }
}

/// Makes the way's two devices: one here, one in the namespace `gateway`.
fn make_device(gateway: &str) -> Result<()> {
    let arguments = ["link", "add", DEVICE, "type", "veth", "peer", "name"];
    let other = [GATEWAY_DEVICE, "netns", gateway];
    run("ip", &[&arguments[..], &other[..]].concat())?;
    Ok(())
}

/// Closes what `mark` is about. The device goes last: it says what there is to remove.
fn close(mark: &Mark) -> Result<()> {
    let file = setting(mark.interface());
    // Whoever has turned on forwarding for all meanwhile wants it here as well.
    if !mark.forwarded() && file.exists() && !forwards_all()? {
        fs::write(&file, "0").with_context(|| format!("cannot write {}", file.display()))?;
    }
    Table::new(TABLE).remove()?;
    if link::index(DEVICE).is_ok() {
        run("ip", &["link", "del", DEVICE])?;
    }
    Ok(())
}

/// Removes the way of a process that is gone.
fn remove_leftover() -> Result<()> {
    let mark = match link::index(DEVICE) {
        Ok(_) => Mark::of(DEVICE)?,
        // It goes with the gateway's namespace.
        Err(_) => match Mark::of_table(TABLE) {
            Some(mark) => mark,
            None => return Ok(Table::new(TABLE).remove()?),
        },
    };
    if let Some(process) = mark.owner() {
        bail!(
            "another `bentpipe emulate --uplink`, process {process}, has this machine's uplink; end it first"
        );
    }
    close(&mark).context("cannot remove the uplink that a killed process has left")
}

/// File of the setting by which what comes in by `interface` is forwarded.
fn setting(interface: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"))
}

fn forwards(interface: &str) -> Result<bool> {
    is_on(&setting(interface))
}

fn forwards_all() -> Result<bool> {
    is_on(&PathBuf::from("/proc/sys/net/ipv4/ip_forward"))
}

fn is_on(file: &PathBuf) -> Result<bool> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim() != "0")
}
