//! What a capture of the link must show.

use anyhow::{Result, ensure};
use bentpipe_lab::capture::Capture;

/// Fails if anything crossed but the tunnel, even the kernel's word that a daemon is gone.
pub fn expect_tunnel_alone(capture: Capture) -> Result<()> {
    let crossed = capture.stop()?;
    crossed.expect_only_tunnel()?;
    ensure!(crossed.tunnel_errors == 0, "crossed the link: {crossed}");
    Ok(())
}
