//! The device through which packets enter and leave the tunnel: a TUN with its addresses and routes.
//!
//! Not persistent: it goes with the process, however that ends. Who may use it is said by rules elsewhere (`pep`).

use std::fmt::Write as _;
use std::fs;
use std::io;

use ipnet::IpNet;

use crate::command::{run, run_with_input, tool};
use crate::link;
use crate::tun::BulkTun;

/// Name of the device on every machine: rules and routes are made for it before it exists.
pub const NAME: &str = "bentpipe0";

/// A TUN device that is up.
#[derive(Debug)]
pub struct Device(BulkTun);

impl Device {
    /// Makes the device [`NAME`] with this MTU in the calling thread's namespace.
    ///
    /// # Errors
    /// As [`BulkTun::create`]; or `ip` is missing.
    pub fn create(mtu: usize) -> io::Result<Self> {
        Self::named(NAME, mtu)
    }

    /// Makes a device with this name and MTU in the calling thread's namespace.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn named(name: &str, mtu: usize) -> io::Result<Self> {
        let tun = BulkTun::create(name)?;
        let set = |family, key, value| set(name, family, key, value);
        // Nothing but what is carried: no link-local address, and no questions for routers.
        set("ipv6", "addr_gen_mode", "1");
        set("ipv6", "accept_ra", "0");
        // What comes out comes from anywhere, and the routes for it lead elsewhere. Of this and the setting for all
        // devices the higher one counts: 1 asks for the way back through this device, 2 for any.
        let all = fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").unwrap_or_default();
        set(
            "ipv4",
            "rp_filter",
            if all.trim() == "0" { "0" } else { "2" },
        );
        batch(&format!("link set {name} mtu {mtu} up\n"))?;
        Ok(Self(tun))
    }

    /// Queue at which packets are read and written.
    #[must_use]
    pub const fn tun(&self) -> &BulkTun {
        &self.0
    }

    /// The device itself, without what belongs to it.
    #[must_use]
    pub fn into_tun(self) -> BulkTun {
        self.0
    }
}

/// True if the device may have IPv6 addresses and routes.
#[must_use]
pub fn has_ipv6() -> bool {
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6"))
        .is_ok_and(|text| text.trim() == "0")
}

/// True if the device can have a part of this address's family.
fn usable(net: &IpNet) -> bool {
    net.addr().is_ipv4() || has_ipv6()
}

/// Gives the device exactly the addresses `wanted` instead of `present`. What the kernel translates to an address that goes
/// is forgotten with it.
///
/// # Errors
/// The privilege or the device is missing.
pub fn set_addresses(present: &[IpNet], wanted: &[IpNet]) -> io::Result<()> {
    // Where IPv6 is switched off the rest goes on without; whoever watches the device sets it later.
    for address in wanted.iter().filter(|address| usable(address)) {
        link::add_address(NAME, *address)?;
    }
    // Last, for with the last address of a family the kernel takes its routes away.
    for address in present.iter().filter(|address| !wanted.contains(address)) {
        link::delete_address(NAME, *address)?;
    }
    Ok(())
}

/// Leads `addresses` into the device.
///
/// # Errors
/// `ip` or the privilege is missing.
pub fn add_routes(addresses: &[IpNet]) -> io::Result<()> {
    let mut lines = String::new();
    for address in addresses.iter().filter(|address| usable(address)) {
        let _ = writeln!(lines, "route replace {address} dev {NAME}");
    }
    batch(&lines)
}

/// Leads the prefixes `wanted` into the device instead of `present`. What goes elsewhere already stays as it is.
///
/// # Errors
/// This machine has a route of its own to one of them: then nothing has changed. Or `ip` or the privilege is missing.
pub fn set_routes(present: &[IpNet], wanted: &[IpNet]) -> io::Result<()> {
    let mut lines = String::new();
    for prefix in present.iter().filter(|prefix| !wanted.contains(prefix)) {
        let _ = writeln!(lines, "route del {prefix} dev {NAME}");
    }
    let new = |prefix: &&IpNet| !present.contains(prefix) && usable(prefix);
    for prefix in wanted.iter().filter(new) {
        let prefix = prefix.trunc();
        let family = if prefix.addr().is_ipv6() { "-6" } else { "-4" };
        let (exact, device) = (prefix.to_string(), format!("dev {NAME} "));
        let listing = run("ip", &[family, "route", "show", "exact", &exact])?;
        if let Some(other) = listing.lines().find(|line| !line.contains(&device)) {
            let text = format!(
                "this machine has a route of its own to {prefix} (`{}`); remove it, or the prefix from `routes`",
                other.trim()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let _ = writeln!(lines, "route replace {prefix} dev {NAME}");
    }
    batch(&lines)
}

fn batch(lines: &str) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    run_with_input(tool("ip").args(["-batch", "-"]), lines).map(drop)
}

/// A setting that this kernel does not have needs no change.
fn set(name: &str, family: &str, key: &str, value: &str) {
    let _ = fs::write(format!("/proc/sys/net/{family}/conf/{name}/{key}"), value);
}
