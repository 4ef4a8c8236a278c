//! What a run did, and whether its figures may be believed.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use bentpipe_link::{Counters, TerminalProbe};
use bentpipe_units::TimeSpan;
use serde_json::{Value, json};

use super::health::KernelDrops;
use super::lateness::Lateness;
use super::snapshot::{counts, direction, micros};

/// One packet in a hundred may leave the emulator this much later than the model says.
pub const TOLERABLE_LATENESS: Duration = Duration::from_millis(1);

/// Report of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatorStats {
    /// Name of the scenario.
    pub scenario: String,
    /// The root of its random numbers.
    pub seed: bentpipe_units::Seed,
    /// From start to stop.
    pub duration: TimeSpan,
    /// Verdict on the figures: may they be believed, and if not, why.
    pub verdict: Verdict,
    /// Gateway to terminals, all together.
    pub forward_link: Counters,
    /// Terminals to gateway, all together.
    pub return_link: Counters,
    /// Each terminal at the end.
    pub terminals: Vec<TerminalProbe>,
    /// Packets on the way between gateway and web, from the web and to it, where that way is emulated.
    pub behind_gateway: Option<[Counters; 2]>,
    /// Health of the emulator itself.
    pub emulator: Health,
    /// Reason why probes, packet log or capture are not whole, if they are not. The link was not disturbed by that.
    pub file_fault: Option<String>,
}

/// Health of the emulator itself.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Health {
    /// Lateness of packets when they were written, against the model's instants.
    pub lateness: Lateness,
    /// Sleeps that ended more than [`TOLERABLE_LATENESS`] after their time.
    pub late_wakeups: u64,
    /// Packets that the model delivered and a device refused: losses that are not the model's.
    pub write_errors: u64,
    /// Packets of the gateway that no terminal's networks have.
    pub unroutable: u64,
    /// Frames that an offload had merged before they were read.
    pub merged_frames: u64,
    /// Packets that the kernel dropped around the emulator.
    pub kernel_drops: KernelDrops,
    /// Records that found the writer's channel full: probes, log or capture lack them.
    pub records_lost: u64,
    /// CPU time of the emulator's thread.
    pub cpu: TimeSpan,
    /// CPU time for each packet delivered, in microseconds.
    pub cpu_us_per_packet: f64,
    /// The thread ran with real-time priority.
    pub real_time: bool,
}

/// Verdict on a run's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing but the model delayed or dropped packets.
    Valid,
    /// Faults of the run, one sentence each.
    Invalid(Vec<String>),
}

impl Verdict {
    /// Valid if both are; else the reasons of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Valid, other) => other,
            (reasons, Self::Valid) => reasons,
            (Self::Invalid(mut reasons), Self::Invalid(more)) => {
                reasons.extend(more);
                Self::Invalid(reasons)
            }
        }
    }
}

impl Health {
    /// The verdict on a run.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut reasons = Vec::new();
        let p99 = self.lateness.p99.get();
        if p99 > TOLERABLE_LATENESS {
            reasons.push(format!(
                "one packet in a hundred was delivered {p99:.1?} late or more, above {TOLERABLE_LATENESS:?}: \
                 the machine is too busy"
            ));
        }
        let counted = [
            (self.write_errors, "packets were refused by a device"),
            (
                self.kernel_drops.device,
                "packets were dropped by the kernel before the emulator could read them",
            ),
            (
                self.kernel_drops.socket_buffers,
                "datagrams were dropped at full socket buffers of their receivers: raise SO_RCVBUF there",
            ),
            (
                self.merged_frames,
                "frames had been merged by an offload: `ethtool -K INTERFACE gro off lro off`, and \
                 `tso off gso off` at the other end of a veth pair",
            ),
        ];
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        reasons.extend(counted.map(|(count, what)| format!("{count} {what}")));
        if reasons.is_empty() {
            Verdict::Valid
        } else {
            Verdict::Invalid(reasons)
        }
    }

    fn object(&self) -> Value {
        let lateness = &self.lateness;
        json!({
            "packets": lateness.packets,
            "lateness_p50_us": micros(lateness.p50.get()),
            "lateness_p99_us": micros(lateness.p99.get()),
            "lateness_p999_us": micros(lateness.p999.get()),
            "lateness_max_us": micros(lateness.max.get()),
            "late_wakeups": self.late_wakeups,
            "write_errors": self.write_errors,
            "unroutable": self.unroutable,
            "merged_frames": self.merged_frames,
            "dropped_by_kernel": {
                "device": self.kernel_drops.device,
                "socket_buffers": self.kernel_drops.socket_buffers,
            },
            "records_lost": self.records_lost,
            "cpu_s": self.cpu.get().as_secs_f64(),
            "cpu_us_per_packet": self.cpu_us_per_packet,
            "real_time": self.real_time,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("VALID"),
            Self::Invalid(reasons) => write!(f, "INVALID: {}", reasons.join("; ")),
        }
    }
}

impl EmulatorStats {
    /// Makes sure that the files of the run are whole.
    ///
    /// # Errors
    /// The files are not whole; the text says why.
    pub fn files_are_whole(&self) -> Result<()> {
        match &self.file_fault {
            Some(fault) => bail!("{fault}"),
            None => Ok(()),
        }
    }

    /// JSON object of the report: numbers have their units in their names, as those of probes have.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (verdict, reasons): (_, &[String]) = match &self.verdict {
            Verdict::Valid => ("VALID", &[]),
            Verdict::Invalid(reasons) => ("INVALID", reasons),
        };
        let terminals = self.terminals.iter().map(|terminal| {
            json!({
                "name": terminal.name,
                "forward": direction(&terminal.forward_link, None),
                "return": direction(&terminal.return_link, None),
            })
        });
        let behind = self.behind_gateway.as_ref();
        let behind = behind.map(
            |[from_web, to_web]| json!({ "from_web": counts(from_web), "to_web": counts(to_web) }),
        );
        json!({
            "scenario": self.scenario,
            "seed": self.seed,
            "duration_s": self.duration.get().as_secs_f64(),
            "verdict": verdict,
            "reasons": reasons,
            "forward_link": counts(&self.forward_link),
            "return_link": counts(&self.return_link),
            "terminals": terminals.collect::<Vec<_>>(),
            "behind_gateway": behind,
            "emulator": self.emulator.object(),
            "file_fault": self.file_fault,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_valid_until_something_speaks_against_it() {
        let good = Health::default();
        assert_eq!(good.verdict().to_string(), "VALID");
        let late = Health {
            lateness: Lateness {
                p99: Duration::from_micros(1001).into(),
                ..Lateness::default()
            },
            ..good
        };
        assert!(
            late.verdict()
                .to_string()
                .starts_with("INVALID: one packet in a hundred")
        );
        let valid = |other: &Health| Verdict::Valid.and(other.verdict()).to_string();
        assert_eq!(valid(&good), "VALID");
        assert!(valid(&late).starts_with("INVALID: one"));
        let Verdict::Invalid(reasons) = late.verdict().and(late.verdict()) else {
            panic!("both were late");
        };
        assert_eq!(reasons.len(), 2);
        assert_eq!(late.verdict().and(Verdict::Valid), late.verdict());
        let dropped = Health {
            kernel_drops: KernelDrops {
                device: 3,
                socket_buffers: 1,
            },
            ..good
        };
        let text = dropped.verdict().to_string();
        assert!(
            text.contains("3 packets were dropped") && text.contains("SO_RCVBUF"),
            "{text}"
        );
    }
}
