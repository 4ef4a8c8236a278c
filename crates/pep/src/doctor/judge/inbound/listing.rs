//! A table as `nft list table` writes it: rules of its chains, elements of its sets.

use std::collections::BTreeMap;

use super::condition::{Condition, unquoted};

/// Rules of a table by chain, and elements of its sets by name.
#[derive(Debug, Default)]
pub(super) struct TableListing {
    is_dormant: bool,
    chains: BTreeMap<String, Vec<PacketRule>>,
}

/// One rule of a chain.
#[derive(Debug)]
pub(super) struct PacketRule {
    /// The rule without its counters and its comment.
    pub(super) text: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) effect: Effect,
}

/// Fate of a packet that meets all conditions of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// The next rule decides.
    Nothing,
    Accept,
    /// Dropped, or refused with an answer.
    Drop,
    Return,
    Jump(String),
    Goto(String),
    /// The first element whose condition is met decides.
    Map(Vec<(Condition, Self)>),
    /// The packet gets another destination.
    Translate,
    /// What comes of it cannot be told from the rule.
    Unknown,
}

/// Statements after which the fate of a packet is another program's affair.
const ELSEWHERE: [&str; 7] = [
    "snat",
    "masquerade",
    "tproxy",
    "queue",
    "synproxy",
    "fwd",
    "vmap",
];

/// Words of `log` that have a value behind them.
const LOG_OPTIONS: [&str; 6] = [
    "prefix",
    "group",
    "level",
    "snaplen",
    "queue-threshold",
    "flags",
];

impl TableListing {
    /// Reads what `nft list table` has written.
    pub(super) fn read(text: &str) -> Self {
        let blocks = blocks(text);
        let mut sets = BTreeMap::new();
        for (kind, name, lines) in &blocks {
            if *kind == "set"
                && let Some(elements) = lines
                    .iter()
                    .find_map(|line| line.strip_prefix("elements = "))
            {
                sets.insert(*name, elements);
            }
        }
        let chains = blocks.iter().filter(|(kind, ..)| *kind == "chain");
        let chains = chains.map(|(_, name, lines)| {
            let rules = lines.iter().filter(|line| !line.starts_with("type "));
            let rules = rules.map(|line| rule(line, &sets)).collect();
            ((*name).to_owned(), rules)
        });
        let of_table = text.lines().map(str::trim);
        let mut flags = of_table.filter(|line| line.starts_with("flags "));
        Self {
            is_dormant: flags.any(|line| line.contains("dormant")),
            chains: chains.collect(),
        }
    }

    /// True if its chains are not in force.
    pub(super) fn is_dormant(&self) -> bool {
        self.is_dormant
    }

    /// Rules of a chain, in order; none if there is no such chain.
    pub(super) fn rules(&self, chain: &str) -> &[PacketRule] {
        self.chains.get(chain).map_or(&[], Vec::as_slice)
    }
}

/// Kind, name and lines of each block of a table; what is spread over several lines between braces is one.
fn blocks(text: &str) -> Vec<(&str, &str, Vec<String>)> {
    let mut blocks: Vec<(&str, &str, Vec<String>)> = Vec::new();
    let mut begun = String::new();
    for line in text.lines().map(str::trim) {
        let head: Vec<_> = line.split(' ').collect();
        if let [kind @ ("chain" | "set" | "map"), name, "{"] = head[..] {
            blocks.push((kind, name, Vec::new()));
            continue;
        }
        begun.push_str(line);
        let is_open = begun.matches('{').count() > begun.matches('}').count();
        if is_open && !begun.starts_with("table ") {
            begun.push(' ');
            continue;
        }
        let whole = std::mem::take(&mut begun);
        if let Some((.., lines)) = blocks.last_mut()
            && !["", "}"].contains(&whole.as_str())
        {
            lines.push(whole);
        }
    }
    blocks
}

/// Words of a rule; what stands in quotes or braces is one.
pub(super) fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => rest[1..].find('"').map(|at| at + 2),
            '{' => rest.find('}').map(|at| at + 1),
            _ => rest.find(char::is_whitespace),
        };
        let (word, tail) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(word);
        rest = tail.trim_start();
    }
    words
}

/// Elements of sets, as written, by name.
pub(super) type Sets<'a> = BTreeMap<&'a str, &'a str>;

fn rule(line: &str, sets: &Sets<'_>) -> PacketRule {
    let words = without_counts(&words(line));
    let mut conditions = Vec::new();
    let mut effect = Effect::Nothing;
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        if let Some(known) = verdict(rest) {
            effect = known;
            break;
        }
        rest = match rest {
            ["log", tail @ ..] => after_log(tail),
            ["meta" | "ct", _, "set", _, tail @ ..]
            | ["xt", "target", "\"LOG\"" | "\"NFLOG\"", tail @ ..]
            | ["notrack", tail @ ..] => tail,
            _ => {
                let (condition, mapped, tail) = Condition::read(rest, sets);
                conditions.extend(condition);
                effect = mapped.unwrap_or(effect);
                tail
            }
        };
    }
    PacketRule {
        text: words.join(" "),
        conditions,
        effect,
    }
}

/// Words of a rule without its counters and its comment.
fn without_counts<'a>(mut rest: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    while let Some((first, tail)) = rest.split_first() {
        rest = match (*first, tail) {
            ("counter", ["packets", _, "bytes", _, tail @ ..])
            | ("counter", ["name", _, tail @ ..])
            | ("comment", [_, tail @ ..]) => tail,
            ("counter", tail) => tail,
            (word, tail) => {
                kept.push(word);
                tail
            }
        };
    }
    kept
}

/// Effect that the words of a verdict have, if they are one.
pub(super) fn verdict(words: &[&str]) -> Option<Effect> {
    Some(match words {
        ["accept", ..] => Effect::Accept,
        ["drop" | "reject", ..] => Effect::Drop,
        ["return", ..] => Effect::Return,
        ["continue", ..] => Effect::Nothing,
        ["jump", chain, ..] => Effect::Jump(unquoted(chain).to_owned()),
        ["goto", chain, ..] => Effect::Goto(unquoted(chain).to_owned()),
        ["dnat" | "redirect", ..] | ["xt", "target", "\"DNAT\"" | "\"REDIRECT\"", ..] => {
            Effect::Translate
        }
        ["xt", "target", name, ..] if !["\"LOG\"", "\"NFLOG\""].contains(name) => Effect::Unknown,
        [other, ..] if ELSEWHERE.contains(other) => Effect::Unknown,
        _ => return None,
    })
}

fn after_log<'a, 'b>(mut rest: &'a [&'b str]) -> &'a [&'b str] {
    while let [option, _, tail @ ..] = rest
        && LOG_OPTIONS.contains(option)
    {
        rest = tail;
    }
    rest
}
