//! The kernel, programs, limits and the clock.

use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use bentpipe_sys::{clock, command, hold, privilege, socket};
use jiff::tz::TimeZone;
use rustix::process::{Resource, geteuid, getrlimit};

use super::{text, tried};
use crate::client::intercept;
use crate::doctor::facts::{Machine, TimeService};
use crate::process;
use crate::server::forwarding;

/// Settings of the kernel that are judged.
const SETTINGS: [&str; 6] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.rp_filter",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
];

/// Programs that the daemons run, and how each tells its version.
const PROGRAMS: [(&str, &str); 2] = [("nft", "--version"), ("ip", "-Version")];

pub(super) fn collect(built: Option<i16>) -> Machine {
    let net_admin = privilege::has_net_admin();
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
    };
    let now = i64::try_from(process::since_1970().as_secs()).unwrap_or(i64::MAX);
    let now = jiff::Timestamp::from_second(now).unwrap_or_default();
    Machine {
        release: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        net_admin,
        root: geteuid().is_root(),
        programs: PROGRAMS
            .map(|(name, option)| (name, version(name, option)))
            .into(),
        client_table: tried(net_admin, intercept::trial),
        server_table: tried(net_admin, forwarding::trial),
        transparent_socket: tried(net_admin, transparent_socket),
        owned_tables: tried(net_admin, hold::owned_tables),
        tun: open().map(drop).map_err(|error| error.to_string()),
        year: now.to_zoned(TimeZone::UTC).year(),
        built,
        synchronised: clock::is_synchronised().map_err(|error| error.to_string()),
        time_service: time_service(),
        open_files: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
        settings: SETTINGS.iter().filter_map(|name| setting(name)).collect(),
    }
}

/// The time service that is installed, whether or not it runs.
fn time_service() -> TimeService {
    let of_systemd = ["/usr/lib", "/lib"].map(|it| Path::new(it).join("systemd/systemd-timesyncd"));
    let switched = command::is_installed("timedatectl") && of_systemd.iter().any(|it| it.exists());
    let mut others = ["chronyd", "ntpd", "openntpd"].into_iter();
    match others.find(|program| command::is_installed(program)) {
        _ if switched => TimeService::Switched,
        Some(other) => TimeService::Other(other),
        None => TimeService::Absent,
    }
}

/// Tries a TPROXY listener, on a port of loopback that the kernel chooses.
fn transparent_socket() -> io::Result<()> {
    socket::transparent_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 0).map(drop)
}

fn version(program: &'static str, option: &str) -> Result<String, String> {
    let said = command::run(program, &[option]).map_err(|error| error.to_string())?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

fn setting(name: &str) -> Option<(String, u64)> {
    let value = text(format!("/proc/sys/{}", name.replace('.', "/")));
    Some((name.to_owned(), value.trim().parse().ok()?))
}
