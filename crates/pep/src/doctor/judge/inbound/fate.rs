//! Fate of a packet at a chain: the rules that may accept it, and those that may drop it.

use std::cell::Cell;

use bentpipe_sys::nftables::BaseChain;

use super::condition::{Condition, FilteredPacket, Truth};
use super::listing::{Effect, PacketRule, TableListing};

/// Depth of jumps, beyond which the kernel takes none.
const DEEPEST: u32 = 16;

/// Jumps that are followed in one chain. Those of 16 levels could lead through more rules than anybody waits for.
const MOST_JUMPS: u32 = 10_000;

/// Fate of a packet at a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// The chain does not drop all such packets by itself.
    Passes,
    /// A rule that names the port accepts packets under conditions of its own.
    Opened(String),
    /// The chain drops the packet, unless this rule accepts it.
    Unclear(String),
    /// The chain drops the packet.
    Dropped,
}

/// A rule that decides.
#[derive(Debug, Clone)]
pub(super) struct Decider {
    pub(super) rule: String,
    /// True if the conditions hold, as far as they can be told.
    pub(super) is_sure: bool,
    pub(super) names_port: bool,
}

/// Ends that a packet may come to in a chain, or by a rule.
#[derive(Debug, Default)]
struct Ends {
    accepted: Option<Decider>,
    dropped: Option<Decider>,
    /// The packet gets another destination.
    translated: Option<Decider>,
    /// Some way leads on to what follows.
    goes_on: bool,
    /// Some way leads out of the chain.
    returns: bool,
}

impl Ends {
    fn accept(&mut self, by: Decider) {
        let weight = |one: &Decider| (one.names_port, one.is_sure);
        let known = self.accepted.as_ref();
        if known.is_none_or(|known| weight(known) < weight(&by)) {
            self.accepted = Some(by);
        }
    }

    fn drop(&mut self, by: Decider) {
        let known = self.dropped.as_ref();
        if known.is_none_or(|known| !known.is_sure && by.is_sure) {
            self.dropped = Some(by);
        }
    }

    fn translate(&mut self, by: Decider) {
        let weight = |one: &Decider| (one.is_sure, one.names_port);
        let known = self.translated.as_ref();
        if known.is_none_or(|known| weight(known) < weight(&by)) {
            self.translated = Some(by);
        }
    }

    /// Ends of one step after the other, each with whether its conditions hold, and whether they name the port.
    fn of(steps: impl Iterator<Item = (Truth, bool, Self)>) -> Self {
        let mut ends = Self::default();
        for (holds, names_port, step) in steps {
            let by = |by: Decider| Decider {
                is_sure: by.is_sure && holds == Truth::Yes,
                names_port: by.names_port || names_port,
                ..by
            };
            if let Some(decider) = step.accepted {
                ends.accept(by(decider));
            }
            if let Some(decider) = step.dropped {
                ends.drop(by(decider));
            }
            if let Some(decider) = step.translated {
                ends.translate(by(decider));
            }
            ends.returns |= step.returns;
            if holds == Truth::Yes && !step.goes_on {
                return ends;
            }
        }
        ends.goes_on = true;
        ends
    }
}

/// Rule of the base chain `chain` of the table `listing` that gives `packet` another destination, if there is one.
pub(super) fn translation(
    chain: &BaseChain,
    listing: &TableListing,
    packet: &FilteredPacket,
) -> Option<Decider> {
    ends(chain, listing, packet).translated
}

/// Rule of the base chain `chain` of the table `listing` that drops `packet`, if there is one.
pub(super) fn dropping(
    chain: &BaseChain,
    listing: &TableListing,
    packet: &FilteredPacket,
) -> Option<String> {
    ends(chain, listing, packet).dropped.map(|by| by.rule)
}

/// Ends that `packet` may come to at the base chain `chain` of the table `listing`.
fn ends(chain: &BaseChain, listing: &TableListing, packet: &FilteredPacket) -> Ends {
    let walk = Walk {
        listing,
        packet,
        jumps: Cell::new(0),
    };
    let mut ends = walk.through(&chain.name, 0);
    if ends.goes_on {
        let policy = Decider {
            rule: "the policy".to_owned(),
            is_sure: true,
            names_port: false,
        };
        match chain.drops {
            true => ends.drop(policy),
            false => ends.accept(policy),
        }
    }
    ends
}

