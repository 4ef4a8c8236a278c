//! A file of configuration as it was read at the start, to say later which of its keys have changed.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// The keys of a file and their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Table);

impl Written {
    /// Keys of the file at `path`; none of one that cannot be read.
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        Self(text.parse().unwrap_or_default())
    }

    /// Keys that have another value in `later`, or stand in one of the two alone: as in `link.profile`.
    pub(crate) fn changes(&self, later: &Self) -> Vec<String> {
        let mut changed = Vec::new();
        compare("", &self.0, &later.0, &mut changed);
        changed
    }
}

fn compare(place: &str, before: &Table, after: &Table, changed: &mut Vec<String>) {
    let new = after.keys().filter(|key| !before.contains_key(*key));
    for key in before.keys().chain(new) {
        let name = format!("{place}{key}");
        match (before.get(key), after.get(key)) {
            (Some(Value::Table(before)), Some(Value::Table(after))) => {
                compare(&format!("{name}."), before, after, changed);
            }
            (before, after) if before != after => changed.push(name),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_are_named_with_their_tables() {
        let written = |text: &str| Written(text.parse().unwrap());
        let before = written("a = 1\n[link]\nprofile = \"geo\"\nrate = 3\n[gone]\nx = 1\n");
        let after = written("a = 1\n[link]\nprofile = \"leo\"\nrate = 3\n[new]\ny = 2\n");
        assert_eq!(before.changes(&after), ["gone", "link.profile", "new"]);
        assert!(before.changes(&before).is_empty());
    }
}
