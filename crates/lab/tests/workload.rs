//! The workload over the topology, without any proxy: what is fetched is checked, and no faster than the link allows.
//! Needs root; without, it says so and checks nothing.

use std::time::Duration;

use bentpipe_lab::Stop;
use bentpipe_lab::topology::{Topology, TopologyConfig, unique_prefix};
use bentpipe_lab::workload::{
    Authority, CONNECTIONS_PER_HOST, Expected, HTTP_PORT, Hosts, LinkLimit, Object, PAGE_HOSTS,
    PAGE_OBJECTS, Page, Web, get, load, run_in,
};
use bentpipe_link::{Orbit, Scenario, Standard, preset};
use bentpipe_units::{BitRate, Seed};

const PATIENCE: Duration = Duration::from_secs(60);

/// Shorter than a GEO link, for the sake of whoever waits.
fn scenario() -> Scenario {
    Scenario {
        orbit: Orbit::Constant {
            one_way_delay: Duration::from_millis(50).into(),
        },
        forward_link: Standard::Cbr {
            bit_rate: BitRate::megabits_per_second(20),
        },
        ..preset("geo").unwrap()
    }
}

struct World {
    topology: Topology,
    hosts: Hosts,
    authority: Authority,
    _web: Web,
    stop: Stop,
    limit: LinkLimit,
}

fn world(test: &str) -> Option<World> {
    if !bentpipe_sys::privilege::has_net_admin() {
        eprintln!("{test}: skipped, needs CAP_NET_ADMIN");
        return None;
    }
    let scenario = scenario();
    let limit = LinkLimit::new(&scenario.link_config().unwrap());
    let topology = Topology::build(&TopologyConfig {
        scenario,
        prefix: format!("{}-{test}", unique_prefix()),
        hosts: PAGE_HOSTS,
    })
    .unwrap();
    let hosts = Hosts::of_topology(PAGE_HOSTS);
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
    fn get(&self, host: usize, expected: &Expected) -> anyhow::Result<(Duration, u64)> {
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

fn object(seed: u64, length: u64) -> Expected {
    Object {
        seed: Seed::new(seed),
        length,
    }
    .into()
}

#[test]
fn objects_come_whole_over_both_families_and_never_too_soon() {
    let Some(world) = world("get") else { return };
    for (host, length) in [(0, 1000), (1, 1000), (0, 2_000_000), (1, 0)] {
        let (time, seen) = world.get(host, &object(9, length)).unwrap();
        assert_eq!(seen, length);
        // Plain TCP: a round trip more than the limit, which takes TCP's handshake for free.
        let least = world.limit.object(length) + Duration::from_millis(100);
        assert!(time >= least, "{length} bytes in {time:?}");
        assert!(time < least * 4, "{length} bytes in {time:?}");
    }
}

#[test]
fn a_wrong_body_is_an_error_that_names_the_object() {
    let Some(world) = world("hash") else { return };
    let right = object(3, 5000);
    let wrong = Expected {
        digest: object(4, 5000).digest,
        ..right
    };
    let error = format!("{:#}", world.get(0, &wrong).unwrap_err());
    assert!(
        error.contains("/object/3/5000") && error.contains("SHA-256"),
        "{error}"
    );
    let missing = Expected {
        object: Object {
            length: 1 << 40,
            ..right.object
        },
        ..right
    };
    let error = format!("{:#}", world.get(0, &missing).unwrap_err());
    assert!(error.contains("404"), "{error}");
}

#[test]
fn a_page_comes_whole_over_several_connections() {
    let Some(world) = world("page") else { return };
    let page = Page::new(Seed::new(1));
    let mut done = Vec::new();
    let tls = world.authority.client_config().unwrap();
    let loaded = run_in(world.topology.user(), &world.stop, PATIENCE, || {
        load(&page, &world.hosts, tls, |count| done.push(count))
    })
    .unwrap();
    eprintln!("{loaded:?}, limit {:?}", world.limit.page(&page));
    assert_eq!(done, (1..=PAGE_OBJECTS).collect::<Vec<usize>>());
    let hosts = usize::from(PAGE_HOSTS);
    assert!((hosts..=hosts * CONNECTIONS_PER_HOST).contains(&loaded.connections));
    // Three levels of new hosts: TCP's handshakes come on top of the limit.
    let least = world.limit.page(&page) + Duration::from_millis(300);
    assert!(
        loaded.time >= least && loaded.time < least * 3,
        "{loaded:?}"
    );
}

#[test]
fn a_browser_that_trusts_another_authority_refuses() {
    let Some(world) = world("trust") else { return };
    let page = Page::new(Seed::new(1));
    let tls = Authority::new().unwrap().client_config().unwrap();
    let error = run_in(world.topology.user(), &world.stop, PATIENCE, || {
        load(&page, &world.hosts, tls, |_| ())
    })
    .unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("certificate") && error.contains("host 0"),
        "{error}"
    );
}
