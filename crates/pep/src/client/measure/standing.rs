//! Standing of the running client's tunnel, by the client's own word: where a measurement fails for want of a tunnel, that is the reason.

use crate::config::{ClientConfig, Role};
use crate::status;

/// Reason why the client of `config` has no tunnel that answers; `None` if it has one, or cannot be asked.
pub(super) fn lack(config: &ClientConfig) -> Option<String> {
    let socket = config.monitoring.status_socket.as_deref();
    let socket = socket.map(std::path::PathBuf::as_path);
    let report = status::query(socket, Some(Role::Client)).ok()?;
    report
        .tunnel_fault()
        .filter(|_| report.runs_on(&config.file))
}
