//! One run, from empty namespaces to a record.
//!
//! ```text
//!  topology ─► captures ─► contender ─► task ─► captures' and emulator's word ─► outcome, doubts
//! ```

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use super::Kit;
use super::bounds::Watch;
use super::done::{Done, Spent};
use super::judge::{Evidence, judge};
use super::keep::KeptFiles;
use super::perform::{TaskPlace, since};
use super::police::police;
use super::prepared::Prepared;
use crate::capture::{Capture, CaptureReport, ExpectedPackets};
use crate::contender::{AtWork, WEB_AUTHORITY, WEB_CERTIFICATE, WEB_KEY, hystart};
use crate::experiment::{Experiment, NamedScenario, Run, Task};
use crate::results::{Outcome, Record, Transaction};
use crate::workload::{
    Authority, DNS_PORT, DeviceBytes, Hosts, Resolver, Web, corpus, iperf3_version,
};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{
    Ground, LINK_DEVICE, RESOLVER, RESOLVER6, Topology, TopologyConfig,
};
use bentpipe_emulator::{EmulatorConfig, Live, Outputs};
use bentpipe_sys::netns::NetNs;

/// Devices towards the hosts, of terminal and gateway.
const LAN_DEVICES: [&str; 2] = ["lan0", "wan0"];

/// The link of one run.
pub(super) fn link(
    named: &NamedScenario,
    seed: bentpipe_units::Seed,
    live: Live,
) -> EmulatorConfig {
    let mut scenario = named.scenario.clone();
    scenario.general.seed = seed;
    EmulatorConfig {
        scenario,
        files: named.files.clone(),
        outputs: Outputs::default(),
        live,
    }
}

/// Seconds since 1970 by this machine's clock; 0 if that stands before it.
pub(super) fn since_1970() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// Makes the run, whatever comes of it.
///
/// # Errors
/// The machine failed, or `stop` was thrown: there is no result.
pub(super) fn measure(
    kit: &Kit,
    experiment: &Experiment,
    run: &Run,
    kept: Option<&KeptFiles>,
    stop: &Stop,
) -> Result<Record> {
    let start = Instant::now();
    let began = since_1970();
    let unknown = Outcome::Failed {
        reason: String::new(),
    };
    let mut record = Record {
        began,
        ..Record::new(run.key.clone(), run.seed, unknown)
    };
    match possible(kit, experiment, run) {
        Ok((task, version)) => {
            record.version = version;
            carry_out(kit, experiment, (run, task), kept, stop, &mut record)?;
        }
        Err(reason) => record.outcome = Outcome::Unsupported { reason },
    }
    record.took_s = since(start);
    Ok(record)
}

/// Task of a run, for users who speak the TLS of its contender's name, and the contender's version; or why it cannot be done here.
fn possible(kit: &Kit, experiment: &Experiment, run: &Run) -> Result<(Task, String), String> {
    let contender = &experiment.contenders[run.contender];
    let mut task = experiment.tasks[run.task].task;
    if let Some(tls) = contender.tls() {
        task = task.with_tls(tls)?;
    }
    if let Some(Err(reason)) = &kit.chromium
        && task.needs_chromium()
    {
        return Err(reason.clone());
    }
    if task.needs_udp() {
        contender.carries_udp(task.is_http3())?;
    }
    if task.needs_iperf3() {
        iperf3_version()?;
    }
    Ok((task, contender.version(&kit.available)?))
}

