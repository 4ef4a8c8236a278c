//! TCP through bentpipe is TCP: the same cases over plain TCP, through bentpipe, and through relays that are wrong.
//!
//! The twelve cases that a split connection must get right, over IPv4 and IPv6, between namespaces with an emulated
//! satellite of 500 ms RTT between them. Needs root, except for the relays on loopback.
mod cases;
mod faults;
mod hosts;
mod mixture;
mod unseen;
mod wrong;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bentpipe_emulator::topology::{GATEWAY_SAT, TERMINAL_SAT, TERMINAL_SAT6};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Route;
use bentpipe_testbed::site::{Carried, Site, SiteConfig, fast_geo, lossy_geo, near};

use crate::BENTPIPE;
use crate::session_life::{
    all_are_sealed, layering, les_alone_has_carried, says_all_are_sealed, until_it_stands, wire_is,
};
pub(crate) use cases::LOSS;
use cases::{BULK, Case, ENDS, MANY, SILENCE, TRAPS};
use hosts::SealedHosts;

/// Flows of `thousand_at_once`, over both families.
const THOUSANDS: u64 = 2000;

/// Lots of so many flows, one after the other.
const LOTS: u64 = 8;

/// Silence that is long for what has no timer of its own.
const SHORT_SILENCE: Duration = Duration::from_secs(3);

/// Of the emulated satellite, without queueing.
const RTT: Duration = Duration::from_millis(500);

/// What a busy machine is given on top.
const SLACK: Duration = Duration::from_millis(1500);

/// How one case ended on one route.
pub(crate) struct Outcome {
    route: &'static str,
    case: &'static str,
    took: Duration,
    result: Result<()>,
}

