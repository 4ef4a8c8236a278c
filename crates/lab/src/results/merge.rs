//! Results of several machines or shards, put together.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

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
    let mut store = Store::open(into, &manifest)?;
    ensure!(
        store.records().is_empty(),
        "{} has results already; name a new directory with --output",
        into.display()
    );
    let mut records: Vec<Record> = parts
        .into_iter()
        .flat_map(|(_, records)| records.into_values())
        .collect();
    // The last of a run counts.
    records.sort_by_key(|record| (record.status() == Status::Valid, record.began));
    store.add_all(records)?;
    Ok((store.records().len(), store.manifest().caveats()))
}
