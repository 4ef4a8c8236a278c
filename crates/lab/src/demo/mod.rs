//! The demonstration: one satellite link, measured plain and then with bentpipe at both of its ends.
//!
//! The same objects are fetched both times, every body is checked, and while bentpipe runs both ends of the link are
//! captured: what is shown is void if anything crossed in clear, if content was changed, or if a figure is better than
//! the link allows.
//!
//! ```text
//!  user ── terminal ─ sat0 ══════ 10/2 Mbit/s, RTT 500 ms ══════ sat0 ─ gateway ── web
//!   │         │         └─ capture                      capture ─┘         │         │
//!  workload  bentpipe client                               bentpipe server    HTTP(S) server
//! ```

mod figures;
mod progress;
mod table;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bentpipe_link::Scenario;
use bentpipe_sys::netns::NetNs;
use bentpipe_units::BitRate;

use crate::capture::{Capture, CaptureReport};
use crate::contender::{Between, CLIENT_SOCKET, Daemons, SERVER_PORT, Settings, hystart};
use crate::workload::{Authority, HTTPS_PORT, Hosts, LinkLimit, Shape, Web};
use bentpipe_emulator::EmulatorStats;
use bentpipe_emulator::Stop;
use bentpipe_emulator::machine::Standing;
use bentpipe_emulator::topology::{
    Congestion, LINK_DEVICE, Topology, TopologyConfig, unique_prefix,
};

use figures::{DemoFigures, Workload};
pub use progress::Progress;
pub use table::Report;

/// Time for which the last packets of the plain part may still be on their way.
const SETTLE: Duration = Duration::from_secs(2);
/// Packets that leave the emulated link later than this falsify the figures.
const TOLERABLE_LATENESS: Duration = Duration::from_millis(10);

/// Whoever has a geostationary satellite knows it.
const SETTINGS: Settings = Settings {
    profile: Some("geo"),
    controller: None,
    tuned: None,
    rates: None,
    tcp_alone: false,
    http3: false,
    names_alone: false,
    local: false,
    tls: false,
    sle: None,
    les: None,
    ahead: None,
    between: Between::Nodes,
};

/// Settings of a demonstration.
#[derive(Debug)]
pub struct DemoConfig {
    /// The binary `bentpipe`.
    pub bentpipe: PathBuf,
    /// Answer of [`bentpipe_emulator::machine::prepare`].
    pub standing: Standing,
}

/// A demonstration that is set up. Dropping it removes everything.
#[derive(Debug)]
pub struct Demo {
    // Fields are dropped in this order: processes end before their namespaces.
    daemons: Option<Daemons>,
    _web: Web,
    topology: Topology,
    config: DemoConfig,
    workload: Workload,
    limit: LinkLimit,
}

/// The link: a GEO satellite with 10 Mbit/s down and 2 Mbit/s up, an RTT of 500 ms and queues of one BDP.
#[must_use]
pub fn scenario() -> Scenario {
    let delay = Duration::from_millis(250);
    let [down, up] = [10, 2].map(BitRate::megabits_per_second);
    Scenario::constant("demo", delay, down, up)
}

impl Demo {
    /// Builds namespaces, link and web server.
    ///
    /// # Errors
    /// Something is missing or in use; the text names it. Nothing is left behind.
    pub fn build(config: DemoConfig, progress: &mut Progress<'_>) -> Result<Self> {
        progress.step("building the network: user, terminal, satellite, gateway, web");
        let scenario = scenario();
        let limit = LinkLimit::new(&scenario.link_config()?);
        let topology = Topology::build(&TopologyConfig {
            link: scenario.into(),
            prefix: unique_prefix(),
            hosts: Shape::USUAL.hosts,
        })?;
        let hosts = Hosts::of_topology(Shape::USUAL.hosts);
        let authority = Authority::new()?;
        Ok(Self {
            daemons: None,
            _web: Web::start(topology.web(), &hosts, &authority)?,
            topology,
            config,
            workload: Workload::new(hosts, authority),
            limit,
        })
    }

    /// Measures, plain and then through bentpipe, which runs from then on.
    ///
    /// # Errors
    /// A body was wrong, something crossed in clear, bentpipe did not come up, a figure is impossible, or `stop` was
    /// thrown.
    pub fn measure(&mut self, stop: &Stop, progress: &mut Progress<'_>) -> Result<Report> {
        let _hystart = hystart::claim(Congestion::default(), stop)?;
        let plain = self.figures("plain", stop, progress)?;
        stop.sleep(SETTLE)?;
        let ends = [self.topology.terminal(), self.topology.gateway()];
        let captures = ends.map(|end| Capture::start(end, LINK_DEVICE, SERVER_PORT));
        progress.step("starting bentpipe client and server");
        let daemons = Daemons::start(&self.config.bentpipe, &self.topology, &SETTINGS)?;
        let daemons = self.daemons.insert(daemons);
        let bentpipe = daemons.watch(|| {
            let user = self.topology.user();
            self.workload.measure(user, "with bentpipe", stop, progress)
        })?;
        let mut crossed = CaptureReport::default();
        for capture in captures {
            crossed += capture?.stop()?;
        }
        crossed.expect_only_tunnel()?;
        Report::new(plain, bentpipe, self.workload.limits(&self.limit), crossed)
    }

    fn figures(
        &self,
        label: &str,
        stop: &Stop,
        progress: &mut Progress<'_>,
    ) -> Result<DemoFigures> {
        let user = self.topology.user();
        self.workload.measure(user, label, stop, progress)
    }

    /// Commands that enter the namespaces, and things to try there.
    ///
    /// # Errors
    /// The certificate of the web's authority cannot be written.
    pub fn doors(&self) -> Result<String> {
        let directory = self.topology.directory();
        let certificate = directory.join("authority.pem");
        std::fs::write(&certificate, self.workload.authority().pem())
            .with_context(|| format!("cannot write {}", certificate.display()))?;
        let standing = self.config.standing;
        let enter = |namespace: &NetNs| standing.enter(namespace.name());
        let mut text = self.topology.doors(standing) + "Try:\n";
        if let Some((name, address)) = self.workload.hosts().get(0) {
            let user = enter(self.topology.user());
            // Writing into a String cannot fail.
            let _ = writeln!(
                text,
                "  {user} curl --cacert {} --resolve {name}:{HTTPS_PORT}:{address} -o /dev/null \
                 https://{name}/object/1/10000000",
                certificate.display()
            );
        }
        let _ = write!(
            text,
            "  {} {} status --socket {}",
            enter(self.topology.terminal()),
            self.config.bentpipe.display(),
            directory.join(CLIENT_SOCKET).display()
        );
        Ok(text)
    }

    /// Removes everything; what to think of the figures, if not the best.
    ///
    /// # Errors
    /// The emulated link was not sound.
    pub fn finish(mut self) -> Result<Option<String>> {
        // The client first: it tells the server.
        self.daemons.take();
        verdict(&self.topology.finish()?)
    }
}

fn verdict(stats: &EmulatorStats) -> Result<Option<String>> {
    if stats.emulator.write_errors > 0 {
        bail!(
            "the emulated link lost {} packets of its own: the figures are void",
            stats.emulator.write_errors
        );
    }
    let late = stats.emulator.lateness.p99.get();
    Ok((late > TOLERABLE_LATENESS).then(|| {
        format!(
            "This machine was busy: one packet in a hundred left the emulated link {late:.0?} too late or more. \
             Times are longer than they should be."
        )
    }))
}
