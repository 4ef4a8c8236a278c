//! What a process has used so far, as the kernel counts it (proc(5)).

use std::fs;

use anyhow::{Context as _, Result};

/// User and system time of a process, in seconds.
///
/// # Errors
/// There is no such process.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name before it may hold anything, blanks and parentheses included.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |field: usize| -> Result<f64> {
        let text = after_name.split_whitespace().nth(field - 3);
        Ok(text.with_context(|| path.clone())?.parse()?)
    };
    Ok((ticks(14)? + ticks(15)?) / rustix::param::clock_ticks_per_second() as f64)
}
