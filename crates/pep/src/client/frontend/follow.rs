//! Rules of interception in step with the tunnel.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::tproxy::Front;
use super::wanted;
use crate::client::intercept::{Carrying, Interception};

/// Time after which a change that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(1);

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
        let mut outcome = Ok(());
        // Not before: what leaves without an address of the device would be translated to one of another device, for the
        // life of its flow.
        if !attached && reach.addressed {
            outcome = front.change(|rules| rules.attach()).await;
            attached = outcome.is_ok();
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
        if wanted != current {
            let changed = wanted.clone();
            match front.change(move |rules| rules.update(&changed)).await {
                Ok(()) => {
                    tell_of_carrying(current.carrying, wanted.carrying);
                    current = wanted;
                }
                Err(error) => outcome = Err(error),
            }
        }
        let due = match outcome {
            Ok(()) => due.filter(|_| current.carrying == Carrying::Yes),
            Err(_) => Some(Instant::now() + RETRY),
        };
        note(&front, outcome.err().as_ref());
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

/// Tells the log that what is taken in goes another way from now on, once it does.
fn tell_of_carrying(before: Carrying, now: Carrying) {
    match now {
        _ if now == before => {}
        Carrying::Yes => tracing::warn!("the tunnel carries what is taken in again"),
        Carrying::No | Carrying::Draining => tracing::warn!(
            "on_failure = \"direct\": what is taken in goes in clear until the tunnel answers"
        ),
    }
}

/// Tells log and `status` whether the rules follow.
fn note(front: &Front, fault: Option<&io::Error>) {
    let line = |reason: &str| {
        format!(
            "cannot change the interception rules: {reason}; what is taken in is treated as before; trying on"
        )
    };
    let over = "the interception rules follow again";
    front.faults.take("interception rules", fault, line, over);
}
