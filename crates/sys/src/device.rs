//! The device through which packets enter and leave the tunnel: a TUN with its addresses and routes.
//!
//! Not persistent: it goes with the process, however that ends. Who may use it is said by rules elsewhere
//! ([`crate::intercept`], [`crate::forwarding`]).

use std::fmt::Write as _;
use std::fs;
use std::io;

use ipnet::IpNet;

use crate::command::{run_with_input, tool};
use crate::tun::Tun;

/// Its name on every machine: rules and routes are made for it before it exists.
pub const NAME: &str = "bentpipe0";

/// A TUN device that is up.
#[derive(Debug)]
pub struct Device(Tun);

impl Device {
    /// Makes the device with this MTU in the calling thread's namespace.
    ///
    /// # Errors
    /// As [`Tun::create`]; or `ip` is missing.
    pub fn create(mtu: usize) -> io::Result<Self> {
        let tun = Tun::create(NAME)?;
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
        batch(&format!("link set {NAME} mtu {mtu} up\n"))?;
        Ok(Self(tun))
    }

    /// Where packets are read and written.
    #[must_use]
    pub const fn tun(&self) -> &Tun {
        &self.0
    }

    /// The device itself, without what belongs to it.
    #[must_use]
    pub fn into_tun(self) -> Tun {
        self.0
    }
}

/// Gives the device exactly the addresses `wanted` instead of `present`. What the kernel translates to an address that goes
/// is forgotten with it.
///
/// # Errors
/// `ip` or the privilege is missing.
pub fn set_addresses(present: &[IpNet], wanted: &[IpNet]) -> io::Result<()> {
    let mut lines = String::new();
    for address in present.iter().filter(|address| !wanted.contains(address)) {
        let _ = writeln!(lines, "addr del {address} dev {NAME}");
    }
    for address in wanted.iter().filter(|address| !present.contains(address)) {
        // No duplicate address detection: nobody else is there.
        let nodad = if address.addr().is_ipv6() {
            " nodad"
        } else {
            ""
        };
        let _ = writeln!(lines, "addr replace {address} dev {NAME}{nodad}");
    }
    batch(&lines)
}

/// Leads `prefixes` into the device.
///
/// # Errors
/// `ip` or the privilege is missing.
pub fn add_routes(prefixes: &[IpNet]) -> io::Result<()> {
    let mut lines = String::new();
    for prefix in prefixes {
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
fn set(family: &str, key: &str, value: &str) {
    let _ = fs::write(format!("/proc/sys/net/{family}/conf/{NAME}/{key}"), value);
}
