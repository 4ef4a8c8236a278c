//! The namespaces of one experiment: user ─veth─ terminal ─sat0─ gateway ─veth─ web. A scenario with several terminals
//! has as many users and terminals, whose names end in their number. Where the way between gateway and web takes time, a
//! namespace lies between these.
//!
//! Owns everything it makes, the processes started in it included, and deletes it all on drop, in this order:
//! processes, link emulator, namespaces, directory. Plain end-to-end IP works in it, over IPv4 and IPv6; what
//! else runs there (web server, PEP, load) is the caller's. It starts no second experiment beside itself unless
//! given another prefix, and it leaves the machine's own namespace alone.

mod ground;
mod process;
mod setup;
mod terrestrial;

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError, Weak};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_units::{BitRate, Seed};
use tempfile::TempDir;

use crate::emulator::{Emulator, EmulatorConfig, EmulatorStats, Running as Link};
use crate::machine::Standing;
use crate::router::Router;

pub use crate::addresses::{
    Addresses, GATEWAY_SAT, GATEWAY_SAT6, GATEWAY_WAN, GATEWAY_WAN6, MAX_HOSTS, RESOLVER,
    RESOLVER6, TERMINAL_LAN, TERMINAL_LAN6, TERMINAL_SAT, TERMINAL_SAT6, USER, USER6, VPN_HOST,
    WEB, WEB6, host, host6,
};
pub use ground::{Behind, EndHosts, Ground};
pub use process::Process;
use process::RunningProgram;
pub use setup::Congestion;
use terrestrial::Terrestrial;

/// The satellite link's interface, at both of its ends.
pub const LINK_DEVICE: &str = "sat0";

/// In the environment of every process of an experiment: the prefix of its namespaces. So whoever finds an experiment whose
/// owner was killed knows which processes were its own.
pub const EXPERIMENT_VARIABLE: &str = "BENTPIPE_EXPERIMENT";

/// Topology to build.
#[derive(Debug, Clone)]
pub struct TopologyConfig {
    /// The link between terminal and gateway.
    pub link: EmulatorConfig,
    /// First part of the namespaces' names (`<prefix>-user`, …); see [`unique_prefix`].
    pub prefix: String,
    /// Addresses of the web namespace besides [`WEB`], of each family; see [`host`].
    pub hosts: u8,
}

/// A prefix that no other living process uses: `bp-<pid>`.
#[must_use]
pub fn unique_prefix() -> String {
    format!("bp-{}", std::process::id())
}

/// One experiment's network. Dropping it ends its processes and deletes its namespaces.
#[derive(Debug)]
pub struct Topology {
    // Fields are dropped in this order, after `Drop::drop` has ended the processes.
    processes: Mutex<Vec<Weak<RunningProgram>>>,
    link: Option<Link>,
    terrestrial: Option<Terrestrial>,
    users: Vec<NetNsGuard>,
    terminals: Vec<NetNsGuard>,
    gateway: NetNsGuard,
    web: NetNsGuard,
    directory: TempDir,
    prefix: String,
    nominal_rates: [BitRate; 2],
    ground: Ground,
}

impl Topology {
    /// Builds the four namespaces and starts the link between them.
    ///
    /// # Errors
    /// Missing privilege (see [`bentpipe_sys::privilege::enter_user_namespace`]), missing tools, a prefix that is
    /// in use, or a scenario that describes no link. Nothing is left behind.
    pub fn build(config: &TopologyConfig) -> Result<Self> {
        Self::build_on(config, Ground::default())
    }

    /// [`Topology::build`] on another ground.
    ///
    /// # Errors
    /// As there.
    pub fn build_on(config: &TopologyConfig, ground: Ground) -> Result<Self> {
        ensure!(
            config.hosts <= MAX_HOSTS,
            "{} hosts do not fit into 10.30.0.0/24: at most {MAX_HOSTS}",
            config.hosts
        );
        // Told now, and not after the namespaces have been made.
        let model = config.link.model()?;
        let terminals = model.terminals().len();
        let addresses = Addresses::new(&config.link.scenario.network, terminals)?;
        let namespace = |role: &str| {
            let name = format!("{}-{role}", config.prefix);
            NetNs::temporary(&name).with_context(|| format!("cannot make network namespace {name}"))
        };
        let each = |role: &str| -> Result<Vec<_>> {
            match terminals {
                1 => Ok(vec![namespace(role)?]),
                _ => (1..=terminals)
                    .map(|number| namespace(&format!("{role}-{number}")))
                    .collect(),
            }
        };
        let mut topology = Self {
            processes: Mutex::default(),
            link: None,
            terrestrial: None,
            users: each("user")?,
            terminals: each("terminal")?,
            gateway: namespace("gateway")?,
            web: namespace("web")?,
            directory: tempfile::Builder::new()
                .prefix(&format!("{}-", config.prefix))
                .tempdir()
                .context("cannot make a directory for the experiment")?,
            prefix: config.prefix.clone(),
            nominal_rates: model.nominal_rates(),
            ground,
        };
        for namespace in topology.namespaces() {
            setup::tune(namespace)?;
        }
        topology.link = Some(
            topology
                .emulator(&config.link, addresses.router())?
                .spawn()?,
        );
        let seed = config.link.scenario.general.seed.stream("terrestrial");
        topology.reach_web(namespace, &ground.behind, seed)?;
        setup::connect(&topology, &addresses, config.hosts)?;
        Ok(topology)
    }

