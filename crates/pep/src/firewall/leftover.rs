//! Words for what a daemon that stops in order cannot take out of the kernel again.

use std::io;

use bentpipe_sys::device::NAME;

use super::passage::COMMENT;

/// Warns, if removing it failed, that `what` stays, and says how it is removed `by_hand`.
pub(crate) fn tell_of_leftover(what: &str, removed: io::Result<()>, by_hand: &str) {
    if let Err(error) = removed {
        tracing::warn!(
            "{what} stays in the kernel: {error}; the next start replaces it, or remove it by hand: {by_hand}"
        );
    }
}

/// [`tell_of_leftover`] of our table of this name.
pub(crate) fn tell_of_table(name: &str, removed: io::Result<()>) {
    let by_hand = format!("`nft delete table inet {name}`");
    tell_of_leftover(&format!("table inet {name}"), removed, &by_hand);
}

/// [`tell_of_leftover`] of our rules of policy routing that have this `priority`, and which `what` names.
pub(crate) fn tell_of_rules(what: &str, removed: io::Result<()>, priority: u32) {
    let by_hand = ["-4", "-6"].map(|family| format!("`ip {family} rule del priority {priority}`"));
    tell_of_leftover(what, removed, &by_hand.join(", "));
}

/// [`tell_of_leftover`] of our rules in chains of other programs.
pub(crate) fn tell_of_passages(closed: io::Result<()>) {
    let what = format!("what lets the packets of {NAME} pass in chains of other programs");
    let by_hand = format!(
        "`nft delete rule FAMILY TABLE CHAIN handle N` for what `nft -a list ruleset` shows with the comment `{COMMENT}`"
    );
    tell_of_leftover(&what, closed, &by_hand);
}
