//! The states of a contender's life, in order; each begins where the one before ended.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;
use rustix::process::{Pid, Signal, kill_process};

use crate::contender::{AtWork, Available, Contender};
use bentpipe_emulator::topology::{
    GATEWAY_SAT, GATEWAY_SAT6, GATEWAY_WAN, GATEWAY_WAN6, LINK_DEVICE, TERMINAL_LAN, TERMINAL_LAN6,
    TERMINAL_SAT, TERMINAL_SAT6, Topology, USER, USER6, WEB, WEB6,
};

/// Time that a daemon is given to stop in order.
const STOPS: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// By then a round of probes has ended.
const SILENCE: Duration = Duration::from_millis(300);

/// Step by which the contender is brought into a state.
type Step<'a> = fn(&mut LeakRun<'a>) -> Result<()>;

/// All of them.
pub(super) fn states<'a>() -> [(&'static str, Step<'a>); 22] {
    [
        ("before its start, as after a boot", LeakRun::wait),
        ("while it starts", LeakRun::start),
        ("while it runs", LeakRun::wait),
        ("suspended and woken", LeakRun::suspend),
        ("the link fails and comes back", LeakRun::outage),
        ("the interface goes and comes back", LeakRun::replug),
        ("the LAN: all nft rules flushed", LeakRun::flush),
        ("routing rules deleted", LeakRun::delete_rules),
        ("the tunnel's device deleted", LeakRun::delete_device),
        ("the LAN's interface renamed, back", LeakRun::rename),
        ("the LAN's interface made anew", LeakRun::renew),
        ("SIGKILL of the terminal's end", LeakRun::kill_terminal),
        ("while it is started again", LeakRun::restart),
        ("SIGKILL of the gateway's end", LeakRun::kill_gateway),
        ("while that is started again", LeakRun::restart),
        ("the gateway's rules are flushed", LeakRun::flush_gateway),
        ("the gateway's routing is changed", LeakRun::reroute_gateway),
        ("the gateway's device is removed", LeakRun::unplug_gateway),
        ("the gateway's uplink renamed, back", LeakRun::rename_uplink),
        ("while it stops", LeakRun::stop),
        ("after its stop", LeakRun::wait),
        ("the LAN: flushed after its stop", LeakRun::flush_guard),
    ]
}

/// A contender and where it runs.
pub(super) struct LeakRun<'a> {
    contender: &'a Contender,
    available: &'a Available,
    topology: &'a Topology,
    time: Duration,
    at_work: Option<AtWork>,
    /// True if the terminal itself sends nothing.
    quiet: Arc<AtomicBool>,
}

impl<'a> LeakRun<'a> {
    pub(super) fn new(
        contender: &'a Contender,
        available: &'a Available,
        topology: &'a Topology,
        time: Duration,
        quiet: Arc<AtomicBool>,
    ) -> Self {
        Self {
            contender,
            available,
            topology,
            time,
            at_work: None,
            quiet,
        }
    }

    /// Does what its operator does once, so that nothing leaves before it runs.
    pub(super) fn arm(&self) -> Result<()> {
        self.contender.arm(self.available, self.topology)
    }

    fn wait(&mut self) -> Result<()> {
        thread::sleep(self.time);
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        self.at_work = Some(self.contender.start_whole(self.available, self.topology)?);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        // Whichever end still runs is ended, too.
        self.at_work = None;
        self.start()
    }

    fn suspend(&mut self) -> Result<()> {
        signal(self.topology.terminal(), Signal::STOP)?;
        self.wait()?;
        signal(self.topology.terminal(), Signal::CONT)?;
        self.wait()
    }

    fn outage(&mut self) -> Result<()> {
        let table = "table inet outage {\n\
                     chain received { type filter hook prerouting priority -400; iifname sat0 drop\n}\n\
                     chain sent { type filter hook postrouting priority 400; oifname sat0 drop\n}\n}\n";
        let gateway = self.topology.gateway();
        run_with_input(gateway.command("nft").args(["-f", "-"]), table)?;
        self.wait()?;
        gateway.run("nft", &["delete", "table", "inet", "outage"])?;
        self.wait()
    }

