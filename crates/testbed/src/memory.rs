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
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let ranges = writable.map(range).collect::<Result<Vec<_>>>()?;
    // One place for all: a process that looks at itself would find what it has copied and freed the time before.
    let length: usize = ranges.iter().map(|(_, length)| length).sum();
    let mut all = Vec::with_capacity(length);
    for (from, length) in ranges {
        let start = all.len();
        all.resize(start + length, 0);
        // Some cannot be read, which are no memory of the program's.
        let read = memory.seek(SeekFrom::Start(from)).is_ok()
            && memory.read_exact(&mut all[start..]).is_ok();
        if !read {
            all[start..].fill(0);
            all.truncate(start);
        }
    }
    ensure!(all.len() > 1 << 20, "{} bytes of memory", all.len());
    Ok(all)
}

/// Address and length of the memory that a line of `maps` stands for.
fn range(line: &str) -> Result<(u64, usize)> {
    let range = line.split(' ').next();
    let (from, to) = range
        .and_then(|range| range.split_once('-'))
        .context("a range")?;
    let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
    Ok((from, usize::try_from(to - from)?))
}

/// True if `memory` has these bytes anywhere.
#[must_use]
pub fn holds(memory: &[u8], canary: &[u8]) -> bool {
    memory.windows(canary.len()).any(|piece| piece == canary)
}
