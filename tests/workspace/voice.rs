//! Rules of the language: how the first sentence of a doc comment begins, and that a type's name means one thing in its crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::shape::{named_after, sources};
use crate::sources::{assert_none, root, rust_files, shipped_code};

/// Words that leave open what a sentence is about, for whoever reads that sentence alone.
const PRONOUNS: [&str; 19] = [
    "He",
    "It",
    "Its",
    "Nobody",
    "One is",
    "One leaves",
    "Our",
    "She",
    "Somebody",
    "So",
    "Such",
    "That",
    "The same",
    "Their",
    "There",
    "These",
    "They",
    "This",
    "Those",
];

/// Words after which a sentence asks instead of naming its subject.
const QUESTIONS: [&str; 11] = [
    "How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why", "Whatever",
];

/// Most of a thousand first sentences that may begin with one of [`PRONOUNS`].
const MOST_PRONOUNS: usize = 3;

/// Most of a thousand first sentences that may begin with one of [`QUESTIONS`].
const MOST_QUESTIONS: usize = 40;

/// First lines of the doc comments of items.
fn first_lines() -> Vec<String> {
    let mut found = Vec::new();
    for directory in ["crates", "src"] {
        for file in rust_files(&root().join(directory)) {
            let text = fs::read_to_string(&file).expect("a source file is UTF-8");
            let mut before = false;
            for line in text.lines() {
                let doc = line.trim_start().strip_prefix("/// ");
                found.extend(doc.filter(|_| !before).map(str::to_owned));
                before = line.trim_start().starts_with("///");
            }
        }
    }
    found
}

/// True if `line` begins with this `word`.
fn begins_with(line: &str, word: &str) -> bool {
    let rest = line.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[test]
fn first_sentences_name_their_subject() {
    let all = first_lines();
    assert!(all.len() > 5000, "{} doc comments were found", all.len());
    for (words, most) in [
        (&PRONOUNS[..], MOST_PRONOUNS),
        (&QUESTIONS[..], MOST_QUESTIONS),
    ] {
        let begin = |line: &&String| words.iter().any(|word| begins_with(line, word));
        let found: Vec<_> = all.iter().filter(begin).collect();
        assert!(
            found.len() * 1000 <= all.len() * most,
            "{} of {} first sentences begin with one of {words:?}, more than {most} in a thousand: {found:#?}",
            found.len(),
            all.len()
        );
    }
}

/// Why a type stands twice: the second stands where the kernel has no packets for a server or a client.
const ELSEWHERE: &str = "the same on systems without a device for packets";
/// Why a type stands twice: what the operator writes or reads, and what does it.
const TOLD: &str = "a table of the configuration or of `status`, and what it is about";
/// Why a type stands twice: modules that never meet, each with the word of its own RFC or field.
const FIELD: &str = "the word of two fields, whose modules do not meet";

/// Names that several types of a crate have, and why.
const SHARED: [(&str, &str, &str); 23] = [
    ("pep", "Action", TOLD),
    ("pep", "Client", TOLD),
    ("pep", "Dns", TOLD),
    ("pep", "Filter", ELSEWHERE),
    ("pep", "FrontEnds", TOLD),
    ("pep", "IntakeRules", ELSEWHERE),
    ("pep", "Metering", TOLD),
    ("pep", "Network", ELSEWHERE),
    ("pep", "Own", ELSEWHERE),
    ("pep", "PacketDevice", ELSEWHERE),
    ("pep", "Packets", ELSEWHERE),
    ("pep", "Repairs", ELSEWHERE),
    ("pep", "RouterDns", TOLD),
    ("pep", "Rule", TOLD),
    ("pep", "Session", TOLD),
    ("pep", "Sockets", ELSEWHERE),
    ("pep", "Translator", ELSEWHERE),
    ("proto", "Dropped", FIELD),
    ("proto", "Host", FIELD),
    ("proto", "Outcome", FIELD),
    ("proto", "Outgoing", FIELD),
    ("proto", "Ticket", FIELD),
    ("testbed", "Transfer", FIELD),
];

#[test]
fn a_name_means_one_type_in_its_crate() {
    let mut homes: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (inside, file) in sources() {
        let package = inside.split('/').next().unwrap_or_default();
        for (_, line) in shipped_code(&file) {
            for keyword in ["struct ", "enum ", "trait "] {
                if let Some(name) = named_after(&line, keyword) {
                    let key = (package.to_owned(), name.to_owned());
                    homes.entry(key).or_default().push(inside.clone());
                }
            }
        }
    }
    let mut known: BTreeSet<_> = SHARED.iter().map(|it| (it.0, it.1)).collect();
    let mut faults = Vec::new();
    for ((package, name), files) in homes.iter().filter(|(_, files)| files.len() > 1) {
        if !known.remove(&(package.as_str(), name.as_str())) {
            faults.push(format!(
                "crates/{package}: {name} is the name of {} types: {files:?}",
                files.len()
            ));
        }
    }
    let gone = known.iter();
    faults.extend(gone.map(|(package, name)| {
        format!("crates/{package}: {name} is one type: take it out of SHARED")
    }));
    assert_none(&faults);
}
