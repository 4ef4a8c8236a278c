//! The directory of an experiment's results, and the file that grows in it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::{LinkCheck, Manifest, Record, csv};
use crate::experiment::RunKey;

/// Directory of the files that runs have kept, in that of the results.
pub const KEPT: &str = "kept";
const LINES: &str = "results.jsonl";
/// Name of the figures as a table, in the directory of results.
pub const TABLE: &str = "results.csv";
const MANIFEST: &str = "manifest.json";

/// End of the name of a file that is not yet whole.
const UNFINISHED: &str = "unfinished";

/// More than the largest experiment writes.
const MOST: u64 = 1 << 30;

/// A directory of results that this process alone adds to.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    // Locked for as long as it is open.
    lines: File,
    records: BTreeMap<RunKey, Record>,
    manifest: Manifest,
}

/// Attempts at the lock of a directory, [`LOCK_PAUSE`] apart: a program that this process is about to run holds the lock of an earlier
/// [`Store`] until then.
const LOCK_ATTEMPTS: u32 = 100;

/// Time between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

fn lock(lines: &File, directory: &Path) -> Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match lines.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", directory.display()));
            }
        }
    }
    bail!(
        "another `bentpipe lab` is writing to {}",
        directory.display()
    )
}

impl Store {
    /// Opens the directory, which is made if need be, to add results of what `manifest` describes to those that are there.
    ///
    /// # Errors
    /// It holds results of something else, another process adds to it, or it cannot be written.
    pub fn open(directory: &Path, manifest: &Manifest) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        let path = directory.join(LINES);
        let mut lines = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        lock(&lines, directory)?;
        let text = whole_lines(&mut lines, &path)?;
        let records = parse(&text, &path)?;
        let mut manifest = manifest.clone();
        if directory.join(MANIFEST).exists() {
            let before = read_manifest(directory)?;
            before.expect_same(&manifest, directory)?;
            manifest.absorb(before);
        } else {
            ensure!(
                records.is_empty(),
                "{} has results but no {MANIFEST}; name another directory with --output",
                directory.display()
            );
        }
        let store = Self {
            directory: directory.to_owned(),
            lines,
            records,
            manifest,
        };
        store.describe()?;
        Ok(store)
    }

    /// Manifest that all of the results were made with.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The results so far: of each run the last.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<RunKey, Record> {
        &self.records
    }

    /// Adds a result, and writes the table anew; both are on the disk when this returns.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn add(&mut self, record: Record) -> Result<()> {
        self.append(record)?;
        self.tabulate().map(drop)
    }

    /// [`Self::add`] for many, of which there is one table in the end.
    ///
    /// # Errors
    /// As there.
    pub fn add_all(&mut self, records: Vec<Record>) -> Result<()> {
        for record in records {
            self.append(record)?;
        }
        self.tabulate().map(drop)
    }

    fn append(&mut self, record: Record) -> Result<()> {
        let mut line = serde_json::to_string(&record).context("cannot write the result")?;
        line.push('\n');
        self.lines
            .write_all(line.as_bytes())
            .and_then(|()| self.lines.sync_data())
            .with_context(|| format!("cannot write {}", self.directory.join(LINES).display()))?;
        self.records.insert(record.key.clone(), record);
        Ok(())
    }

    /// Adds how a link was found without a contender.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn add_check(&mut self, link: &str, check: LinkCheck) -> Result<()> {
        let checks = self.manifest.link_checks.entry(link.to_owned());
        checks.or_default().push(check);
        self.describe()
    }

    fn describe(&self) -> Result<()> {
        let text =
            serde_json::to_string_pretty(&self.manifest).context("cannot write the manifest")?;
        replace(&self.directory.join(MANIFEST), &(text + "\n"))
    }

    /// Writes the table anew, from the lines, which are there whatever becomes of it.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn tabulate(&self) -> Result<PathBuf> {
        let path = self.directory.join(TABLE);
        replace(&path, &csv::table(self.records.values())?)?;
        Ok(path)
    }
}

/// Reads what a directory holds.
///
/// # Errors
/// It holds no results, or they cannot be read.
pub fn read(directory: &Path) -> Result<(Manifest, BTreeMap<RunKey, Record>)> {
    let path = directory.join(LINES);
    let text = read_bounded(&path)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    Ok((read_manifest(directory)?, parse(&text[..whole], &path)?))
}

/// True if a directory holds a result, of whatever; false if there is no such directory.
///
/// # Errors
/// The file of its results cannot be read.
pub(super) fn has_results(directory: &Path) -> Result<bool> {
    let path = directory.join(LINES);
    Ok(path.exists() && read_bounded(&path)?.contains('\n'))
}

fn read_manifest(directory: &Path) -> Result<Manifest> {
    let path = directory.join(MANIFEST);
    let text = read_bounded(&path)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: this is no manifest of results", path.display()))
}