    /// Sets again what the kernel forgets of an interface that goes down, as whoever manages the network does.
    fn replug(&mut self) -> Result<()> {
        let terminal = self.topology.terminal();
        terminal.run("ip", &["link", "set", LINK_DEVICE, "down"])?;
        self.wait()?;
        let lines = format!(
            "link set {LINK_DEVICE} up\n\
             addr replace {TERMINAL_SAT6}/64 dev {LINK_DEVICE} nodad noprefixroute\n\
             route replace 10.20.0.0/24 dev {LINK_DEVICE} src {TERMINAL_SAT}\n\
             route replace fd00:20::/64 dev {LINK_DEVICE}\n\
             route append default via {GATEWAY_SAT}\n\
             route append ::/0 via {GATEWAY_SAT6}\n"
        );
        run_with_input(terminal.command("ip").args(["-batch", "-"]), &lines)?;
        self.wait()
    }

    /// Flushes all tables, as the restart of a firewall does.
    fn flush(&mut self) -> Result<()> {
        let terminal = self.topology.terminal();
        terminal.run("nft", &["flush", "ruleset"])?;
        self.wait()
    }

    /// Flushes all tables where no process lives that could own a table: only the flushed one held the terminal's own packets, which
    /// are not sent meanwhile.
    fn flush_guard(&mut self) -> Result<()> {
        self.quiet.store(true, Ordering::Relaxed);
        thread::sleep(SILENCE);
        self.await_own_connections_end()?;
        let flushed = self.flush();
        self.quiet.store(false, Ordering::Relaxed);
        flushed
    }

    /// A connection of the terminal's own repeats its last segment for some round trips after the probe has ended.
    fn await_own_connections_end(&self) -> Result<()> {
        let terminal = self.topology.terminal();
        let open = format!(
            "ss -Htn exclude listening exclude time-wait dst {WEB}; \
             ss -Htn exclude listening exclude time-wait dst [{WEB6}]"
        );
        let deadline = Instant::now() + STOPS;
        while !terminal.run("sh", &["-c", &open])?.is_empty() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Does what systemd-networkd does to rules of others when it starts.
    fn delete_rules(&mut self) -> Result<()> {
        let terminal = self.topology.terminal();
        for family in ["-4", "-6"] {
            for priority in ["99", "99", "100"] {
                // Another contender has none.
                let _ = terminal.run("ip", &[family, "rule", "del", "priority", priority]);
            }
        }
        self.wait()
    }

    fn delete_device(&mut self) -> Result<()> {
        // Another contender's has another name.
        let _ = self
            .topology
            .terminal()
            .run("ip", &["link", "del", "bentpipe0"]);
        self.wait()
    }

    fn rename(&mut self) -> Result<()> {
        let terminal = self.topology.terminal();
        run_with_input(
            terminal.command("ip").args(["-batch", "-"]),
            "link set lan0 down\nlink set lan0 name lan9\nlink set lan9 up\n",
        )?;
        self.wait()?;
        run_with_input(
            terminal.command("ip").args(["-batch", "-"]),
            &format!(
                "link set lan9 down\nlink set lan9 name lan0\nlink set lan0 up\n\
                 addr replace {TERMINAL_LAN6}/64 dev lan0 nodad\n"
            ),
        )?;
        self.wait()
    }

    /// The pair of devices between user and terminal, with the addresses that both had.
    fn renew(&mut self) -> Result<()> {
        let (user, terminal) = (self.topology.user(), self.topology.terminal());
        terminal.run("ip", &["link", "del", "lan0"])?;
        self.wait()?;
        let lines = format!(
            "link add eth0 type veth peer name lan0 netns {}\n\
             addr add {USER}/24 dev eth0\naddr add {USER6}/64 dev eth0 nodad\nlink set eth0 up\n",
            terminal.name()
        );
        run_with_input(user.command("ip").args(["-batch", "-"]), &lines)?;
        let lines = format!(
            "addr add {TERMINAL_LAN}/24 dev lan0\naddr add {TERMINAL_LAN6}/64 dev lan0 nodad\nlink set lan0 up\n"
        );
        run_with_input(terminal.command("ip").args(["-batch", "-"]), &lines)?;
        let lines =
            format!("route add default via {TERMINAL_LAN}\nroute add ::/0 via {TERMINAL_LAN6}\n");
        run_with_input(user.command("ip").args(["-batch", "-"]), &lines)?;
        self.wait()
    }

    fn kill_terminal(&mut self) -> Result<()> {
        signal(self.topology.terminal(), Signal::KILL)?;
        self.wait()
    }

    fn kill_gateway(&mut self) -> Result<()> {
        signal(self.topology.gateway(), Signal::KILL)?;
        self.wait()
    }

    /// As a restart of nftables, ufw or firewalld does, twice; the machine forwards for others as well.
    fn flush_gateway(&mut self) -> Result<()> {
        let gateway = self.topology.gateway();
        for key in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            gateway.run("sysctl", &["-qw", key])?;
        }
        for _ in 0..2 {
            gateway.run("nft", &["flush", "ruleset"])?;
            self.wait()?;
        }
        Ok(())
    }

