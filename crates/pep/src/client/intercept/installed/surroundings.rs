//! Faults of the machine's interfaces and routes for which an interception keeps the LAN in: the operator alone mends them. And settings
//! of the machine that an interception changes, and what is put back, or left in force, at the end.

use std::io;

use bentpipe_sys::link::{self, Port};
use bentpipe_sys::nft::Table;
use bentpipe_sys::policy_rule::PolicyRule;
use bentpipe_sys::route::MarkedRoute;

use super::super::lan::{self, Lan};
use super::super::{Interception, barrier, guard};
use super::Installed;
use crate::firewall::{GUARD_TABLE, Setting, Settings, close_passages};

/// Fate of an interception that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenDropped {
    /// All of it is removed.
    Removed,
    /// All of it stays, as if the process had been killed.
    Stays,
    /// The rules of a client that was killed were there: with these in their place they stay until a client runs.
    Inherited,
}

impl Installed {
    /// Names of intercepted interfaces that no interface has now: it was removed, or has another name. What comes in by
    /// one that was renamed is dropped.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        self.lan.missing()
    }

    /// Intercepted interfaces that are ports of others now. What comes in by these others is dropped.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        self.lan.ports()
    }

    /// Removes table and route, with an error if that fails (dropping would swallow it).
    ///
    /// # Errors
    /// `nft` or `ip` or the privilege is missing.
    pub fn remove(mut self) -> io::Result<()> {
        self.when_dropped = WhenDropped::Stays;
        self.remove_all()
    }

    /// Leaves all of it in force, as a client does that is killed. The next [`Interception::install`] replaces it.
    pub fn leave(mut self) {
        self.when_dropped = WhenDropped::Stays;
    }

    /// Has a drop remove all of it from now on, what a killed client left as well: the client runs.
    pub fn own(&mut self) {
        self.when_dropped = WhenDropped::Removed;
    }

    /// True if what is taken in goes in clear while no client runs.
    #[must_use]
    pub const fn fails_open(&self) -> bool {
        self.current.fail_open
    }

    fn remove_all(&mut self) -> io::Result<()> {
        // First, while the table marks what the second line lets pass.
        if let Some(hold) = self.hold.take() {
            hold.remove()?;
        }
        let_go(&self.settings, &self.table)?;
        self.routes.iter().try_for_each(MarkedRoute::remove)
    }

    /// Bars what comes in past the interfaces that have become ports of others, and no more what did, in the guard as well.
    pub(super) fn hold_surfaces(&self) -> io::Result<()> {
        let wanted = barrier::of_client(&self.current, &self.lan.surfaces());
        wanted.iter().try_for_each(PolicyRule::add)?;
        barrier::remove(barrier::Holder::Client, &wanted)?;
        renewed_guard(&self.current)
    }

    /// Has all other interfaces heed marks, if routing rules drop what has none.
    pub(super) fn heed_marks(&mut self) -> io::Result<()> {
        if barrier::of_client(&self.current, &[]).is_empty() {
            return Ok(());
        }
        self.change(&Setting::unheeded()?)
    }

    /// Keeps frames of bridges from the tables of IP, if one of `interfaces` is a bridge: what comes in by it would lose its listener.
    pub(super) fn keep_bridges_out(&mut self) -> io::Result<()> {
        let taken = |link: &link::Link| link.bridge && self.current.interfaces.contains(&link.name);
        match link::links()?.iter().any(taken) {
            true => self.change(&Setting::lacking(&[], false, None, true)),
            false => Ok(()),
        }
    }

    /// Gives these settings the values that they are to have.
    fn change(&mut self, lacking: &[Setting]) -> io::Result<()> {
        lacking
            .iter()
            .try_for_each(|setting| self.settings.mend(setting, &self.table))?;
        match lacking.is_empty() {
            true => Ok(()),
            false => self.remember(),
        }
    }
}

/// Puts the guard in force for `it` where it is on for other interfaces: nobody else has taken away what it lacks.
pub(super) fn brought_up_to_date(it: &Interception, lan: &Lan) -> io::Result<()> {
    let present = barrier::present(barrier::Holder::Guard)?;
    let wanted = barrier::of_guard(it, &lan.surfaces());
    match wanted.iter().all(|rule| present.contains(rule)) {
        true => Ok(()),
        false => renewed_guard(it),
    }
}

/// Puts the guard in force again if it is on: interfaces that were not there then may be ports of others.
pub(super) fn renewed_guard(it: &Interception) -> io::Result<()> {
    match guard::is_on()? {
        true => it.guard(),
        false => Ok(()),
    }
}

/// Puts `settings` back and removes what keeps the LAN in, the `table` last.
pub(in crate::client::intercept) fn let_go(settings: &Settings, table: &Table) -> io::Result<()> {
    // While the table still keeps in what is forwarded.
    let guarded = !barrier::present(barrier::Holder::Guard)?.is_empty();
    if guarded {
        settings.hand_over_marks(&Table::new(GUARD_TABLE));
    }
    let restored = settings.restore(guarded);
    close_passages()?;
    barrier::remove(barrier::Holder::Client, &[])?;
    lan::let_out()?;
    table.remove()?;
    restored
}

impl Drop for Installed {
    fn drop(&mut self) {
        match self.when_dropped {
            WhenDropped::Removed => {
                // Drop cannot report; what stays is found and replaced at the next start.
                let _ = self.remove_all();
            }
            WhenDropped::Stays => {}
            WhenDropped::Inherited => tracing::warn!(
                "the rules of the client that ran before stay in force, and what they take in is not carried until a client runs"
            ),
        }
    }
}
