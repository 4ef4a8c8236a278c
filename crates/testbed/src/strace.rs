//! `strace` at a daemon that runs: which calls of the kernel it makes, and calls that are made to fail.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use tempfile::NamedTempFile;

/// `strace` that is attached to a process until that ends.
pub struct Strace {
    strace: Child,
    calls: NamedTempFile,
}

impl Strace {
    /// Attaches to all threads of the process `id`; `arguments` say which calls are written, and which fail.
    pub fn attach(id: u32, arguments: &[&str]) -> Result<Self> {
        let calls = NamedTempFile::new()?;
        let mut strace = Command::new("strace")
            .args(["-f", "-y"])
            .args(arguments)
            .arg("-p")
            .arg(id.to_string())
            .arg("-o")
            .arg(calls.path())
            .stderr(Stdio::piped())
            .spawn()
            .context("strace is not there")?;
        let mut said = BufReader::new(strace.stderr.take().context("a pipe")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        ensure!(line.contains("attached"), "strace says {line}");
        // Read to its end, so that strace never waits for room in the pipe.
        thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Ok(Self { strace, calls })
    }

    /// One line for each call, once the traced process has ended.
    pub fn calls(mut self) -> Result<String> {
        self.strace.wait()?;
        Ok(fs::read_to_string(self.calls.path())?)
    }
}
