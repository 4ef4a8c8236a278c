//! Journal of relayed flows: what a PEP that was killed had acknowledged for, its successor resets.
//!
//! A flow stands in the file before the other PEP, and so an end, can rely on this one. The file outlives the process. Packets
//! wait while a line is handed to the kernel, never for a disk: what a power cut or a crash of the machine leaves may lack
//! flows, and counts as incomplete, which the first line tells. Lines are appended, and now and then those that still count are
//! written anew.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bentpipe_segments::FlowName;

use crate::state;

/// Time for which a flow of an earlier process counts: as long as a PEP remembers one without a segment.
const KEPT: Duration = Duration::from_secs(7440);

/// Lines that may be superfluous before the file is written anew.
const SLACK: usize = 4096;

/// Longest file that is read, bytes: more than a million flows.
const LONGEST: u64 = 128 << 20;

/// Flows that are relayed, and those that an earlier process had relayed.
pub(super) struct Journal {
    file: JournalFile,
    present: HashSet<FlowName>,
    earlier: HashSet<FlowName>,
    /// Instant at which the earlier ones do not count any more: not of the machine's clock, which may be put right after its start.
    until: Instant,
    /// The file told what an earlier process had relayed, or nothing of an earlier one counts any more.
    complete: bool,
    /// A file was there and may have told of less: so does the one that is written now, until earlier flows do not count.
    doubted: bool,
    lines: usize,
    /// Error for which the file cannot be written, as the log was told.
    broken: Option<String>,
}

impl Journal {
    /// Reads what an earlier process has left.
    pub(super) fn load(file: JournalFile, now: Instant) -> Self {
        let read = file.read().unwrap_or_else(|error| {
            tracing::warn!(
                "{} cannot be read, so flows of an earlier process are not reset: {error}",
                file.path.display()
            );
            None
        });
        let doubted = matches!(read, Some((_, false)));
        let (earlier, complete) = read.unwrap_or_default();
        let mut journal = Self {
            file,
            present: HashSet::new(),
            lines: 0,
            complete,
            doubted,
            earlier,
            until: now + KEPT,
            broken: None,
        };
        if !journal.earlier.is_empty() {
            tracing::info!(
                "{} flows of an earlier process are reset when they speak",
                journal.earlier.len()
            );
        }
        journal.rewrite();
        journal
    }

    /// Notes that a flow is relayed from now on. False: that cannot be noted, so it must not be.
    pub(super) fn begin(&mut self, name: &FlowName) -> bool {
        let noted = self.append('+', name);
        if noted {
            self.present.insert(*name);
        }
        noted
    }

    /// Notes that a flow is not relayed any more.
    pub(super) fn end(&mut self, name: &FlowName) {
        if self.present.remove(name) {
            self.append('-', name);
            if self.lines > 2 * self.present.len() + self.earlier.len() + SLACK {
                self.rewrite();
            }
        }
    }

    /// Says whether an earlier process had relayed the flow.
    pub(super) fn was_relayed(&self, name: &FlowName) -> bool {
        self.earlier.contains(name)
    }

    /// Says whether the file told of all flows that an earlier process had relayed; else there was none, or the machine was
    /// started anew and the file is as old as its disk had it.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Notes that a new connection has this name.
    pub(super) fn renew(&mut self, name: &FlowName) {
        if self.earlier.remove(name) {
            self.append('-', name);
        }
    }

    /// Forgets flows of the earlier process when they are old enough, also of one that has left no file.
    pub(super) fn expire(&mut self, now: Instant) {
        if now >= self.until && !(self.complete && self.earlier.is_empty()) {
            self.earlier.clear();
            (self.doubted, self.complete) = (false, true);
            self.rewrite();
        }
    }

    /// Reason why no flow is taken, for people.
    pub(super) fn lack(&self) -> Option<String> {
        let path = self.file.path.display();
        self.broken.as_ref().map(|error| {
            format!("{path} cannot be written ({error}): new flows pass untouched until it can")
        })
    }

    /// Writes the file anew at the end of the process: nothing that has ended stays in it.
    pub(super) fn close(&mut self) {
        self.rewrite();
    }

    fn append(&mut self, sign: char, name: &FlowName) -> bool {
        self.lines += 1;
        // A part of the last line may stand there, to which nothing may be added.
        let noted = match self.broken.is_some() {
            true => self.file.append(&format!("\n{}", line(sign, name))),
            false => self.file.append(&line(sign, name)),
        };
        self.tell(noted)
    }

    fn rewrite(&mut self) {
        let all = self.present.union(&self.earlier);
        let lines = all.map(|name| line('+', name));
        let text: String = std::iter::once(self.file.head(self.doubted))
            .chain(lines)
            .collect();
        self.lines = self.present.len() + self.earlier.len();
        let written = self.file.replace(&text);
        self.tell(written);
    }

    /// Tells the log when the file cannot be written any more, or can again.
    fn tell(&mut self, written: io::Result<()>) -> bool {
        let path = self.file.path.display();
        match &written {
            Err(error) if self.broken.is_none() => tracing::error!(
                "{path} cannot be written: {error}; new flows pass untouched until it can, for a PEP that is killed must know afterwards what it had relayed"
            ),
            Ok(()) if self.broken.is_some() => tracing::info!("{path} is written again"),
            _ => {}
        }
        let whole = written.is_ok();
        self.broken = written.err().map(|error| error.to_string());
        whole
    }
}

/// Line about a flow: how it changes, and both ends.
fn line(sign: char, name: &FlowName) -> String {
    let scope = u128::from_be_bytes(name.scope);
    let ((lan, lan_port), (wan, wan_port)) = (name.lan, name.wan);
    format!("{sign} {scope:032x} {lan} {lan_port} {wan} {wan_port}\n")
}

