//! The kernel, the programs and the limits.

use super::{MachineNeeds, fail, finding, ok, tried, warn};
use crate::doctor::facts::{Machine, TimeService};
use crate::doctor::{Finding, Level};

/// The oldest kernel that everything is made for.
const OLDEST_KERNEL: (u32, u32) = (5, 10);

/// Buffer that a UDP socket asks for each way, bytes.
const WANTED_BUFFER: u64 = 8 << 20;

/// Descriptors below which a busy site runs out.
const WANTED_FILES: u64 = 65_536;

pub(super) fn judge(machine: &Machine, needs: &MachineNeeds) -> Vec<Finding> {
    let mut findings = vec![kernel(&machine.release)];
    findings.extend(programs(machine, needs));
    findings.extend(nftables(machine, needs));
    findings.push(device(machine, needs));
    findings.extend(clock(machine));
    findings.push(open_files(machine.open_files));
    findings.extend(buffers(machine));
    findings
}

fn kernel(release: &str) -> Finding {
    let text = format!("Linux {release}");
    match version(release) {
        Some(version) if version < OLDEST_KERNEL => {
            let mend = "bentpipe is made for Linux 5.10 and later: boot a newer kernel";
            warn("kernel", text, Some(mend.into()))
        }
        _ => ok("kernel", text),
    }
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn programs(machine: &Machine, needs: &MachineNeeds) -> impl Iterator<Item = Finding> {
    let needed = needs.client_table || needs.server_table || needs.pep;
    machine
        .programs
        .iter()
        .map(move |(name, found)| match found {
            Ok(version) => ok("programs", format!("{name}: {version}")),
            // The text names the package.
            Err(error) => finding(MachineNeeds::lack(needed), "programs", error.clone(), None),
        })
}

fn nftables(machine: &Machine, needs: &MachineNeeds) -> Vec<Finding> {
    let mend = |error: &str| {
        let known = "the kernel or `nft` lacks an expression: load nft_tproxy, nft_fib_inet, nft_masq and nft_reject_inet \
                     (`modprobe`), or install what brings them (OpenWrt: kmod-nft-tproxy, kmod-nft-fib)";
        (!error.contains("install the package")).then(|| known.to_owned())
    };
    let client = tried(
        "nftables",
        &machine.client_table,
        "takes a client's table",
        MachineNeeds::lack(needs.client_table),
        mend,
    );
    let server = tried(
        "nftables",
        &machine.server_table,
        "takes a server's table",
        MachineNeeds::lack(needs.server_table),
        mend,
    );
    let tproxy = tried(
        "tproxy",
        &machine.transparent_socket,
        "transparent sockets can be made",
        MachineNeeds::lack(needs.client_table),
        |_| Some("load the module nft_tproxy, or build the kernel with CONFIG_NFT_TPROXY".into()),
    );
    let owned = match &machine.owned_tables {
        None => None,
        Some(Ok(true)) => Some(ok(
            "owned tables",
            "tables that outlive their owner can be made",
        )),
        Some(Ok(false)) if needs.local => Some(warn(
            "owned tables",
            "this kernel has none: after another program has flushed nftables, this machine's own traffic leaves in clear \
             for a moment",
            Some("boot Linux 6.9 or later".into()),
        )),
        Some(Ok(false)) => Some(ok(
            "owned tables",
            "this kernel has none, and none is needed",
        )),
        Some(Err(error)) => Some(finding(
            MachineNeeds::lack(needs.local),
            "owned tables",
            error.clone(),
            None,
        )),
    };
    [client, server, tproxy, owned]
        .into_iter()
        .flatten()
        .collect()
}

fn device(machine: &Machine, needs: &MachineNeeds) -> Finding {
    match &machine.tun {
        Ok(()) => ok("tun", "/dev/net/tun can be opened"),
        Err(error) => finding(
            MachineNeeds::lack(needs.device || needs.pep),
            "tun",
            format!("/dev/net/tun: {error}"),
            Some(
                "run `modprobe tun`, or give the container the device (`--device /dev/net/tun`); without it a server \
                 carries TCP, UDP and ping only"
                    .into(),
            ),
        ),
    }
}

fn clock(machine: &Machine) -> Vec<Finding> {
    let keep = match machine.time_service {
        TimeService::Switched => "run `timedatectl set-ntp true`".to_owned(),
        TimeService::Other(program) => format!("start `{program}`, which is installed"),
        TimeService::Absent => {
            "no time service is installed: install `systemd-timesyncd` or `chrony`, which then runs by itself".to_owned()
        }
    };
    let set = || Some(format!("{keep}, or set it with `date --set`"));
    let year = machine.year;
    let sane = match machine.built {
        Some(built) if year < built => fail(
            "clock",
            format!(
                "the year is {year}, before that of the program ({built}): codes to join by do not expire as they should"
            ),
            set(),
        ),
        _ => ok("clock", format!("the year is {year}")),
    };
    let kept = match &machine.synchronised {
        Ok(true) => ok("clock", "kept by a time service"),
        Ok(false) => warn("clock", "not synchronised, says the kernel", set()),
        Err(error) => warn(
            "clock",
            format!("whether it is synchronised is unknown: {error}"),
            None,
        ),
    };
    vec![sane, kept]
}

fn open_files(hard: u64) -> Finding {
    let text = match hard {
        u64::MAX => "no limit of open files".to_owned(),
        hard => format!(
            "at most {hard} open files: enough for {} connections",
            hard / 2
        ),
    };
    if hard >= WANTED_FILES {
        return ok("open files", text);
    }
    let mend = "raise the hard limit: `LimitNOFILE=` in the unit, `ulimit -Hn` in the shell";
    warn("open files", text, Some(mend.into()))
}

fn buffers(machine: &Machine) -> Vec<Finding> {
    let one = |name: &str| {
        let value = machine.setting(name)?;
        let text = format!("{name} is {value}");
        Some(if value >= WANTED_BUFFER {
            ok("sysctl", text)
        } else {
            let mend = format!(
                "put `{name} = {WANTED_BUFFER}` into /etc/sysctl.d/60-bentpipe.conf, and run `sysctl --system`"
            );
            finding(Level::Warn, "sysctl", text, Some(mend))
        })
    };
    ["net.core.rmem_max", "net.core.wmem_max"]
        .into_iter()
        .filter_map(one)
        .collect()
}