    /// As a restart of systemd-networkd does with rules of others; then all at once.
    fn reroute_gateway(&mut self) -> Result<()> {
        let gateway = self.topology.gateway();
        for family in ["-4", "-6"] {
            delete_rules(gateway, family)?;
        }
        self.wait()
    }

    /// Whatever its name is: the contender's only device.
    fn unplug_gateway(&mut self) -> Result<()> {
        let gateway = self.topology.gateway();
        let listing = gateway.run("ip", &["-o", "link", "show"])?;
        let names = listing.lines().filter_map(|line| line.split(": ").nth(1));
        let own = names.filter(|name| {
            ["bentpipe", "tun", "wg"]
                .iter()
                .any(|one| name.starts_with(one))
        });
        for name in own {
            gateway.run("ip", &["link", "del", name])?;
        }
        self.wait()
    }

    fn rename_uplink(&mut self) -> Result<()> {
        let gateway = self.topology.gateway();
        // Here the gateway's default route is the satellite link. Elsewhere it is the uplink, and goes with it.
        let lines = format!(
            "route replace {USER}/32 via {TERMINAL_SAT}\nroute replace {USER6}/128 via {TERMINAL_SAT6}\n\
             route replace unreachable default\nroute replace unreachable ::/0\n\
             link set wan0 down\nlink set wan0 name wan9\nlink set wan9 up\n"
        );
        self.topology.configure(gateway, &lines)?;
        self.wait()?;
        let lines = format!(
            "link set wan9 down\nlink set wan9 name wan0\nlink set wan0 up\n\
             addr replace {GATEWAY_WAN6}/64 dev wan0 nodad noprefixroute\n\
             route replace 10.30.0.0/24 dev wan0 src {GATEWAY_WAN}\nroute replace fd00:30::/64 dev wan0\n"
        );
        self.topology.configure(gateway, &lines)?;
        self.wait()
    }

    fn stop(&mut self) -> Result<()> {
        let terminal = self.topology.terminal();
        signal(terminal, Signal::TERM)?;
        let deadline = Instant::now() + STOPS;
        while !processes(terminal)?.is_empty() {
            ensure!(Instant::now() < deadline, "it does not stop");
            thread::sleep(POLL);
        }
        self.at_work = None;
        Ok(())
    }
}

/// Deletes all rules of policy routing but the three that every machine has.
fn delete_rules(place: &NetNs, family: &str) -> Result<()> {
    let listing = place.run("ip", &[family, "rule", "show"])?;
    let priorities = listing.lines().filter_map(|line| line.split(':').next());
    for priority in priorities.filter(|priority| !["0", "32766", "32767"].contains(priority)) {
        // It may be gone, or put back, meanwhile.
        let _ = place.run("ip", &[family, "rule", "del", "priority", priority]);
    }
    Ok(())
}

/// Sends a signal to every process of a namespace, which all are the contender's.
fn signal(namespace: &NetNs, signal: Signal) -> Result<()> {
    for process in processes(namespace)? {
        // It may end by itself meanwhile.
        let _ = kill_process(process, signal);
    }
    Ok(())
}

/// The processes of a namespace that have not ended.
fn processes(namespace: &NetNs) -> Result<Vec<Pid>> {
    let inside = rustix::fs::fstat(namespace)?.st_ino;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(pid) = name
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw)
        else {
            continue;
        };
        // One that has just ended has no namespace any more, or is a zombie.
        let namespace = fs::metadata(path.join("ns/net"));
        if namespace.is_ok_and(|namespace| namespace.ino() == inside) {
            found.push(pid);
        }
    }
    Ok(found)
}
