//! Results of several machines or shards, put together.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::store::has_results;
use super::{Record, Status, Store, read};

/// Puts what the directories `from` hold into `into`; of a run that several have, one that is valid. The number of runs, and in
/// what they were not made alike.
///
/// # Errors
/// They are results of different experiments or builds, or cannot be read or written.
pub fn merge(into: &Path, from: &[PathBuf]) -> Result<(usize, Vec<String>)> {
    let parts = from.iter().map(|directory| read(directory));
    let parts: Vec<_> = parts.collect::<Result<_>>()?;
    let (first, _) = parts.first().context("nothing to merge was named")?;
    for ((manifest, _), directory) in parts.iter().zip(from) {
        manifest.expect_same(first, directory)?;
    }
    let mut manifest = first.clone();
    for (other, _) in &parts[1..] {
        manifest.absorb(other.clone());
    }
    // Before the store is opened, which writes its manifest.
    ensure!(
        !has_results(into)?,
        "{} has results already; name a new directory with --output",
        into.display()
    );
    let mut store = Store::open(into, &manifest)?;
    let mut records: Vec<Record> = parts
        .into_iter()
        .flat_map(|(_, records)| records.into_values())
        .collect();
    // The last of a run counts.
    records.sort_by_key(|record| (record.status() == Status::Valid, record.began));
    store.add_all(records)?;
    Ok((store.records().len(), store.manifest().caveats()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bentpipe_units::Seed;

    use super::super::{Machine, Manifest, Outcome};
    use super::*;
    use crate::experiment::RunKey;

    fn results(directory: &Path, kernel: &str) {
        let manifest = Manifest {
            machine: Machine::example(kernel),
            ..Manifest::example("e")
        };
        let key = RunKey {
            contender: "x".into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat: 1,
        };
        let measured = Outcome::Measured {
            seconds: vec![1.0],
            bytes: 1000,
        };
        let record = Record::new(key, Seed::new(1), measured);
        Store::open(directory, &manifest)
            .unwrap()
            .add(record)
            .unwrap();
    }

    #[test]
    fn a_directory_that_has_results_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        results(&one, "Linux 6.1");
        results(&other, "Linux 6.12");
        let parts = [one, other.clone()];
        let files = || {
            let names = ["manifest.json", "results.jsonl", "results.csv"];
            names.map(|name| fs::read_to_string(other.join(name)).unwrap())
        };
        let before = files();
        let error = merge(&other, &parts).unwrap_err();
        assert!(error.to_string().contains("has results already"), "{error}");
        assert_eq!(files(), before);
        let (runs, caveats) = merge(&place.path().join("new"), &parts).unwrap();
        assert_eq!((runs, caveats.len()), (1, 1));
    }
}
