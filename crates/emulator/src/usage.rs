//! What a process has used so far, as the kernel counts it (proc(5)).

use std::fs;

use anyhow::{Context as _, Result};

/// User and system time of a process, in seconds.
///
/// # Errors
/// There is no such process.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    let [user, system] = fields(process, [14, 15])?;
    Ok((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// CPU time of the calling thread, in seconds.
#[must_use]
pub fn thread_cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Memory of a process that is not swapped out, in bytes.
///
/// # Errors
/// There is no such process.
pub fn resident(process: u32) -> Result<u64> {
    let [pages] = fields(process, [24])?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Start of a process, in clock ticks since that of the machine. With its ID it names one process for good.
///
/// # Errors
/// There is no such process.
pub fn start_time(process: u32) -> Result<u64> {
    Ok(fields(process, [22])?[0])
}

/// Fields of /proc/PROCESS/stat, by the manual's numbers.
fn fields<const N: usize>(process: u32, numbers: [usize; N]) -> Result<[u64; N]> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name before it may hold anything, blanks and parentheses included.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let mut values = [0; N];
    for (value, number) in values.iter_mut().zip(numbers) {
        let text = after_name.split_whitespace().nth(number - 3);
        *value = text.with_context(|| path.clone())?.parse()?;
    }
    Ok(values)
}
