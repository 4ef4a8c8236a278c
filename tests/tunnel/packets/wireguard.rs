//! WireGuard inside the tunnel, and beside it.

use std::net::Ipv4Addr;

use anyhow::Result;
use bentpipe_emulator::topology::WEB;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::site::Site;
use bentpipe_testbed::{installed, privileged};

use super::{ping, site};

/// The far end's address inside WireGuard.
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// WireGuard with its usual MTU of 1420 inside the tunnel: two datagrams' worth for each full packet, and nothing is cut.
#[test]
fn wireguard_fits_inside() {
    if !privileged("packets: WireGuard") || !installed("packets: WireGuard", "wireguard-go") {
        return;
    }
    let site = site();
    wireguard(&site).unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

fn wireguard(site: &Site) -> Result<()> {
    let ends = [site.topology.user(), site.topology.web()];
    let far = &FAR.to_string();
    between(site, ends, WEB, || {
        ping(ends[0], far, 56).and_then(|()| ping(ends[0], far, 1420 - 28))
    })
}

/// Does `work` while 10.99.0.1 at the first of `ends` has WireGuard to 10.99.0.2 at the second, which is found at `endpoint`.
pub(crate) fn between<T>(
    site: &Site,
    ends: [&NetNs; 2],
    endpoint: Ipv4Addr,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let directory = site.topology.directory();
    let mut public = Vec::new();
    for side in ["near", "far"] {
        let script = format!("umask 077; wg genkey > {side}.wg; wg pubkey < {side}.wg");
        let script = format!("cd {} && {script}", directory.display());
        public.push(ends[0].run("sh", &["-c", &script])?.trim().to_owned());
    }
    // Names of devices are also names of sockets that all namespaces share.
    let name = |side: &str| format!("wg{side}{}", std::process::id() % 10_000);
    let sides = [
        (
            "near",
            &public[1],
            "10.99.0.1/24",
            format!("endpoint {endpoint}:51820"),
        ),
        ("far", &public[0], "10.99.0.2/24", String::new()),
    ];
    for (place, (side, peer, address, endpoint)) in ends.into_iter().zip(sides) {
        let (device, key) = (name(side), directory.join(format!("{side}.wg")));
        let script = format!(
            "wireguard-go {device} && \
             wg set {device} listen-port 51820 private-key {} peer {peer} allowed-ips 10.99.0.0/24 {endpoint} && \
             ip addr add {address} dev {device} && ip link set {device} mtu 1420 up",
            key.display()
        );
        place.run("sh", &["-c", &script])?;
    }
    let outcome = work();
    for (place, side) in ends.into_iter().zip(["near", "far"]) {
        // Its process ends with the device.
        place.run("ip", &["link", "del", &name(side)])?;
    }
    outcome
}