    /// Connects gateway and web.
    fn reach_web(
        &mut self,
        namespace: impl Fn(&str) -> Result<NetNsGuard>,
        behind: &Behind,
        seed: Seed,
    ) -> Result<()> {
        if behind.is_nothing() {
            return setup::veth((&self.web, "eth0"), (&self.gateway, "wan0"));
        }
        let between = namespace("terrestrial")?;
        setup::tune(&between)?;
        let terrestrial = Terrestrial::connect(between, [&self.gateway, &self.web], behind, seed)?;
        self.terrestrial = Some(terrestrial);
        Ok(())
    }

    fn emulator(&self, config: &EmulatorConfig, router: Router) -> Result<Emulator> {
        let terminals: Vec<&NetNs> = self.terminals.iter().map(|terminal| &**terminal).collect();
        let mut emulator = Emulator::join(config, &terminals, &self.gateway, LINK_DEVICE, router)?;
        self.users.iter().for_each(|user| emulator.watch(user));
        emulator.watch(&self.web);
        Ok(emulator)
    }

    /// Each terminal's user and router, in the order of the scenario.
    pub fn sites(&self) -> impl Iterator<Item = (&NetNs, &NetNs)> {
        let users = self.users.iter().map(|user| &**user);
        users.zip(self.terminals.iter().map(|terminal| &**terminal))
    }

    /// Namespace of the applications of the first terminal: 10.10.0.2, fd00:10::2.
    #[must_use]
    pub fn user(&self) -> &NetNs {
        &self.users[0]
    }

    /// The router at the first satellite terminal: `lan0` towards the user, `sat0`.
    #[must_use]
    pub fn terminal(&self) -> &NetNs {
        &self.terminals[0]
    }

    /// The router at the gateway station: `sat0`, `wan0` towards the web.
    #[must_use]
    pub fn gateway(&self) -> &NetNs {
        &self.gateway
    }

    /// Namespace of the servers: [`WEB`], [`WEB6`], [`RESOLVER`], [`RESOLVER6`] and the hosts' addresses.
    #[must_use]
    pub fn web(&self) -> &NetNs {
        &self.web
    }

    /// All of them, from the users' end to the web's.
    #[must_use]
    pub fn namespaces(&self) -> Vec<&NetNs> {
        let (users, terminals): (Vec<_>, Vec<_>) = self.sites().unzip();
        let between = self.terrestrial.iter().map(Terrestrial::namespace);
        let gateway = std::iter::once(self.gateway());
        let behind = gateway.chain(between).chain([self.web()]).collect();
        [users, terminals, behind].concat()
    }

    /// A directory for the experiment's files (mode 0700); removed with the topology.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// IP-layer rates of forward and return link that an operator sells with this link ([`bentpipe_link::Model::nominal_rates`]).
    #[must_use]
    pub fn nominal_rates(&self) -> [BitRate; 2] {
        self.nominal_rates
    }

    /// Runs `lines` of `ip -batch` in `namespace`, one of these. Each route that they add or replace says how the TCP of that node
    /// sends, as the others do.
    ///
    /// # Errors
    /// The text has the line that `ip` refused.
    pub fn configure(&self, namespace: &NetNs, lines: &str) -> Result<()> {
        let hosts = self.users.iter().chain([&self.web]);
        let is_host = hosts
            .into_iter()
            .any(|host| host.name() == namespace.name());
        let attributes = match is_host {
            true => self.ground.of_end_hosts(),
            false => self.ground.of_routers(),
        };
        setup::batch(namespace, &attributes.put_on(lines))
    }

    /// Prefix of the namespaces' names.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// One command per namespace that opens a shell in it, for a human.
    #[must_use]
    pub fn doors(&self, standing: Standing) -> String {
        let doors = self.namespaces().into_iter().map(|namespace| {
            let enter = standing.enter(namespace.name());
            format!("  {enter} bash\n")
        });
        format!(
            "Enter a namespace with one of:\n{}",
            doors.collect::<String>()
        )
    }

    /// Ends the experiment like dropping does, and says what the link carried.
    ///
    /// # Errors
    /// The link had failed during the experiment: what was measured over it is void.
    pub fn finish(mut self) -> Result<EmulatorStats> {
        self.end_processes();
        let link = self.link.take().context("the link was never started")?;
        let mut stats = link.stop()?;
        if let Some(terrestrial) = self.terrestrial.take() {
            let (verdict, carried) = terrestrial.stop()?;
            stats.verdict = stats.verdict.and(verdict);
            stats.behind_gateway = Some(carried);
        }
        Ok(stats)
    }

    /// Starts `command` inside `namespace`, in a process group of its own, its standard error captured in a file.
    /// The process is ended by dropping what this returns, or with the topology, whichever comes first.
    ///
    /// # Errors
    /// The namespace cannot be entered or the program cannot be started; the text names it.
    pub fn spawn_in(&self, namespace: &NetNs, mut command: Command) -> Result<Process> {
        command.env(EXPERIMENT_VARIABLE, &self.prefix);
        let process = Process::start(namespace, command, self.directory.path())?;
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        processes.retain(|running| running.strong_count() > 0);
        processes.push(process.running());
        Ok(process)
    }

    fn end_processes(&mut self) {
        let processes = self
            .processes
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for process in processes.drain(..).filter_map(|weak| weak.upgrade()) {
            process.end();
        }
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.end_processes();
    }
}