/// Flow of a line, and whether it has begun; `None`: the line is no such one, as the last of a killed process may be.
fn parse(line: &str) -> Option<(bool, FlowName)> {
    let mut words = line.split(' ');
    let begins = match words.next()? {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    let scope = u128::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
    let mut end = || {
        Some((
            words.next()?.parse::<IpAddr>().ok()?,
            words.next()?.parse().ok()?,
        ))
    };
    let (lan, wan) = (end()?, end()?);
    Some((begins, FlowName { scope, lan, wan }))
}

/// Name of this run of the machine; empty if the kernel tells none.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Flows that a file tells of, and whether that is all of them.
type Told = (HashSet<FlowName>, bool);

/// File of a journal.
pub(super) struct JournalFile {
    path: PathBuf,
    /// Name of this run of the machine.
    boot: String,
    open: Option<File>,
}

impl JournalFile {
    /// Names the file; nothing is opened.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            boot: boot(),
            open: None,
        }
    }

    /// First line: the run of the machine of which the file tells all, or none if that is `doubted`.
    fn head(&self, doubted: bool) -> String {
        let boot = if doubted { "unknown" } else { &self.boot };
        format!("boot {boot}\n")
    }

    /// Flows that the file says are relayed; `None`: there is no file.
    fn read(&self) -> io::Result<Option<Told>> {
        let bytes = match state::read(&self.path, LONGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut flows = HashSet::new();
        let text = String::from_utf8_lossy(&bytes);
        for (begins, name) in text.lines().filter_map(parse) {
            match begins {
                true => flows.insert(name),
                false => flows.remove(&name),
            };
        }
        let complete = !self.boot.is_empty() && text.starts_with(&self.head(false));
        Ok(Some((flows, complete)))
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        if self.open.is_none() {
            let mut options = OpenOptions::new();
            let options = options.append(true).create(true).mode(0o600);
            self.open = Some(options.open(&self.path)?);
        }
        let written = self
            .open
            .as_mut()
            .map(|file| file.write_all(text.as_bytes()));
        let written = written.unwrap_or(Ok(()));
        if written.is_err() {
            self.open = None;
        }
        written
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        self.open = None;
        state::replace_in_memory(&self.path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::process;

    fn name(port: u16) -> FlowName {
        FlowName {
            scope: [0; 16],
            lan: ([10, 1, 0, 2].into(), port),
            wan: ([0xfd00, 0, 0, 0, 0, 0, 0, 9].into(), 443),
        }
    }

    fn load(path: &std::path::Path) -> Journal {
        Journal::load(JournalFile::new(path.to_owned()), process::now())
    }

    #[test]
    fn a_successor_knows_what_was_relayed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        let mut first = load(&path);
        assert!([1, 2, 3].into_iter().all(|port| first.begin(&name(port))));
        first.end(&name(2));
        // The last line of a killed process.
        fs::write(&path, fs::read_to_string(&path).unwrap() + "+ 0000 10.").unwrap();
        std::mem::forget(first);

        let mut second = load(&path);
        assert!(second.is_complete());
        let known = |it: &Journal| [1, 2, 3].map(|port| it.was_relayed(&name(port)));
        assert_eq!(known(&second), [true, false, true]);
        second.renew(&name(1));
        assert_eq!(known(&second), [false, false, true]);
        let third = load(&path);
        assert_eq!(known(&third), [false, false, true]);
    }

    #[test]
    fn what_has_ended_is_not_written_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        let mut journal = load(&path);
        assert!([1, 2].into_iter().all(|port| journal.begin(&name(port))));
        journal.end(&name(1));
        journal.close();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        journal.end(&name(2));
        // Once more, when the flow is forgotten.
        journal.end(&name(2));
        journal.close();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(load(&path).is_complete());
    }

    #[test]
    fn the_file_stays_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        let mut journal = load(&path);
        for round in 0..6 * SLACK {
            let flow = name(u16::try_from(round % 60_000).unwrap());
            assert!(journal.begin(&flow));
            journal.end(&flow);
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= SLACK + 3, "{lines} lines");
        assert_eq!(state::SYNCED.get(), 0, "packets have waited for a disk");
    }

    #[test]
    fn what_another_run_of_the_machine_left_counts_and_is_not_taken_for_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows");
        assert!(load(&path).begin(&name(1)));
        let text = fs::read_to_string(&path).unwrap();
        let (head, lines) = text.split_once('\n').unwrap();
        for before in [format!("{head}0\n{lines}"), lines.to_owned()] {
            fs::write(&path, before).unwrap();
            for _process in 1..3 {
                let after = load(&path);
                assert!(after.was_relayed(&name(1)) && !after.is_complete());
            }
        }
        // An empty file is what a file system may leave of one that was not synced.
        fs::write(&path, "").unwrap();
        let mut after = load(&path);
        assert!(!after.is_complete());
        after.expire(process::now() + KEPT);
        assert!(after.is_complete() && load(&path).is_complete());
    }

    #[test]
    fn what_is_not_known_of_an_earlier_process_is_over_in_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = load(&directory.path().join("flows"));
        assert!(!journal.is_complete(), "another process may have relayed");
        journal.expire(process::now() + KEPT - Duration::from_secs(60));
        assert!(!journal.is_complete());
        journal.expire(process::now() + KEPT);
        assert!(journal.is_complete());
    }

    #[test]
    fn without_a_file_nothing_may_be_relayed() {
        let mut journal = load(std::path::Path::new("/proc/version/flows"));
        assert!(!journal.begin(&name(1)));
        assert!(!journal.was_relayed(&name(1)) && !journal.is_complete());
    }
}
