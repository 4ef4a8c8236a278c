//! A short satellite link with a web server behind it, for the tests that carry real traffic.

use std::time::Duration;

use bentpipe_emulator::Stop;
use bentpipe_emulator::scenario::preset;
use bentpipe_emulator::topology::{Topology, TopologyConfig, unique_prefix};
use bentpipe_lab::workload::{
    Authority, ContentKind, Expected, HTTP_PORT, Hosts, LinkLimit, Object, Web, corpus, get, run_in,
};
use bentpipe_link::{Orbit, Scenario, Standard};
use bentpipe_units::{BitRate, Seed};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Shorter than a GEO link, for the sake of whoever waits.
fn scenario() -> Scenario {
    Scenario {
        orbit: Orbit::constant(Duration::from_millis(50)),
        forward_link: Standard::Cbr {
            bit_rate: BitRate::megabits_per_second(20),
        },
        ..preset("geo").unwrap()
    }
}

pub(crate) struct World {
    pub(crate) topology: Topology,
    pub(crate) hosts: Hosts,
    pub(crate) authority: Authority,
    _web: Web,
    pub(crate) stop: Stop,
    pub(crate) limit: LinkLimit,
}

pub(crate) fn world(test: &str) -> Option<World> {
    if !bentpipe_testbed::privileged(test) {
        return None;
    }
    let scenario = scenario();
    let limit = LinkLimit::new(&scenario.link_config().unwrap());
    let topology = Topology::build(&TopologyConfig {
        link: scenario.into(),
        prefix: format!("{}-{test}", unique_prefix()),
        hosts: corpus::HOSTS,
    })
    .unwrap();
    let hosts = Hosts::of_topology(corpus::HOSTS);
    let authority = Authority::new().unwrap();
    Some(World {
        _web: Web::start(topology.web(), &hosts, &authority).unwrap(),
        topology,
        hosts,
        authority,
        stop: Stop::new().unwrap(),
        limit,
    })
}

impl World {
    pub(crate) fn get(&self, host: usize, expected: &Expected) -> anyhow::Result<(Duration, u64)> {
        let (name, address) = self.hosts.get(host).unwrap();
        let mut seen = 0;
        let time = run_in(self.topology.user(), &self.stop, PATIENCE, || {
            get((address, HTTP_PORT).into(), name, expected, |bytes| {
                seen = bytes;
            })
        })?;
        Ok((time, seen))
    }
}

pub(crate) fn object(seed: u64, length: u64) -> Expected {
    Object {
        kind: ContentKind::Binary,
        seed: Seed::new(seed),
        length,
    }
    .into()
}