fn carry_out(
    kit: &Kit,
    experiment: &Experiment,
    (run, task): (&Run, Task),
    kept: Option<&KeptFiles>,
    stop: &Stop,
    record: &mut Record,
) -> Result<()> {
    let contender = &experiment.contenders[run.contender];
    let prepared = Prepared::new(task, run.seed.stream("content"));
    let live = Live::default();
    let named = &experiment.scenarios[run.scenario];
    // Until the topology is gone: its TCP is as the machine's parameter says.
    let _hystart = hystart::claim(contender.tcp(), stop)?;
    let topology = build(kit, experiment, run, kept, live.clone())?;
    let mut hosts = Hosts::of_topology(corpus::HOSTS);
    let authority = certify(&topology, &hosts)?;
    let resolver = match task.names_hold() {
        Some(ttl) => Some(resolver(&topology, &mut hosts, ttl)?),
        None => None,
    };
    let web = Web::start(topology.web(), &hosts, &authority)?;
    let watch = Watch::start(live)?;
    let routers = [topology.terminal(), topology.gateway()];
    let on_link = captures(
        contender.on_link(resolver.is_some()),
        routers,
        [LINK_DEVICE; 2],
    )?;
    let on_lans = captures(contender.on_lans(), routers, LAN_DEVICES)?;
    let site = (&topology, &hosts, authority);
    let (at_work, done) = work(kit, experiment, run, &prepared, site, stop)?;
    if stop.wait(Duration::ZERO) {
        bail!("interrupted");
    }
    // Splitters have no part in a call; who can be handed HTTP/3 has.
    let counted = !task.needs_udp() || contender.is_handed_http3();
    let carried = at_work.as_ref().filter(|_| counted);
    let carried = carried.map(|at_work| at_work.carried(&topology));
    match at_work.as_ref().map(AtWork::repairs).transpose() {
        Ok(repairs) => record.repairs = repairs.flatten(),
        Err(error) => {
            let text = format!("bentpipe does not say what it has repaired: {error:#}");
            record.doubts.push(text);
        }
    }
    // Before anything ends: what the kernel does then is not the contender's doing.
    let [crossed, on_lans] = [stop_all(on_link)?, stop_all(on_lans)?];
    let seen = watch.finish();
    let best = seen
        .best
        .map(|best| best.over(&named.scenario).behind(&named.behind));
    drop(at_work);
    kept.map_or(Ok(()), |place| place.take(topology.directory()))?;
    drop(web);
    let stats = topology.finish()?;
    stats.files_are_whole()?;
    record.outcome = outcome(done, &prepared, experiment.patience, record);
    judge(
        record,
        &prepared,
        best,
        &stats,
        &Evidence {
            crossed: &crossed,
            on_lans: &on_lans,
            readable: contender.is_readable(),
            ahead: contender.fetches_ahead(task.is_encrypted()),
            carried,
        },
    );
    if let (Outcome::Measured { .. }, Some(resolver)) = (&record.outcome, resolver) {
        let unasked = prepared.unasked(&hosts, &resolver.asked());
        record.doubts.extend(unasked);
    }
    let mut link = stats.to_json();
    if let Some(timeline) = seen.timeline {
        timeline.put_into(&mut link)?;
    }
    record.link = Some(link);
    Ok(())
}

/// Starts the contender and has users do the task; the contender, if it has started, and what was done.
fn work(
    kit: &Kit,
    experiment: &Experiment,
    run: &Run,
    prepared: &Prepared,
    (topology, hosts, mut authority): (&Topology, &Hosts, Authority),
    stop: &Stop,
) -> Result<(Option<AtWork>, Result<Done>)> {
    let counter = DeviceBytes::open(topology.terminal(), LINK_DEVICE)?;
    let (began, before) = (Instant::now(), counter.now()?);
    let started = experiment.contenders[run.contender].start(&kit.available, topology);
    let at_work = match started {
        Ok(at_work) => at_work,
        Err(error) => return Ok((None, Err(error))),
    };
    if let Some(pem) = at_work.local_authority() {
        authority.trust_beside(pem);
    }
    let place = TaskPlace {
        topology,
        hosts,
        authority: &authority,
        chromium: kit.chromium.as_ref().and_then(|found| found.as_ref().ok()),
    };
    let perform = || {
        if !experiment.tasks[run.task].task.is_cold() {
            return prepared.perform(&place, experiment.patience, stop);
        }
        let spent = Spent {
            time: began.elapsed(),
            bytes: counter.now()?.saturating_sub(before),
        };
        let left = experiment.patience.saturating_sub(spent.time);
        if left.is_zero() {
            return Ok(Done::Unfinished);
        }
        Ok(prepared.perform(&place, left, stop)?.after(spent))
    };
    let done = perform();
    Ok((Some(at_work), done))
}

/// Makes the nodes of a run, and the link between them.
fn build(
    kit: &Kit,
    experiment: &Experiment,
    run: &Run,
    kept: Option<&KeptFiles>,
    live: Live,
) -> Result<Topology> {
    let (contender, named) = (
        &experiment.contenders[run.contender],
        &experiment.scenarios[run.scenario],
    );
    let config = TopologyConfig {
        link: EmulatorConfig {
            outputs: kept.map(KeptFiles::outputs).unwrap_or_default(),
            ..link(named, run.seed.stream("link"), live)
        },
        prefix: kit.prefix.clone(),
        hosts: corpus::HOSTS,
    };
    let ground = Ground {
        tcp: contender.tcp(),
        initial_window: contender.initial_window(),
        end_hosts: named.end_hosts,
        behind: named.behind,
    };
    let topology = Topology::build_on(&config, ground)?;
    kept.map_or(Ok(()), |place| place.ask(topology.directory()))?;
    if let Some(rate) = named.udp_policer {
        police(&topology, rate)?;
    }
    Ok(topology)
}

