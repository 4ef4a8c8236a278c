//! The thread that keeps a namespace's rules and settings of the uplink: it looks when something has changed, and every few seconds.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::watch::{Change, Object, Watch};
use bentpipe_sys::written_table::WrittenTable;

use super::Say;
use super::rules::TABLE;
use crate::stop::Stop;

/// Time between two looks without a notice.
const LOOK: Duration = Duration::from_secs(5);
/// Pause after a repair: two programs that undo each other's work would fill a processor with it.
const PAUSE: Duration = Duration::from_millis(500);

/// A thread that keeps rules and settings where they are.
#[derive(Debug)]
pub(super) struct Guard(JoinHandle<()>);

/// Rules and settings that are kept.
struct Kept {
    table: WrittenTable,
    body: String,
    settings: Vec<Setting>,
    say: Say,
}

/// A file that holds a 1 while there are rules.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) file: PathBuf,
    /// Without the rules it holds a 0: nobody else wants a 1.
    pub(super) is_ours: bool,
}

impl Guard {
    /// Puts the rules of `body` and a 1 into each of `settings`, in the calling thread's namespace, and keeps them until `stop` is thrown.
    pub(super) fn start(
        body: String,
        settings: Vec<Setting>,
        stop: &Stop,
        say: Say,
    ) -> Result<Self> {
        let watch = Watch::open().context("cannot watch the network's settings")?;
        let mut kept = Kept {
            table: WrittenTable::new(TABLE),
            body,
            settings,
            say,
        };
        kept.table.write(&kept.body)?;
        for Setting { file, .. } in &kept.settings {
            fs::write(file, "1").with_context(|| format!("cannot write {}", file.display()))?;
        }
        let stop = stop.clone();
        let keep = move || kept.keep(&watch, &stop);
        // A thread is in the namespace of the one that starts it.
        let thread = thread::Builder::new().name("uplink".into()).spawn(keep);
        Ok(Self(
            thread.context("cannot start a thread for the uplink")?,
        ))
    }

    /// Waits for the end of a thread whose switch was thrown.
    pub(super) fn join(self) {
        // A thread that has panicked has said so.
        let _ = self.0.join();
    }
}

impl Kept {
    fn keep(&mut self, watch: &Watch, stop: &Stop) {
        let mut failing = None;
        loop {
            if let Err(error) = watch.wait(stop.as_fd(), LOOK) {
                (self.say)(&format!("the uplink's rules are watched no more: {error}"));
                return;
            }
            if stop.wait(Duration::ZERO) {
                return;
            }
            let changes = watch.take();
            let outcome = self.repair(&changes);
            let fault = outcome.as_ref().err().map(ToString::to_string);
            if let Some(text) = &fault {
                let closed = match self.close() {
                    Ok(()) => "nothing crosses it meanwhile".to_owned(),
                    Err(error) => format!("and it cannot be closed: {error}; end this program"),
                };
                // Once for each reason, however long it lasts.
                if fault != failing {
                    (self.say)(&format!(
                        "the uplink's rules cannot be put back: {text}; {closed}; trying on"
                    ));
                }
            }
            failing = fault;
            if !matches!(outcome, Ok(false)) && stop.wait(PAUSE) {
                return;
            }
        }
    }

    /// Has the kernel forward nothing by the uplink: without rules nobody would choose what it is.
    fn close(&self) -> io::Result<()> {
        let ours = self.settings.iter().filter(|setting| setting.is_ours);
        // The second also where the first cannot be written.
        let written: Vec<_> = ours.map(|setting| fs::write(&setting.file, "0")).collect();
        written.into_iter().collect()
    }

    /// Puts back what is missing; false if nothing was.
    fn repair(&mut self, changes: &[Change]) -> io::Result<bool> {
        let mut repaired = false;
        if self.table.fault()?.is_some() {
            self.table.write(&self.body)?;
            let by = changes
                .iter()
                .find(|change| change.object == Object::Table(TABLE.into()));
            let by = by.and_then(|change| change.by.as_ref());
            let by = by.map_or_else(String::new, |actor| format!(" by {actor}"));
            (self.say)(&format!(
                "the uplink's rules were changed{by} and are put back"
            ));
            repaired = true;
        }
        for Setting { file, .. } in &self.settings {
            if fs::read_to_string(file)?.trim() == "0" {
                fs::write(file, "1")?;
                (self.say)(&format!(
                    "{} was 0 and is 1 again: the uplink needs it",
                    file.display()
                ));
                repaired = true;
            }
        }
        Ok(repaired)
    }
}
