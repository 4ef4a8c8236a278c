//! Things of other programs in the kernel that are in an interception's way: routes that lead hosts of the LAN elsewhere, rules
//! that are asked before ours, firewalls that drop what is forwarded. Looked at when a notice says so, and once a minute.

use std::io;

use bentpipe_sys::policy_rule::StrayRoute;
use bentpipe_sys::watch::{Change, Object};
use ipnet::IpNet;

use super::Wanted;
use super::ahead::{RuleAhead, rules_ahead};
use crate::firewall::Passage;
use crate::kernel::{ClosedPassages, LastLook};
use crate::process;

/// Findings of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Routes that lead addresses of the LAN elsewhere. What is for these, on connections that are carried, is dropped.
    pub strays: Vec<StrayRoute>,
    /// Rules that take away what is to be carried.
    pub ahead: Vec<RuleAhead>,
    /// Chains that drop what is forwarded and have no rules of ours.
    pub passages: Vec<Passage>,
}

/// Prefixes and interfaces that a look was for.
type LookedFor = (Vec<IpNet>, Vec<u32>, bool);

/// Things of other programs as they were at the last look.
#[derive(Debug, Default)]
pub struct ForeignLook {
    strays: LastLook<Vec<StrayRoute>>,
    ahead: LastLook<Vec<RuleAhead>>,
    passages: ClosedPassages,
    wanted: LookedFor,
}

impl ForeignLook {
    /// Notes changes that the kernel has told of.
    pub fn notice(&mut self, changes: &[Change]) {
        let routing = |change: &Change| {
            matches!(
                change.object,
                Object::Route(_)
                    | Object::DaemonRoute(_)
                    | Object::Rule
                    | Object::Link(_)
                    | Object::Address(_)
                    | Object::Unknown
            )
        };
        if changes.iter().any(routing) {
            self.spoil_routing();
        }
        self.passages.notice(changes);
    }

    /// Notes that a way was opened through a chain of a firewall.
    pub fn forget_passages(&mut self) {
        self.passages.forget();
    }

    fn spoil_routing(&mut self) {
        self.strays.spoil();
        self.ahead.spoil();
    }

    /// Things in the way of `wanted`.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn look(&mut self, wanted: &Wanted) -> io::Result<Foreign> {
        let now = process::now();
        let lan = &wanted.lan;
        let asked = (
            lan.prefixes().to_vec(),
            lan.indices().to_vec(),
            wanted.attached,
        );
        if asked != self.wanted {
            self.spoil_routing();
            self.wanted = asked;
        }
        let strays = self.strays.see(now, || {
            Ok(lan.strays().unwrap_or_else(|error| {
                // What is dropped is dropped all the same.
                tracing::debug!(
                    "routes that lead hosts of the LAN elsewhere are not looked for: {error}"
                );
                Vec::new()
            }))
        })?;
        Ok(Foreign {
            strays: strays.clone(),
            ahead: self.ahead.see(now, || rules_ahead(wanted))?.clone(),
            passages: match wanted.device {
                Some(_) => self.passages.see(now)?.to_vec(),
                None => Vec::new(),
            },
        })
    }
}
