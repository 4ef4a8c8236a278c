//! `docs/scenario.md` is held to the program: its examples are scenarios, and it names exactly the tables and keys that
//! there are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Files, Scenario};

/// A name that nothing has; the fault lists those that are known.
const NO_NAME: &str = "zzzzzzzz";

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenario.md");
    std::fs::read_to_string(path).expect("the document exists")
}

/// A part of the page: the tables in its heading, the key that chooses between variants, the keys of its rows.
struct Section {
    tables: Vec<String>,
    choice: Option<String>,
    keys: BTreeSet<String>,
}

fn sections() -> Vec<Section> {
    let page = page();
    let parts = page.split("\n### ").skip(1);
    let section = |part: &str| {
        let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
        let words: Vec<_> = heading.split('`').skip(1).step_by(2).collect();
        let (tables, choices): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| word.starts_with('['));
        let rows = body.lines().filter_map(|line| line.strip_prefix("| `"));
        Section {
            tables: tables.into_iter().map(str::to_owned).collect(),
            choice: choices.first().map(|choice| (*choice).to_owned()),
            keys: rows
                .filter_map(|row| row.split('`').next())
                .map(str::to_owned)
                .collect(),
        }
    };
    parts.map(section).collect()
}

/// The names that the program lists instead of [`NO_NAME`].
fn known(text: &str) -> BTreeSet<String> {
    let error = toml::from_str::<Scenario>(text).expect_err(text);
    let error = error.message();
    if error.ends_with("there are no fields") {
        return BTreeSet::new();
    }
    let (_, list) = error
        .split_once("expected ")
        .unwrap_or_else(|| panic!("{text}: {error}"));
    let names = list.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn every_key_is_documented_and_no_other() {
    let sections = sections();
    assert!(sections.len() > 10);
    for section in &sections {
        for table in &section.tables {
            let choice = section.choice.as_deref().unwrap_or_default();
            let known = known(&format!("{table}\n{choice}\n{NO_NAME} = 1\n"));
            assert_eq!(section.keys, known, "{table} {choice}");
        }
    }
}

#[test]
fn every_table_and_variant_is_documented() {
    let sections = sections();
    let tables = sections.iter().flat_map(|section| &section.tables);
    let first = |table: &String| {
        let name = table.trim_matches(['[', ']']);
        name.split('.').next().unwrap_or_default().to_owned()
    };
    let tables: BTreeSet<_> = tables.map(first).collect();
    assert_eq!(tables, known(&format!("{NO_NAME} = 1\n")));
    for section in &sections {
        let Some(choice) = &section.choice else {
            continue;
        };
        let key = choice.split(' ').next().unwrap_or_default();
        for table in &section.tables {
            let there = sections.iter().filter(|other| other.tables.contains(table));
            let there = there.filter_map(|other| other.choice.as_ref()?.split('"').nth(1));
            let there: BTreeSet<_> = there.map(str::to_owned).collect();
            let known = known(&format!("{table}\n{key} = \"{NO_NAME}\"\n"));
            assert_eq!(there, known, "{table} {key}");
        }
    }
}

#[test]
fn examples_are_scenarios() {
    let page = page();
    let examples = page.split("```toml\n").skip(1);
    let mut count = 0;
    for example in examples.filter_map(|rest| rest.split("```").next()) {
        let scenario: Scenario =
            toml::from_str(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        let model = scenario.build(&Files::new());
        model.unwrap_or_else(|error| panic!("{error}\n{example}"));
        count += 1;
    }
    assert!(count >= 2);
}
