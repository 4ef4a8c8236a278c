//! Test binaries of the workspace: few, because each links everything anew.

use crate::sources::{array, packages, text};

/// Test binaries that the workspace may have.
const MOST_BINARIES: usize = 28;

/// Targets that `cargo test` makes a binary of, each with its package's name, as cargo lists them.
fn binaries() -> Vec<String> {
    let mut found = Vec::new();
    for package in packages() {
        let targets = array(&package, "targets").iter();
        let tested = targets.filter(|target| target["test"] == true);
        found.extend(
            tested.map(|target| format!("{} of {}", text(target, "name"), text(&package, "name"))),
        );
    }
    found
}

#[test]
fn test_binaries_are_few() {
    let found = binaries();
    assert!(
        found.len() <= MOST_BINARIES,
        "{} test binaries, at most {MOST_BINARIES}: make a new file a module of one that is there: {found:#?}",
        found.len()
    );
}
