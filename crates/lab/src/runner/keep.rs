//! Files of runs that are kept beside their results: captures, traces, probes, pictures.
//!
//! ```text
//!  DIR/kept/CONTENDER SCENARIO TASK REPEAT/link.pcapng    both ends of the satellite link
//!                                         probes.jsonl   the link's state: a line per terminal and period
//!                                         *.sqlog        connections of bentpipe's daemons
//!                                         N.png          page N as Chromium shows it when it has loaded
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use bentpipe_emulator::Outputs;

use crate::contender::TRACES;
use crate::experiment::RunKey;
use crate::results::KEPT;
use crate::workload::PICTURES;

/// Kinds of files that are kept; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    pcap: bool,
    qlog: bool,
    probes: bool,
    pictures: bool,
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut keep = Self::default();
        for kind in text.split(',') {
            match kind.trim() {
                "pcap" => keep.pcap = true,
                "qlog" => keep.qlog = true,
                "probes" => keep.probes = true,
                "pictures" => keep.pictures = true,
                other => {
                    return Err(format!(
                        "`{other}` is nothing that is kept; `pcap`, `qlog`, `probes` and `pictures` are, with commas between"
                    ));
                }
            }
        }
        Ok(keep)
    }
}

/// Directory of one run's files.
#[derive(Debug)]
pub(super) struct KeptFiles {
    keep: Keep,
    directory: PathBuf,
}

impl KeptFiles {
    /// Makes the place of a run's files in the directory of results; what an earlier try of the run left there is removed.
    pub(super) fn new(keep: Keep, results: &Path, key: &RunKey) -> Result<Option<Self>> {
        if keep == Keep::default() {
            return Ok(None);
        }
        let directory = results.join(KEPT).join(name(key));
        if directory.exists() {
            fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Some(Self { keep, directory }))
    }

    /// Files that the emulator is to write.
    pub(super) fn outputs(&self) -> Outputs {
        let file = |wanted: bool, name| wanted.then(|| self.directory.join(name));
        Outputs {
            probes: file(self.keep.probes, "probes.jsonl"),
            pcap: file(self.keep.pcap, "link.pcapng"),
            packet_log: None,
        }
    }

    /// Directories in that of the topology in which daemons and browsers leave files, if they find them there.
    fn left_in(&self) -> impl Iterator<Item = &'static str> {
        let all = [(self.keep.qlog, TRACES), (self.keep.pictures, PICTURES)];
        all.into_iter()
            .filter_map(|(wanted, name)| wanted.then_some(name))
    }

    /// Has the daemons and the browser of a run leave traces and pictures, if they are wanted: they look for the directories in that of
    /// the `topology`.
    pub(super) fn ask(&self, topology: &Path) -> Result<()> {
        for name in self.left_in() {
            let place = topology.join(name);
            fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
        }
        Ok(())
    }

    /// Takes in what was left, after the daemons' end and before the directory of the `topology` is gone.
    pub(super) fn take(&self, topology: &Path) -> Result<()> {
        for name in self.left_in() {
            let place = topology.join(name);
            for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
                let from = entry?.path();
                let to = self.directory.join(from.file_name().unwrap_or_default());
                // Copied: the results may lie on another file system.
                fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
            }
        }
        Ok(())
    }
}

/// Name of the directory of a run.
fn name(key: &RunKey) -> String {
    let [contender, scenario, task] = key.names();
    let name = format!("{contender} {scenario} {task} {}", key.repeat);
    name.replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_with_commas_between() {
        let keep: Keep = "pcap, probes".parse().unwrap();
        assert_eq!((keep.pcap, keep.qlog, keep.probes), (true, false, true));
        let fault = "pcap,log".parse::<Keep>().unwrap_err();
        assert!(
            fault.contains("`log`") && fault.contains("`probes`"),
            "{fault}"
        );
    }

    #[test]
    fn a_run_has_a_directory_of_its_own_and_an_earlier_try_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let key = RunKey {
            contender: "plain/cubic".into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat: 2,
        };
        assert!(
            KeptFiles::new(Keep::default(), directory.path(), &key)
                .unwrap()
                .is_none()
        );
        let keep = "pcap,qlog".parse().unwrap();
        let place = KeptFiles::new(keep, directory.path(), &key)
            .unwrap()
            .unwrap();
        let own = directory.path().join("kept/plain_cubic geo get 2");
        assert_eq!(place.outputs().pcap, Some(own.join("link.pcapng")));
        assert_eq!(place.outputs().probes, None);
        fs::write(own.join("old"), "").unwrap();
        let topology = tempfile::tempdir().unwrap();
        let again = KeptFiles::new(keep, directory.path(), &key)
            .unwrap()
            .unwrap();
        again.ask(topology.path()).unwrap();
        fs::write(topology.path().join(TRACES).join("c.sqlog"), "trace").unwrap();
        again.take(topology.path()).unwrap();
        assert!(!own.join("old").exists());
        assert_eq!(fs::read(own.join("c.sqlog")).unwrap(), b"trace");
    }
}
