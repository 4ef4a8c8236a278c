//! Grants: what A wants of its associations, and how it hands K2 to PEPs.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::super::{HeaderRoot, Roots, SpiPair, Writer};
use super::LINGER;
use super::message::{Grant, Handshake, PepKey};

/// Time after which an association is renewed, 1 h.
pub const REKEY: Duration = Duration::from_secs(3600);

/// Time for which a PEP keeps K2: less than the ends receive by it, so that one which has missed the
/// next can still reset what it had acknowledged.
const LIFETIME: Duration = Duration::from_secs(REKEY.as_secs() + LINGER.as_secs() - 30);

/// Associations as the operator of A wants them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Flow of messages.
    pub handshake: Handshake,
    /// Destinations at B's side whose TCP goes this way.
    pub selectors: Vec<IpNet>,
    /// PEPs that are to have K2.
    pub peps: Vec<PepKey>,
    /// Outer addresses of A and B.
    pub ends: [IpAddr; 2],
    /// PEPs that have had K2 from A before this tunnel stood: they may have acknowledged bytes.
    pub introduced: BTreeSet<PepKey>,
    /// PEPs that B has accepted before: they have K2 with Q1, others when B has answered.
    pub accepted: BTreeSet<PepKey>,
}

/// K2 of an association, with the writers' numbers that are left.
pub(super) struct Granting {
    spis: SpiPair,
    root: HeaderRoot,
    /// Next number. `None`: all have been given out.
    next: Option<u8>,
}

impl Granting {
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            spis: roots.spis(),
            root: roots.header().clone(),
            next: Some(Writer::FIRST_PEP.get()),
        }
    }

    /// Q4 for `pep`, with a number that nobody else has had. `None`: none is left.
    pub(super) fn grant(&mut self, pep: PepKey, plan: &mut Plan) -> Option<Grant> {
        let number = self.next?;
        self.next = number.checked_add(1);
        Some(Grant {
            spis: self.spis,
            ends: plan.ends,
            selectors: plan.selectors.clone(),
            writer: Writer::new(number),
            root: self.root.clone(),
            lifetime: LIFETIME,
            renewed: !plan.introduced.insert(pep),
        })
    }
}
