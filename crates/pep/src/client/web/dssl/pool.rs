//! K1 connections that wait for another request.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use super::k1::K1;
use super::line::ObjectLine;
use crate::client::web::Owner;
use crate::process;

/// Time for which a connection waits; origins wait longer.
const IDLE: Duration = Duration::from_secs(30);

/// Connections that wait, of all browsers.
const MAX_IDLE: usize = 64;

struct WaitingK1 {
    owner: Owner,
    name: String,
    since: Instant,
    k1: K1,
}

/// Connections that wait, the longest first, and lines of those that are at work.
#[derive(Default)]
pub(super) struct K1Pool {
    waiting: RefCell<Vec<WaitingK1>>,
    lines: RefCell<Vec<(Owner, Weak<ObjectLine>)>>,
    /// None waits any more: the client stops.
    closed: Cell<bool>,
}

impl K1Pool {
    /// One to the origin `name` that `owner` may use; for a page one by which objects come, and rather one that brings none now: several
    /// sessions of a host share these connections, and a new page ends what is under way for the one before.
    pub(super) fn take(&self, owner: &Owner, name: &str, page: bool) -> Option<K1> {
        self.sweep();
        let mut waiting = self.waiting.borrow_mut();
        let fits = |one: &WaitingK1| one.owner == *owner && one.name == name;
        waiting.retain_mut(|one| !fits(one) || one.k1.is_quiet());
        let alive = |one: &WaitingK1| one.k1.line().is_some_and(|line| line.is_alive());
        let best = |one: &WaitingK1| fits(one) && alive(one) == page;
        let busy = |one: &WaitingK1| one.k1.line().is_some_and(|line| line.is_busy());
        let found = match page {
            // The longest, for promises of the last pages may not have come yet.
            true => {
                let resting = waiting.iter().position(|one| best(one) && !busy(one));
                resting.or_else(|| waiting.iter().position(best))?
            }
            false => {
                let found = waiting.iter().rposition(best);
                found.or_else(|| waiting.iter().rposition(fits))?
            }
        };
        Some(waiting.remove(found).k1)
    }

    /// One may be used again.
    pub(super) fn put(&self, owner: Owner, name: &str, k1: K1) {
        if self.closed.get() {
            return;
        }
        self.note(&owner, k1.line());
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= MAX_IDLE {
            waiting.remove(0);
        }
        waiting.push(WaitingK1 {
            owner,
            name: name.to_owned(),
            since: process::now(),
            k1,
        });
    }

    /// Remembers by which line objects of `owner` come.
    pub(super) fn note(&self, owner: &Owner, line: Option<&Rc<ObjectLine>>) {
        let mut lines = self.lines.borrow_mut();
        lines.retain(|(_, line)| line.strong_count() > 0);
        if let Some(line) = line {
            let own = Rc::downgrade(line);
            if !lines.iter().any(|(_, other)| other.ptr_eq(&own)) {
                lines.push((owner.clone(), own));
            }
        }
    }

    /// True if promises to `owner` may be under way.
    pub(super) fn expects(&self, owner: &Owner) -> bool {
        let lines = self.lines.borrow();
        let mut own = lines.iter().filter(|(other, _)| other == owner);
        own.any(|(_, line)| line.upgrade().is_some_and(|line| line.expects()))
    }

    /// Ends those that wait, and keeps none from now on.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.waiting.borrow_mut().clear();
    }

    /// Ends those that have waited long enough.
    pub(super) fn sweep(&self) {
        let now = process::now();
        let stays = |one: &mut WaitingK1| now.saturating_duration_since(one.since) < IDLE;
        self.waiting.borrow_mut().retain_mut(stays);
    }
}
