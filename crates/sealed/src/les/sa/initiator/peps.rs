//! PEPs of end A: who is handed K2, and when.

use std::time::Instant;

use super::super::Step;
use super::super::granting::Granting;
use super::super::message::PepKey;
use super::{Asked, Initiator};

impl Initiator {
    /// Says whether B has accepted this PEP before.
    pub(super) fn accepts(&self, pep: PepKey) -> bool {
        self.plan.accepted.contains(&pep)
    }

    /// Hands K2 to a PEP that has connected again, which has a number of its own for that.
    pub fn introduce(&mut self, pep: PepKey) {
        if !self.plan.peps.contains(&pep) {
            return;
        }
        let (mut asked, mut current) = (self.asked.take(), self.current.take());
        // B has not said yet whether it accepts one that is new.
        let begun = asked.as_mut().filter(|_| self.accepts(pep));
        for granting in [
            current
                .as_mut()
                .filter(|current| current.peps.contains(&pep))
                .map(|current| &mut current.granting),
            begun.and_then(Asked::granting),
        ] {
            granting
                .into_iter()
                .for_each(|granting| self.grant(pep, granting));
        }
        (self.asked, self.current) = (asked, current);
    }

    /// Queues Q4 for one PEP; a new association is due where no number is left for it.
    pub(super) fn grant(&mut self, pep: PepKey, granting: &mut Granting) {
        match granting.grant(pep, &mut self.plan) {
            Some(grant) => self.steps.push_back(Step::Grant(pep, Box::new(grant))),
            None => self.changed = true,
        }
    }

    /// Has the next association, which is due at once, include this PEP; the one before goes on until
    /// then.
    pub fn admit(&mut self, pep: PepKey) {
        if !self.plan.peps.contains(&pep) {
            self.plan.peps.push(pep);
            self.changed = true;
            self.not_before = None;
        }
    }

    /// Takes a PEP's rights: nothing more is sealed under keys that it has, and the next association
    /// is without it. For [`LAST_WORDS`](super::super::LAST_WORDS) it can reset connections that it
    /// has acknowledged for.
    pub fn revoke(&mut self, now: Instant, pep: PepKey) {
        if !self.plan.peps.contains(&pep) {
            return;
        }
        self.plan.peps.retain(|own| *own != pep);
        self.plan.accepted.remove(&pep);
        self.live.retire(now);
        if let Some(current) = self.current.take() {
            self.retired = Some(current.token);
        }
        self.asked = None;
        (self.at_once, self.changed) = (true, true);
        self.not_before = None;
        self.steps.push_back(Step::Withdraw(pep));
    }
}
