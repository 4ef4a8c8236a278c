//! `bentpipe measure`: what the tunnel is worth on the user's own link, by transfers past it and through it in turns.
//!
//! ```text
//!   Wishes ──► Plan ──► rounds: direct, tunnel, tunnel, direct … ──► Pairs ──► Comparison ──► Report
//!              plan.rs          transfer.rs over road.rs             statistics.rs       report.rs, page.rs
//! ```
//!
//! Through the tunnel means by the running client: its SOCKS5 or HTTP front end, else its interception. Nothing here is part of
//! the daemon.

mod page;
mod plan;
mod report;
mod road;
mod standing;
mod statistics;
mod target;
mod transfer;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use bentpipe_units::ByteCount;
use bentpipe_units::TimeSpan;
use thiserror::Error;
use tokio::time::sleep_until;

use crate::config::{ClientConfig, ClientFile};
use crate::process;
pub use plan::{NoPlan, Plan, TaskKind, Way, Wishes};
pub use report::{Failures, Report, Row};
pub use statistics::{Comparison, Conclusion, Pair};
use target::Target;

/// Reason why something could not be measured, and the mend.
#[derive(Debug, Error)]
pub enum Fault {
    /// The client has nothing that this machine's connections could take.
    #[error(
        "this file leads no connection of this machine into the tunnel; add `[socks5]` with \
         `listen = \"127.0.0.1:1080\"` and start the client again"
    )]
    NoFrontEnd,
    /// The client has no tunnel to measure.
    #[error("`transport = \"plain\"` has no tunnel to measure")]
    NoTunnel,
    /// The running client does not answer.
    #[error(
        "the client's front end at {0} does not answer ({1}); is `bentpipe client` running with this file?"
    )]
    FrontEnd(SocketAddr, #[source] io::Error),
    /// The mark cannot be set.
    #[error(
        "connections past the interception need CAP_NET_ADMIN ({0}); run `bentpipe measure` as root"
    )]
    Mark(#[source] io::Error),
    /// The host does not answer.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, #[source] io::Error),
    /// The connection was not opened or did not hold.
    #[error("refused: {0}")]
    Refused(String),
    /// HTTP failed.
    #[error("the transfer with {host} broke off: {why}")]
    Http {
        /// Host that was asked.
        host: String,
        /// Cause of the failure.
        why: String,
    },
    /// The answer is shorter than what was to be transferred.
    #[error(
        "{host} holds {found} bytes there, fewer than the {asked} to measure; name a larger file, or choose a smaller --size"
    )]
    Short {
        /// Host that was asked.
        host: String,
        /// Bytes of the answer.
        found: u64,
        /// Bytes that were asked for.
        asked: u64,
    },
    /// The host answered with another status than success.
    #[error("answered with status {0}")]
    Status(u16),
    /// The URL is elsewhere.
    #[error("the URL leads on to {0}; measure that")]
    Redirected(String),
    /// A transfer did not end.
    #[error("a transfer took longer than {}", TimeSpan::new(*.0))]
    TooSlow(Duration),
    /// The URL cannot be used.
    #[error("{0}")]
    Url(String),
    /// The host has no address that this machine reaches past the tunnel.
    #[error("{0} has no address that this machine reaches past the tunnel")]
    NoAddress(String),
    /// The client has no tunnel that answers, for this reason.
    #[error(
        "the tunnel is not up, so there is nothing to measure: {0}; `bentpipe doctor` and the client's log say more"
    )]
    Down(String),
    /// The server has no responder.
    #[error(
        "no responder answers through the tunnel ({0}); add `[responder]` to the server's file, or name a `--url`"
    )]
    NoResponder(String),
    /// The responder does not answer past the tunnel.
    #[error("through the tunnel the responder answers, past it not: {why}; {mend}")]
    Closed {
        /// Reason of the failure.
        why: String,
        /// Change that lets it answer.
        mend: String,
    },
    /// More than the responder yields.
    #[error("the server's responder transfers at most {0}; choose a smaller --size")]
    Size(ByteCount),
    /// The wishes cannot be met.
    #[error(transparent)]
    Plan(#[from] NoPlan),
    /// Not one pair is complete.
    #[error("nothing was measured: {0}")]
    Nothing(String),
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Fault {
    /// True if the command line is at fault, whatever the network does.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Url(_) | Self::Plan(_))
    }

    /// Fault of a transfer with `host` that HTTP broke off.
    fn http(host: &str, error: &hyper::Error) -> Self {
        // What hyper says itself is that there is an error.
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self::Http {
            host: host.to_owned(),
            why: cause.to_string(),
        }
    }
}

/// Measures by the client of `file`, against `url` or else its server's responder. Tells `tell` the plan before the first
/// transfer, and each round as it ends.
///
/// # Errors
/// [`Fault`]: nothing was measured.
pub fn run(
    file: &ClientFile,
    url: Option<&str>,
    wishes: &Wishes,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, Fault> {
    process::runtime()?.block_on(measure(file, url, wishes, tell))
}

async fn measure(
    file: &ClientFile,
    url: Option<&str>,
    wishes: &Wishes,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, Fault> {
    let ClientFile::Tunnel(config) = file else {
        return Err(Fault::NoTunnel);
    };
    let kinds = match url {
        Some(_) => TaskKind::OF_URL,
        None => TaskKind::ALL,
    };
    // Before anything is sent: what cannot be is refused at once.
    let plan = Plan::new(kinds, wishes)?;
    if let Some(fault) = standing::lack(config) {
        tell(&format!("{fault}; waiting for it"));
    }
    let blamed = |fault| blame(config, fault);
    let target = match url {
        Some(url) => Target::url(config, url).await,
        None => Target::responder(config, &plan).await,
    };
    let mut target = target.map_err(blamed)?;
    let mut report = Report::new(
        target.name(),
        target.through(),
        process::since_1970(),
        &plan,
    );
    tell(&report.heading());
    target.try_both().await.map_err(blamed)?;
    for round in 0..plan.rounds() {
        let begun = process::now();
        target.renew(&plan).await?;
        for (row, kind) in report.rows.iter_mut().zip(plan.kinds()) {
            let mut seconds = [None; 2];
            for way in Plan::order(round) {
                let outcome = target.transfer(*kind, way, plan.bytes_of(*kind)).await;
                match outcome {
                    Ok(took) => seconds[way as usize] = Some(took.as_secs_f64()),
                    Err(fault @ (Fault::Mark(_) | Fault::FrontEnd(..) | Fault::Short { .. })) => {
                        return Err(fault);
                    }
                    Err(fault) => row.failed(way, &fault),
                }
            }
            if let [Some(direct_s), Some(tunnel_s)] = seconds {
                row.add(Pair { direct_s, tunnel_s });
            }
        }
        tell(&format!("round {} of {} done", round + 1, plan.rounds()));
        if round + 1 < plan.rounds() {
            sleep_until((begun + target.pause(&plan)).into()).await;
        }
    }
    report.conclude()
}

/// The fault that is to be told where `fault` was met: without a tunnel, nobody can answer through it.
fn blame(config: &ClientConfig, fault: Fault) -> Fault {
    let through = matches!(
        fault,
        Fault::NoResponder(_)
            | Fault::Refused(_)
            | Fault::Connect(..)
            | Fault::Http { .. }
            | Fault::Io(_)
            | Fault::TooSlow(_)
    );
    let lack = || standing::lack(config).map(Fault::Down);
    through.then(lack).flatten().unwrap_or(fault)
}
