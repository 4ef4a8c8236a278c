//! `bentpipe guard`: a table of its own that keeps traffic in while no client runs.

use std::path::Path;

use thiserror::Error;

use crate::config::{self, ConfigError};
use crate::process::RunError;

/// Reason why the guard could not be changed or shown.
#[derive(Debug, Error)]
pub enum GuardError {
    /// The configuration is at fault.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system is.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Puts the guard in force, for what the client's file at `path` intercepts.
///
/// # Errors
/// The file is wrong or intercepts nothing; `nft` or the privilege is missing.
#[cfg(target_os = "linux")]
pub fn on(path: &Path) -> Result<(), GuardError> {
    let file = config::intercepting(path)?;
    let front = file.front();
    if let Some(intercept) = &front.intercept {
        let wanted = crate::client::frontend::wanted::interception(front, intercept);
        let lacking = |error| RunError::privilege(&intercept.place, &error);
        wanted.guard().map_err(lacking)?;
    }
    Ok(())
}

/// Removes the guard; one that is not there is no error.
///
/// # Errors
/// `nft` or the privilege is missing.
#[cfg(target_os = "linux")]
pub fn off() -> Result<(), GuardError> {
    crate::client::intercept::guard_off().map_err(|error| RunError::Io(error).into())
}

/// The guard's rules with their counters, as `nft` lists them; `None` if it is off.
///
/// # Errors
/// `nft` or the privilege is missing.
#[cfg(target_os = "linux")]
pub fn listing() -> Result<Option<String>, GuardError> {
    crate::client::intercept::guard_listing().map_err(|error| RunError::Io(error).into())
}
