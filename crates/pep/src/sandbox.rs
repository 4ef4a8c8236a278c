//! What a daemon needs once it has started, read off its configuration; the rest is given up (`sys/sandbox`).
//!
//! Entered while the process has one thread, so that shards, resolvers and tools are held as well. Whatever the kernel
//! cannot do is told in the log and in `status`, and the daemon runs without it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
use bentpipe_config::directory;

#[cfg(target_os = "linux")]
use crate::config::PepConfig;
use crate::config::{ClientConfig, OriginConfig, Placed, PlainClient, PlainServer, ServerConfig};
use crate::process::{Diagnosis, RunError};
use crate::status::SandboxStatus;

/// Once for each process, as what it describes.
static ENTERED: OnceLock<SandboxStatus> = OnceLock::new();

/// Restrictions that are in force; `None`: none.
pub(crate) fn entered() -> Option<SandboxStatus> {
    ENTERED.get().cloned()
}

/// Tells the log. Once nothing else can go wrong: a daemon that cannot start says why in one line.
pub(crate) fn announce() {
    match ENTERED.get() {
        Some(entered) if entered.files == "enforced" => tracing::debug!("sandbox: {entered}"),
        Some(entered) => tracing::info!(
            "sandbox: {entered}: this kernel closes no more (Landlock is whole from Linux 6.12 on, where it is built in and switched on)"
        ),
        None => tracing::info!("sandbox: none, all privileges are kept"),
    }
}

/// Needs of a daemon.
#[derive(Debug)]
pub(crate) struct Needs<'a> {
    /// `sandbox` of the configuration.
    enabled: bool,
    /// True if it configures the network.
    network: bool,
    /// True if it answers in others' place.
    raw: bool,
    /// The configuration, and the private key that it names.
    read: Vec<&'a Path>,
    /// The directory of what is remembered.
    state_dir: Option<&'a Path>,
    status_socket: Option<&'a Path>,
    /// The directory of traces.
    qlog: Option<&'a Path>,
}

impl<'a> Needs<'a> {
    /// Of a client with a tunnel.
    pub(crate) fn of_client(config: &'a ClientConfig, diagnosis: &'a Diagnosis) -> Self {
        Self {
            enabled: config.sandbox,
            network: config.front.intercept.is_some() || !config.publish.is_empty(),
            raw: config.front.intercept.is_some(),
            read: [
                config.file.as_path(),
                config.identity.private_key_file.as_path(),
            ]
            .into_iter()
            .chain(path(config.front.dssl.roots.file.as_ref()))
            .chain(
                config
                    .front
                    .les
                    .iter()
                    .filter_map(|les| les.psk_file.as_deref()),
            )
            .collect(),
            state_dir: Some(&config.state_dir),
            status_socket: path(config.monitoring.status_socket.as_ref()),
            qlog: diagnosis.qlog.as_deref(),
        }
    }

    /// Of an origin, which reads its certificate again when that was renewed.
    pub(crate) fn of_origin(config: &'a OriginConfig) -> Self {
        Self {
            enabled: config.sandbox,
            network: false,
            raw: false,
            read: vec![&config.file, &config.certificate, &config.key],
            state_dir: None,
            status_socket: path(config.monitoring.status_socket.as_ref()),
            qlog: None,
        }
    }

    /// Of a server with tunnels.
    pub(crate) fn of_server(config: &'a ServerConfig, diagnosis: &'a Diagnosis) -> Self {
        let mut read: Vec<&Path> = vec![&config.file, &config.identity.private_key_file];
        let roots = config.web.tls.as_ref().or(config.web.hub.as_ref());
        read.extend(path(roots.and_then(|roots| roots.file.as_ref())));
        read.extend(config.les().and_then(|les| les.psk_file.as_deref()));
        Self {
            enabled: config.sandbox,
            network: true,
            raw: false,
            read,
            state_dir: Some(&config.state_dir),
            status_socket: path(config.monitoring.status_socket.as_ref()),
            qlog: diagnosis.qlog.as_deref(),
        }
    }

    /// Of an operator's PEP.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_pep(config: &'a PepConfig, diagnosis: &'a Diagnosis) -> Self {
        Self {
            enabled: config.sandbox,
            network: true,
            raw: false,
            read: vec![&config.file, &config.identity.private_key_file],
            state_dir: Some(&config.state_dir),
            status_socket: path(config.monitoring.status_socket.as_ref()),
            qlog: diagnosis.qlog.as_deref(),
        }
    }

    /// Of a client that splits TCP. Some congestion controllers need CAP_NET_ADMIN.
    pub(crate) fn of_plain_client(config: &'a PlainClient) -> Self {
        Self {
            enabled: config.sandbox,
            network: config.front.intercept.is_some() || config.controller.is_some(),
            raw: config.front.intercept.is_some(),
            read: vec![&config.file],
            state_dir: None,
            status_socket: path(config.status_socket.as_ref()),
            qlog: None,
        }
    }

    /// Of a server that splits TCP.
    pub(crate) fn of_plain_server(config: &'a PlainServer) -> Self {
        Self {
            enabled: config.sandbox,
            network: config.controller.is_some(),
            raw: false,
            read: vec![&config.file],
            state_dir: None,
            status_socket: path(config.status_socket.as_ref()),
            qlog: None,
        }
    }

    /// Gives up everything else, for good.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(crate) fn enter(&self) -> Result<(), RunError> {
        Ok(())
    }

    /// Gives up everything else, for good.
    #[cfg(target_os = "linux")]
    pub(crate) fn enter(&self) -> Result<(), RunError> {
        use bentpipe_sys::sandbox::{Files, Sandbox};

        if !self.enabled {
            return Ok(());
        }
        let sandbox = Sandbox {
            network: self.network,
            raw: self.raw,
            paths: self.paths(),
        };
        let entered = sandbox.enter()?;
        let files = match entered.files {
            Files::Enforced => "enforced",
            Files::Partly => "partly",
            Files::Unavailable => "unavailable",
        };
        if entered.files != Files::Unavailable {
            crate::status::on_closed_files();
        }
        // Two daemons of one process would be held by both sandboxes; the first one's word is kept.
        let _ = ENTERED.set(SandboxStatus {
            capabilities: entered.capabilities,
            no_new_privs: entered.no_new_privileges,
            files: files.to_owned(),
        });
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn paths(&self) -> Vec<(PathBuf, bentpipe_sys::sandbox::Access)> {
        use std::fs;

        use bentpipe_sys::sandbox::Access;

        let mut paths = Vec::new();
        for file in &self.read {
            // Editors rename a new file into place, so the rule is its directory's.
            paths.push((directory(file).to_owned(), Access::Read));
            // The file itself may be elsewhere, if this is a link.
            if let Ok(target) = fs::canonicalize(file) {
                paths.push((directory(&target).to_owned(), Access::Read));
            }
        }
        for written in [self.state_dir, self.qlog].into_iter().flatten() {
            // A rule needs something to hold on to. If it cannot be made, whoever writes there will say so.
            let _ = fs::create_dir_all(written);
            paths.push((written.to_owned(), Access::Write));
        }
        if let Some(socket) = self.status_socket {
            paths.push((directory(socket).to_owned(), Access::Sockets));
        }
        for run in crate::status::run_directories() {
            paths.push((run, Access::Write));
        }
        paths
    }
}

fn path(placed: Option<&Placed<PathBuf>>) -> Option<&Path> {
    placed.map(|placed| placed.as_path())
}
