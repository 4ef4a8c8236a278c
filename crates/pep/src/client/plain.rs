//! A client with `transport = "plain"`: each connection that it takes in goes on as a TCP connection of its own, to a server
//! of the same kind (distributed) or to the destination (integrated).
//!
//! It shows what splitting alone is worth, and hides and proves nothing. To a server each connection begins with OPEN
//! and is answered with REPLY, as in the tunnel (`PROTOCOL.md` §12).

use std::rc::Rc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use super::carrier::Carrier;
use super::frontend::{FrontEnds, own_mark};
use super::running::until_stopped;
use super::splitter::Splitter;
use crate::config::{PlainClient, Role};
use crate::events;
use crate::metrics::Metrics;
use crate::process::{self, RunError};
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::status::StatusReport;
use crate::stop::{self, StopSignal};

/// Runs the client until SIGINT or SIGTERM.
pub(super) fn run(config: PlainClient) -> Result<(), RunError> {
    Needs::of_plain_client(&config).enter()?;
    let runtime = process::runtime()?;
    LocalSet::new().block_on(&runtime, serve(Rc::new(config)))
}

async fn serve(config: Rc<PlainClient>) -> Result<(), RunError> {
    let splitter = Rc::new(Splitter::new(config.clone(), own_mark(&config.front))?);
    // Signals first: whoever sees the status socket may send them, and ask for metrics.
    let mut stop = StopSignal::take()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let metrics = Metrics::bind(config.metrics.as_ref(), None)?;
    let status = process::status_socket(Role::Client, config.status_socket.as_ref())?;
    let front_ends = FrontEnds::start(&config.front, &Carrier::Plain(splitter.clone()), None)?;
    process::raise_file_limit();
    sandbox::announce();
    tracing::warn!("transport = \"plain\": what crosses is neither encrypted nor authenticated");
    match config.server {
        Some(server) => {
            tracing::info!(target: events::STATE, "ready: splitting TCP towards {server}");
        }
        None => {
            tracing::info!(target: events::STATE, "ready: splitting TCP towards its destinations");
        }
    }
    let snapshot = || StatusReport {
        rules: front_ends.rules(),
        kernel: front_ends.kernel(),
        events: events::last(),
        ..splitter.report()
    };
    let manager = ServiceManager::find();
    manager.ready();
    tokio::select! {
        () = status.serve(&snapshot) => {}
        () = metrics.serve(&snapshot) => {}
        () = manager.inform(&[], &snapshot) => {}
        () = async {
            until_stopped(&mut stop, &mut hangup, &config.file, None).await;
            stop::tell_of_first(config.drain_timeout);
            manager.stopping(config.drain_timeout);
            front_ends.drain().await;
            splitter.drain();
            let ended = async {
                splitter.until_idle().await;
                front_ends.until_delivered().await;
            };
            stop.drain(config.drain_timeout, ended).await;
        } => {}
    }
    front_ends.stop()
}
