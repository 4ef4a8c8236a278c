//! What a contender lets out in clear: everything is tried, in every state of its life, and the link is watched.
//!
//! A user and the terminal itself send all that a machine can send, from before the contender's start to after its stop,
//! while either end is killed, stopped, restarted, and the link fails. What crosses at the terminal's end of the link is
//! judged packet by packet; whatever is not the tunnel's for certain is in clear. So is what leaves the gateway towards the
//! web with another address than the gateway's.
//!
//! ```text
//!  prober ─ user ── terminal ─ prober
//!                      │ sat0 ◄── capture, one for each state
//!                      ╧ link ╤ gateway ─ wan0 ── web
//!                                          ◄── inner.rs
//! ```

mod inner;
mod probe;
mod states;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::capture::{Capture, CaptureReport, ExpectedPackets};
use crate::contender::{Available, Contender};
use bentpipe_emulator::Stop;
use bentpipe_emulator::scenario::preset;
use bentpipe_emulator::topology::{LINK_DEVICE, Topology, TopologyConfig, WEB, WEB6};

use inner::InnerWatch;
pub use probe::Prober;
use probe::Sink;
use states::{LeakRun, states};

/// Time for which each state is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// Long enough for twenty rounds of probes.
    Quick,
    /// A hundred.
    Full,
}

impl Thoroughness {
    fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 1,
            Self::Full => 5,
        })
    }
}

/// Traffic that crossed in one state.
#[derive(Debug)]
pub struct LeakRow {
    /// State that the contender was in.
    pub state: &'static str,
    /// Traffic that crossed meanwhile.
    pub crossed: CaptureReport,
}

/// Traffic that crossed in each state.
#[derive(Debug)]
pub struct Leaks {
    /// Contender that was tried.
    pub contender: String,
    /// In order.
    pub rows: Vec<LeakRow>,
}

impl Leaks {
    /// Account of what crossed in clear in all states, for the operator: packets beside the tunnel, and the tunnel's own whose content
    /// could be read; `None` if there was neither.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let sum = |of: fn(&CaptureReport) -> u64| -> u64 {
            self.rows.iter().map(|row| of(&row.crossed)).sum()
        };
        let beside = sum(|crossed| crossed.clear_packets);
        let readable = sum(|crossed| crossed.readable_own);
        let faults = [
            (beside, "crossed the link in clear"),
            (readable, "of the tunnel held readable content"),
        ];
        let faults = faults.into_iter().filter(|(packets, _)| *packets > 0);
        let faults: Vec<_> = faults
            .map(|(packets, what)| format!("{packets} packets {what}"))
            .collect();
        (!faults.is_empty()).then(|| faults.join(", "))
    }
}

/// Tries `contender` in every state. `prefix` is what the names of its namespaces begin with; `say` hears how it goes.
///
/// # Errors
/// It has no tunnel to be told by, cannot be started here, or did not come up.
pub fn run(
    contender: &Contender,
    available: &Available,
    prefix: &str,
    thoroughness: Thoroughness,
    stop: &Stop,
    say: &mut dyn FnMut(&str),
) -> Result<Leaks> {
    let name = contender.name();
    let own = contender.on_link(false);
    let own = own.with_context(|| format!("{name} has no tunnel: all that it does is in clear"))?;
    let missing = |reason| anyhow::anyhow!("{name}: {reason}");
    contender.version(available).map_err(missing)?;
    let topology = Topology::build(&TopologyConfig {
        link: preset("geo").context("there is no preset geo")?.into(),
        prefix: prefix.to_owned(),
        hosts: 0,
    })?;
    let quiet = Arc::new(AtomicBool::new(false));
    let mut run = LeakRun::new(
        contender,
        available,
        &topology,
        thoroughness.time(),
        quiet.clone(),
    );
    let mut rows = Vec::new();
    run.arm()?;
    let _sinks = (
        Sink::start(topology.web(), WEB.into())?,
        Sink::start(topology.web(), WEB6.into())?,
    );
    let probers = [
        Prober::start(topology.user())?,
        Prober::start_unless(topology.terminal(), quiet)?,
    ];
    for (state, step) in states() {
        ensure!(!stop.wait(Duration::ZERO), "stopped");
        say(state);
        let crossed = watched(&topology, own, || step(&mut run))
            .with_context(|| format!("{name}, {state}"))?;
        for packet in &crossed.clear {
            say(&format!("  {packet}"));
        }
        rows.push(LeakRow { state, crossed });
    }
    drop(probers);
    Ok(Leaks {
        contender: name.to_owned(),
        rows,
    })
}

/// Does `step` while the link is watched.
fn watched(
    topology: &Topology,
    own: ExpectedPackets,
    step: impl FnOnce() -> Result<()>,
) -> Result<CaptureReport> {
    let capture = Capture::start(topology.terminal(), LINK_DEVICE, own)?;
    let inner = InnerWatch::start(topology.gateway())?;
    let done = step();
    let mut crossed = capture.stop()?;
    let inner = inner.stop()?;
    if inner > 0 {
        crossed.clear_packets += inner;
        crossed.clear_kinds.insert("inner address".into(), inner);
    }
    done?;
    ensure!(
        crossed.missed == 0,
        "the capture missed {} packets: there is no knowing what crossed",
        crossed.missed
    );
    Ok(crossed)
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<34}   tunnel  in clear  readable  what was in clear",
            self.contender
        )?;
        for LeakRow { state, crossed } in &self.rows {
            let own = crossed.tunnel_packets + crossed.idle_packets;
            write!(
                f,
                "{state:<34}{own:>9}{:>10}{:>10}  ",
                crossed.clear_packets, crossed.marker_packets
            )?;
            writeln!(f, "{}", kinds(&crossed.clear_kinds))?;
        }
        Ok(())
    }
}

fn kinds(kinds: &BTreeMap<String, u64>) -> String {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(kind, number)| format!("{kind} {number}"))
        .collect();
    match kinds.is_empty() {
        true => "nothing".to_owned(),
        false => kinds.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(clear_packets: u64, readable_own: u64) -> Option<String> {
        let crossed = CaptureReport {
            clear_packets,
            readable_own,
            marker_packets: clear_packets + readable_own,
            ..CaptureReport::default()
        };
        let row = LeakRow {
            state: "running",
            crossed,
        };
        let leaks = Leaks {
            contender: "c".into(),
            rows: vec![row],
        };
        leaks.fault()
    }

    #[test]
    fn a_tunnel_that_can_be_read_is_a_fault() {
        assert_eq!(fault(0, 0), None);
        let clear = "2 packets crossed the link in clear";
        let readable = "3 packets of the tunnel held readable content";
        assert_eq!(fault(2, 0).as_deref(), Some(clear));
        assert_eq!(fault(0, 3).as_deref(), Some(readable));
        assert_eq!(fault(2, 3), Some(format!("{clear}, {readable}")));
    }
}
