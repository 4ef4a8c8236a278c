//! Rules of interception in step with the tunnel.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::tproxy::Front;
use super::wanted;
use crate::client::intercept::{Carrying, Interception};

/// Time for which the tunnel may be silent before what is taken in goes in clear, where it may.
const SILENT_FOR: Duration = Duration::from_secs(5);

/// Keeps the rules, which are as `current` has them, in step with what is `configured`, what the tunnel can reach, where its server
/// is, and, if that matters, whether it answers; never ends.
pub(super) async fn follow(front: Rc<Front>, configured: Interception, mut current: Interception) {
    let mut changes = front.carrier.reach();
    let mut silent_since = None;
    let mut attached = false;
    loop {
        let reach = changes.borrow_and_update().clone();
        // Not before: what leaves without an address of the device would be translated to one of another device, for the
        // life of its flow.
        if !attached && reach.addressed {
            attached = true;
            front.tell(|rules| rules.attach()).await;
        }
        front.doubts.on_server(reach.server);
        let now = Instant::now();
        let mut wanted = wanted::now(&configured, &reach, front.doubts.hold());
        let mut due = None;
        if wanted.fail_open {
            silent_since = silent_since.or(Some(now)).filter(|_| !reach.carries);
            due = silent_since.map(|since| since + SILENT_FOR);
            wanted.carrying = match due.is_none_or(|due| due > now) {
                true => Carrying::Yes,
                false => Carrying::No,
            };
        }
        if wanted.carrying != current.carrying {
            let text = if wanted.carrying == Carrying::Yes {
                "the tunnel carries what is taken in again"
            } else {
                "on_failure = \"direct\": what is taken in goes in clear until the tunnel answers"
            };
            tracing::warn!("{text}");
        }
        if wanted != current {
            let changed = wanted.clone();
            front.tell(move |rules| rules.update(&changed)).await;
            current = wanted;
        }
        let due = due.filter(|_| current.carrying == Carrying::Yes);
        let changed = tokio::select! {
            changed = changes.changed() => changed,
            () = front.doubts.changed() => Ok(()),
            () = sleep_until(due.unwrap_or(now)), if due.is_some() => Ok(()),
        };
        if changed.is_err() {
            return;
        }
    }
}