/// Runs every case on every route at the same time.
pub(crate) fn together(routes: &[Route], cases: &[Case]) -> Vec<Outcome> {
    thread::scope(|scope| {
        let started: Vec<_> = routes
            .iter()
            .flat_map(|route| cases.iter().map(move |case| (route, *case)))
            .map(|(route, case)| {
                scope.spawn(move || {
                    let start = Instant::now();
                    let result = (case.run)(route);
                    Outcome {
                        route: route.name,
                        case: case.name,
                        took: start.elapsed(),
                        result,
                    }
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

/// Fails with one line for each failed case, after the whole table and the daemons' logs.
pub(crate) fn judge(outcomes: &[Outcome], logs: &str) {
    let mut table = String::from("\n");
    let mut failed = String::new();
    for outcome in outcomes {
        let Outcome {
            route, case, took, ..
        } = outcome;
        let line = format!("{route} {case:40} {:6.2} s", took.as_secs_f64());
        match &outcome.result {
            Ok(()) => table += &format!("{line}  ok\n"),
            Err(error) => failed += &format!("{line}  FAILED: {error:#}\n"),
        }
    }
    assert!(failed.is_empty(), "{table}{logs}\n{failed}");
    println!("{table}");
}

/// Runs the cases of each phase at the same time, one phase after the other.
fn one_after_another(routes: &[Route], phases: &[&[Case]]) -> Vec<Outcome> {
    let outcomes = phases.iter().map(|phase| together(routes, phase));
    outcomes.flatten().collect()
}

/// All cases: the silent ones beside the others, those that fill the link and the thousand on their own.
pub(crate) fn all_cases(routes: &[Route]) -> Vec<Outcome> {
    thread::scope(|scope| {
        let silent = scope.spawn(|| together(routes, SILENCE));
        let mut outcomes = one_after_another(routes, &[ENDS, TRAPS, MANY, BULK]);
        outcomes.extend(
            silent
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        );
        outcomes
    })
}

#[test]
fn plain_tcp_passes_every_case() {
    if !privileged("fidelity of plain TCP") {
        return;
    }
    let site = Site::plain(SiteConfig {
        scenario: fast_geo(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let mut routes = site.routes();
    for route in &mut routes {
        // That silence breaks nothing in the topology itself is soon seen.
        route.silence = SHORT_SILENCE;
    }
    let mut outcomes = all_cases(&routes);
    outcomes.extend(together(&routes, LOSS));
    judge(&outcomes, "");
}

#[test]
fn bentpipe_passes_every_case() {
    if !privileged("fidelity of bentpipe") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: fast_geo(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    judge(&all_cases(&site.routes()), &site.logs());
}

/// Site whose server takes in sealed flows at a port of its own.
fn sealed_site() -> Site {
    Site::start(SiteConfig {
        scenario: fast_geo(),
        server_tables: format!("[sle]\nlisten = \"{GATEWAY_SAT}:4434\"\n"),
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n[sle]\n".into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

#[test]
fn sealed_flows_pass_every_case() {
    if !privileged("fidelity of sealed flows") {
        return;
    }
    let site = sealed_site();
    let routes = site.routes();
    let mut outcomes = all_cases(&routes);
    outcomes.extend(together(&routes, LOSS));
    judge(&outcomes, &site.logs());
    all_are_sealed(&site, THOUSANDS).expect("sealed flows alone");
}

#[test]
fn sealed_flows_that_are_taken_in_on_their_way_pass_every_case() {
    if !privileged("fidelity of transparent sealed flows") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: fast_geo(),
        server_tables: format!(
            "[sle]\ninterfaces = [\"sat0\"]\nprefixes = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n\
             sources = [\"{TERMINAL_SAT}\", \"{TERMINAL_SAT6}\"]\n"
        ),
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n[sle]\nmode = \"transparent\"\n"
            .into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    judge(&all_cases(&site.routes()), &site.logs());
    all_are_sealed(&site, THOUSANDS).expect("sealed flows alone");
}

/// A site whose terminal and gateway carry the TCP connections of bentpipe on the hosts; the UDP of that passes by them.
fn between_hosts(carried: Carried) -> Site {
    Site::start(SiteConfig {
        scenario: fast_geo(),
        carried,
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\nother = \"direct\"\n".into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// All cases over flows that are sealed from host to host.
fn sealed_hosts_pass(site: &Site, routes: &[Route]) -> SealedHosts {
    let hosts = SealedHosts::start(site).expect("bentpipe on the hosts");
    let mut outcomes = all_cases(routes);
    outcomes.extend(together(routes, LOSS));
    judge(&outcomes, &format!("{}\n{}", site.logs(), hosts.logs()));
    let status = hosts.status().expect("status of the client");
    says_all_are_sealed(&status, THOUSANDS).expect("sealed flows alone");
    hosts
}

/// An operator's PEP between the two hosts splits their outer connections, and resets nothing of what is in them.
#[test]
fn sealed_flows_pass_every_case_through_splitters() {
    if !privileged("fidelity of sealed flows through splitters") {
        return;
    }
    let site = between_hosts(Carried::Distributed);
    let mut routes = site.routes();
    for route in &mut routes {
        route.silence = SHORT_SILENCE;
    }
    sealed_hosts_pass(&site, &routes);
}

/// The operator's accelerator is bentpipe itself: it carries outer connections in its tunnel, and nothing of what is said in them is
/// in its memory or on a wire. Nor does anything speak against a tunnel over TLS in its place.
#[test]
fn sealed_flows_pass_every_case_through_an_accelerator_that_never_sees_them() {
    if !privileged("fidelity of sealed flows through an accelerator") {
        return;
    }
    let site = between_hosts(Carried::Tunnel);
    let routes = site.routes();
    let hosts = sealed_hosts_pass(&site, &routes);
    unseen::expect_unseen(&site, &routes[0]).expect("an accelerator that sees nothing");
    hosts.stop().expect("an ordered stop");

    let hosts = SealedHosts::over_tls(&site).expect("bentpipe on the hosts");
    println!("ready over TLS after {:?}", hosts.ready_after);
    // TLS, QUIC and HELLO; the accelerator accepts TCP itself.
    assert!(
        (2 * RTT..=3 * RTT + SLACK).contains(&hosts.ready_after),
        "{:?}",
        hosts.ready_after
    );
    let outcomes = one_after_another(&routes, &[ENDS, BULK]);
    judge(&outcomes, &format!("{}\n{}", site.logs(), hosts.logs()));
    let status = hosts.status().expect("status of the client");
    assert_eq!(status["tunnel"]["wire"], "tls", "{status}");
}

/// TCP is that of the hosts, packet by packet; what the network says of it comes by the tunnel.
#[test]
fn packets_of_les_pass_every_case() {
    if !privileged("fidelity of LES") {
        return;
    }
    let config = layering();
    let client_tables = config
        .client_tables
        .replace("other = \"drop\"", "other = \"tunnel\"");
    let site = Site::start(SiteConfig {
        scenario: fast_geo(),
        client_tables,
        ..config
    })
    .expect("a site");
    until_it_stands(&site).expect("an association");
    let routes = site.routes();
    let mut outcomes = all_cases(&routes);
    outcomes.extend(together(&routes, LOSS));
    judge(&outcomes, &site.logs());
    // What both routes send from the web, without what is sent again.
    les_alone_has_carried(&site, 5_000_000).expect("LES alone");
}

#[test]
fn bentpipe_over_tls_passes_every_case() {
    if !privileged("fidelity of bentpipe over TLS") {
        return;
    }
    let config = SiteConfig {
        scenario: fast_geo(),
        ..SiteConfig::new(BENTPIPE)
    };
    let site = Site::start(config.with_tls("tls")).expect("a site");
    let routes = site.routes();
    let mut outcomes = all_cases(&routes);
    outcomes.extend(together(&routes, LOSS));
    judge(&outcomes, &site.logs());
    wire_is(&site, "tls").expect("the wire that was asked for");
}

/// SplitServer without a tunnel is held to the same.
fn split(carried: Carried, interface: &str) {
    if !privileged("fidelity of splitters") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: fast_geo(),
        carried,
        client_tables: format!("[intercept]\ninterfaces = [\"{interface}\"]\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let outcomes = one_after_another(&site.routes(), &[ENDS, TRAPS, MANY, BULK, LOSS]);
    judge(&outcomes, &site.logs());
}

#[test]
fn splitters_at_both_ends_pass_every_case() {
    split(Carried::Distributed, "lan0");
}

#[test]
fn a_splitter_at_the_terminal_passes_every_case() {
    split(Carried::IntegratedAtTerminal, "lan0");
}

#[test]
fn a_splitter_at_the_gateway_passes_every_case() {
    split(Carried::IntegratedAtGateway, "sat0");
}

#[test]
fn bentpipe_delivers_every_byte_before_a_reset_under_loss() {
    if !privileged("fidelity of bentpipe under loss") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: lossy_geo(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let routes = site.routes();
    // Losses fall anywhere: each round is another draw.
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.extend(together(&routes, LOSS));
    }
    outcomes.extend(together(&routes, ENDS));
    judge(&outcomes, &site.logs());
}

/// As many as keep both ends busy; a near satellite, because time is short and what is looked for is disorder.
#[test]
fn a_mixture_of_conversations_is_carried_whole() {
    if !privileged("fidelity of bentpipe in disorder") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: near(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let failures = mixture::hold(&site.routes(), 400, 60);
    assert!(
        failures.is_empty(),
        "\n{}\n{}",
        failures.join("\n"),
        site.logs()
    );
}

/// Places of connections that have said nothing, and of strangers, are free again for those that come after.
#[test]
fn thousands_of_sealed_flows_come_one_lot_after_the_other() {
    if !privileged("thousands of sealed flows") {
        return;
    }
    let site = sealed_site();
    for _ in 0..LOTS {
        judge(&together(&site.routes(), MANY), &site.logs());
    }
    all_are_sealed(&site, LOTS * THOUSANDS).expect("sealed flows alone");
}
