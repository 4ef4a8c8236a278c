//! Reports of daemons, got as an operator gets them: by `bentpipe status --json`.

use std::path::Path;

use anyhow::Result;
use bentpipe_lab::contender;
use serde_json::Value;

/// Report of the daemon whose status socket is at `socket`; `program` is bentpipe.
pub fn report(program: &str, socket: &Path) -> Result<Value> {
    contender::status(Path::new(program), socket)
}
