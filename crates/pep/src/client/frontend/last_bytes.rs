//! Bytes for hosts, and ends of their connections, that are the kernel's affair by now: the rules stay until hosts have them.
//!
//! A connection that is over for its relay is one for the kernel still: of a host that reads slowly it may hold megabytes. The host's
//! acknowledgements reach it by the rules alone. Without them they go on to the destination, which knows nothing of them, and the
//! connection stands still or is reset.

use std::time::Duration;

use bentpipe_sys::live_sockets::undelivered;
use tokio::time::sleep;

/// Between looks at what the kernel still has to deliver.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until hosts have acknowledged all that came for them by connections that were taken in; for how long is the caller's affair.
pub(super) async fn until_delivered() {
    loop {
        match undelivered() {
            Ok(0) => return,
            Ok(_) => sleep(LOOK).await,
            Err(error) => {
                tracing::info!(
                    "hosts that read slowly may miss their last bytes, for the kernel does not tell what it has for them: {error}; it needs \
                     CONFIG_INET_DIAG (OpenWrt: kmod-inet-diag)"
                );
                return;
            }
        }
    }
}
