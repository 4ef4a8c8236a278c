//! Memory of a process, searched for what must not be there.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};

use anyhow::{Context as _, Result, ensure};

/// Memory of a process that it may write to, in bytes.
///
/// # Errors
/// The process is gone, or is not to be looked at by this one.
pub fn memory(pid: u32) -> Result<Vec<u8>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let (from, to) = range.context("a range")?;
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        let mut bytes = vec![0; usize::try_from(to - from)?];
        // Some cannot be read, which are no memory of the program's.
        if memory.seek(SeekFrom::Start(from)).is_ok() && memory.read_exact(&mut bytes).is_ok() {
            all.extend_from_slice(&bytes);
        }
    }
    ensure!(all.len() > 1 << 20, "{} bytes of memory", all.len());
    Ok(all)
}

/// True if `memory` has these bytes anywhere.
#[must_use]
pub fn holds(memory: &[u8], canary: &[u8]) -> bool {
    memory.windows(canary.len()).any(|piece| piece == canary)
}