fn read_bounded(path: &Path) -> Result<String> {
    let name = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(name)?;
    file.take(MOST + 1)
        .read_to_string(&mut text)
        .with_context(name)?;
    ensure!(
        text.len() as u64 <= MOST,
        "{} is larger than {MOST} bytes",
        path.display()
    );
    Ok(text)
}

/// The file's whole lines; what follows the last of them is cut off.
fn whole_lines(file: &mut File, path: &Path) -> Result<String> {
    let mut text = read_bounded(path)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        text.truncate(whole);
        file.set_len(whole as u64)
            .and_then(|()| file.sync_data())
            .with_context(|| format!("cannot cut a torn line off {}", path.display()))?;
    }
    file.seek(SeekFrom::End(0))?;
    Ok(text)
}

pub(super) fn parse(text: &str, path: &Path) -> Result<BTreeMap<RunKey, Record>> {
    let mut records = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let record: Record = serde_json::from_str(line).with_context(|| {
            format!(
                "{}:{}: this is no result; remove the line",
                path.display(),
                index + 1
            )
        })?;
        records.insert(record.key.clone(), record);
    }
    Ok(records)
}

/// A file of that text, or the old one: nothing between. Only who holds the lock may, for the name of what is not finished is
/// always the same: what a killed process left is overwritten by the next.
fn replace(path: &Path, text: &str) -> Result<()> {
    let unfinished = path.with_added_extension(UNFINISHED);
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&unfinished, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, Status};
    use super::*;

    fn record(contender: &str, seconds: f64) -> Record {
        let key = RunKey {
            contender: contender.into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat: 1,
        };
        let measured = Outcome::Measured {
            seconds: vec![seconds],
            bytes: 1000,
        };
        Record {
            took_s: 2.5,
            limit_s: Some(0.5),
            ..Record::new(key, bentpipe_units::Seed::new(3), measured)
        }
    }

    #[test]
    fn what_was_added_is_there_again_and_a_torn_line_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let manifest = Manifest::example("a");
        let mut store = Store::open(directory.path(), &manifest).unwrap();
        store.add(record("x", 1.0)).unwrap();
        store.add(record("y", 2.0)).unwrap();
        store.add(record("x", 3.0)).unwrap();
        let error = Store::open(directory.path(), &manifest).unwrap_err();
        assert!(error.to_string().contains("another"), "{error}");
        drop(store);
        let path = directory.path().join(LINES);
        let whole = fs::read_to_string(&path).unwrap();
        // Killed in the middle of a line.
        fs::write(&path, format!("{whole}{}", &whole[..40])).unwrap();
        let mut store = Store::open(directory.path(), &manifest).unwrap();
        let all: Vec<_> = store
            .records()
            .values()
            .map(|record| record.seconds()[0])
            .collect();
        assert_eq!(all, [3.0, 2.0]);
        store.add(record("z", 4.0)).unwrap();
        drop(store);
        assert_eq!(read(directory.path()).unwrap().1.len(), 3);
        assert!(fs::read_to_string(&path).unwrap().starts_with(&whole));
    }

    #[test]
    fn the_table_is_whole_after_each_result_and_a_torn_one_goes_away() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &Manifest::example("a")).unwrap();
        // Killed in the middle of a table, and of a manifest.
        for name in [TABLE, MANIFEST] {
            let torn = directory.path().join(format!("{name}.{UNFINISHED}"));
            fs::write(torn, "contender,scen".repeat(100)).unwrap();
        }
        store.add(record("x", 1.0)).unwrap();
        let rows = || fs::read_to_string(directory.path().join(TABLE)).unwrap();
        let first = rows();
        assert_eq!(first, csv::table(store.records().values()).unwrap());
        assert_eq!(first.lines().count(), 2);
        store.add(record("y", 2.0)).unwrap();
        assert_eq!(rows().lines().count(), 3);
        assert!(rows().starts_with(&first));
        drop(store);
        drop(Store::open(directory.path(), &Manifest::example("a")).unwrap());
        let names = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [MANIFEST, TABLE, LINES]);
    }

    #[test]
    fn results_of_something_else_are_not_mixed_in() {
        let directory = tempfile::tempdir().unwrap();
        drop(Store::open(directory.path(), &Manifest::example("a")).unwrap());
        let error = Store::open(directory.path(), &Manifest::example("b")).unwrap_err();
        assert!(format!("{error:#}").contains("--output"), "{error:#}");
    }

    #[test]
    fn a_line_that_is_no_result_is_named() {
        let error = parse("{}\n", Path::new("r.jsonl")).unwrap_err();
        assert!(error.to_string().starts_with("r.jsonl:1: "), "{error}");
    }

    #[test]
    fn doubts_make_a_figure_invalid() {
        let mut one = record("x", 1.0);
        assert_eq!(one.status(), Status::Valid);
        one.doubts.push("late".into());
        assert_eq!(
            (one.status(), one.remark()),
            (Status::Invalid, "late".into())
        );
    }
}