/// Makes the web's certificate, and puts it where contenders find it.
fn certify(topology: &Topology, hosts: &Hosts) -> Result<Authority> {
    let authority = Authority::new()?;
    let [certificate, key] = authority.site(hosts.names().iter().map(String::as_str))?;
    for (file, text) in [
        (WEB_AUTHORITY, authority.pem()),
        (WEB_CERTIFICATE, certificate),
        (WEB_KEY, key),
    ] {
        fs::write(topology.directory().join(file), text)?;
    }
    // An origin takes no key that others may read.
    let closed = Permissions::from_mode(0o600);
    fs::set_permissions(topology.directory().join(WEB_KEY), closed)?;
    Ok(authority)
}

/// Outcome of a task that was `done`, and what else it says, for the `record`.
fn outcome(
    done: Result<Done>,
    prepared: &Prepared,
    patience: Duration,
    record: &mut Record,
) -> Outcome {
    let measured = |seconds, bytes| Outcome::Measured { seconds, bytes };
    match done {
        Ok(Done::Measured(seconds)) => measured(seconds, prepared.bytes()),
        Ok(Done::Loaded(loads)) => {
            let seconds = |ms: f64| ms / 1000.0;
            let paints = loads.iter().map(|load| load.paint_ms.map(seconds));
            record.first_paint_s = paints.collect();
            let loads = loads.iter().map(|load| seconds(load.load_ms));
            measured(loads.collect(), prepared.bytes())
        }
        Ok(Done::Spoken(call)) => {
            record.lost = Some(call.lost());
            let delays = call.delays.iter().map(Duration::as_secs_f64);
            measured(delays.collect(), call.bytes())
        }
        Ok(Done::Conversed(exchanges)) => {
            record.transactions = exchanges.iter().map(Transaction::from).collect();
            let times = exchanges.iter().map(|one| one.took.as_secs_f64());
            measured(times.collect(), prepared.bytes())
        }
        Ok(Done::Unfinished) => Outcome::Unfinished {
            after_s: patience.as_secs_f64(),
        },
        Err(error) => Outcome::Failed {
            reason: format!("{error:#}"),
        },
    }
}

/// Has users ask for the names of `hosts`, whose answers hold for `ttl`.
fn resolver(topology: &Topology, hosts: &mut Hosts, ttl: Duration) -> Result<Resolver> {
    let addresses = [RESOLVER.into(), RESOLVER6.into()];
    let resolver = Resolver::start(topology.web(), &addresses, hosts, ttl)?;
    *hosts = hosts.clone().asked_of((RESOLVER, DNS_PORT).into());
    Ok(resolver)
}

fn captures(
    expected: Option<ExpectedPackets>,
    nodes: [&NetNs; 2],
    devices: [&str; 2],
) -> Result<Vec<Capture>> {
    let Some(expected) = expected else {
        return Ok(Vec::new());
    };
    let start = |(node, device)| Capture::start(node, device, expected);
    nodes.into_iter().zip(devices).map(start).collect()
}

fn stop_all(captures: Vec<Capture>) -> Result<Vec<CaptureReport>> {
    captures.into_iter().map(Capture::stop).collect()
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{ByteCount, Seed};
    use serde_json::json;

    use super::*;
    use crate::experiment::{ContentKind, Direction, RunKey};

    #[test]
    fn a_page_without_a_first_paint_keeps_its_place() {
        let load = |paint_ms: Option<f64>| {
            let load = json!({ "load_ms": 2000.0, "paint_ms": paint_ms, "objects": 1, "bytes": 1, "protocols": [], "late": 0 });
            serde_json::from_value(load).unwrap()
        };
        let loads = vec![load(Some(500.0)), load(None), load(Some(700.0))];
        let task = Task::Transfer {
            size: ByteCount::new(1),
            direction: Direction::Down,
            warm_up: ByteCount::ZERO,
            cold: false,
            content: ContentKind::Binary,
        };
        let prepared = Prepared::new(task, Seed::new(1));
        let key = RunKey {
            contender: "c".into(),
            scenario: "s".into(),
            task: "t".into(),
            repeat: 1,
        };
        let mut record = Record::new(key, Seed::new(1), Outcome::Unfinished { after_s: 1.0 });
        let done = Ok(Done::Loaded(loads));
        let measured = outcome(done, &prepared, Duration::ZERO, &mut record);
        assert!(matches!(measured, Outcome::Measured { seconds, .. } if seconds == [2.0; 3]));
        assert_eq!(record.first_paint_s, [Some(0.5), None, Some(0.7)]);
    }
}
