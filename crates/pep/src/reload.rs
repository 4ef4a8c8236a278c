//! Words of a daemon that has read its file again, of which it takes over a part.

use std::path::Path;

use crate::events;
use crate::process::join;

/// Says what a reload of `file` has `taken` over, and which other keys have `changed` since `daemon` was started, which needs a restart.
pub(crate) fn tell_of_reload(file: &Path, taken: Option<String>, changed: &[String], daemon: &str) {
    let (file, keys) = (file.display(), join(changed));
    match (taken, changed.is_empty()) {
        (Some(taken), true) => tracing::info!(target: events::STATE, "reloaded: {taken}"),
        (Some(taken), false) => tracing::warn!(
            target: events::STATE,
            "reloaded: {taken}; {keys} of {file} changed since the start as well; restart {daemon} for that"
        ),
        (None, true) => tracing::info!("nothing to reload: {file} is as it was at the start"),
        (None, false) => tracing::warn!(
            "nothing was reloaded: {keys} of {file} changed since the start; restart {daemon}"
        ),
    }
}