/// Fate of `packet` at the base chain `chain` of the table `listing`.
pub(super) fn at(chain: &BaseChain, listing: &TableListing, packet: &FilteredPacket) -> Fate {
    let ends = ends(chain, listing, packet);
    match (ends.accepted, ends.dropped) {
        (_, None) => Fate::Passes,
        (None, Some(_)) => Fate::Dropped,
        // Rules against some senders.
        (Some(_), Some(dropped)) if !dropped.is_sure => Fate::Passes,
        (Some(accepted), _) if accepted.names_port => match accepted.is_sure {
            true => Fate::Passes,
            false => Fate::Opened(accepted.rule),
        },
        (Some(accepted), Some(_)) => Fate::Unclear(accepted.rule),
    }
}

/// Way of a packet through the chains of a table.
struct Walk<'a> {
    listing: &'a TableListing,
    packet: &'a FilteredPacket,
    /// Jumps that were followed so far.
    jumps: Cell<u32>,
}

impl Walk<'_> {
    /// True if a rule at this `depth` may lead on to another chain.
    fn may_jump(&self, depth: u32) -> bool {
        let jumps = self.jumps.get();
        self.jumps.set(jumps + 1);
        depth < DEEPEST && jumps < MOST_JUMPS
    }

    fn through(&self, chain: &str, depth: u32) -> Ends {
        let steps = self.listing.rules(chain).iter().filter_map(|rule| {
            let holds = rule.conditions.iter().map(|it| it.holds_for(self.packet));
            let holds = holds.min().unwrap_or(Truth::Yes);
            let step = || {
                (
                    holds,
                    self.names_port(rule),
                    self.by(rule, &rule.effect, depth),
                )
            };
            (holds != Truth::No).then(step)
        });
        let mut ends = Ends::of(steps);
        ends.goes_on |= std::mem::take(&mut ends.returns);
        ends
    }

    /// Ends that `effect` of `rule` leads to.
    fn by(&self, rule: &PacketRule, effect: &Effect, depth: u32) -> Ends {
        let decider = |is_sure| {
            Some(Decider {
                rule: rule.text.clone(),
                is_sure,
                names_port: false,
            })
        };
        let mut ends = Ends::default();
        match effect {
            Effect::Nothing => ends.goes_on = true,
            Effect::Accept => ends.accepted = decider(true),
            Effect::Drop => ends.dropped = decider(true),
            Effect::Return => ends.returns = true,
            Effect::Jump(chain) | Effect::Goto(chain) if self.may_jump(depth) => {
                ends = self.through(chain, depth + 1);
                if matches!(effect, Effect::Goto(_)) {
                    ends.returns = std::mem::take(&mut ends.goes_on);
                }
            }
            Effect::Map(elements) => {
                let elements = elements.iter().filter_map(|(condition, effect)| {
                    let holds = condition.holds_for(self.packet);
                    let step = || (holds, false, self.by(rule, effect, depth));
                    (holds != Truth::No).then(step)
                });
                ends = Ends::of(elements);
            }
            Effect::Translate => {
                (ends.accepted, ends.dropped) = (decider(false), decider(false));
                ends.translated = decider(true);
                ends.goes_on = true;
            }
            Effect::Unknown | Effect::Jump(_) | Effect::Goto(_) => {
                (ends.accepted, ends.dropped) = (decider(false), decider(false));
                ends.goes_on = true;
            }
        }
        ends
    }

    /// True if `rule` is about the port, by a condition or by its number in what cannot be read.
    fn names_port(&self, rule: &PacketRule) -> bool {
        let port = self.packet.port.map(|port| port.to_string());
        let mut words = rule.text.split(|c: char| !c.is_ascii_alphanumeric());
        let met = |it: &Condition| it.is_about_port() && it.holds_for(self.packet) == Truth::Yes;
        rule.conditions.iter().any(met) || port.is_some_and(|port| words.any(|word| word == port))
    }
}
