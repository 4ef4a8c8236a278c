//! HyStart of the kernel's CUBIC: a parameter of the whole machine, not of a namespace.
//!
//! Whoever measures TCP holds it: those who leave it alone all together, who turns it off by himself. The lock is that of the
//! parameter's own file, so it ends with its holder, however that ends. What the parameter was is written down while it is off: the
//! next who wants it finds there what a killed one has left, and puts it back first.
//!
//! ```text
//!  wait at the door ─► put back what a killed one left ─► lock, shared or alone ─► off? write down, turn off ─► leave the door
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::Congestion;

const PARAMETER: &str = "/sys/module/tcp_cubic/parameters/hystart";
/// Lock that those who wait for the other hold: else those who share it would come and go without end before who wants it alone.
const DOOR: &str = "/sys/module/tcp_cubic/parameters";
/// As lasting as the parameter: until the machine starts anew.
const MEMORY: &str = "/run/bentpipe-lab-hystart";
const POLL: Duration = Duration::from_millis(20);

/// HyStart stays as it is until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    off: bool,
    // Unlocked when closed, after `Drop::drop`.
    _lock: Option<File>,
}

/// Waits until nobody needs it otherwise, and sees to it that it is as `tcp` has it.
///
/// # Errors
/// It cannot be turned off or put back, or `stop` was thrown.
pub(crate) fn claim(tcp: Congestion, stop: &Stop) -> Result<Claim> {
    let mut claim = Claim {
        off: false,
        _lock: lock(tcp == Congestion::CubicNoHystart, stop)?,
    };
    if tcp == Congestion::CubicNoHystart {
        let before = fs::read_to_string(PARAMETER).with_context(|| PARAMETER.to_owned())?;
        fs::write(MEMORY, before).with_context(|| format!("cannot write {MEMORY}"))?;
        claim.off = true;
        fs::write(PARAMETER, "0").with_context(|| PARAMETER.to_owned())?;
    }
    Ok(claim)
}

/// Alone or shared; none where the kernel's CUBIC has no such parameter.
fn lock(alone: bool, stop: &Stop) -> Result<Option<File>> {
    let Ok(parameter) = File::open(PARAMETER) else {
        return Ok(None);
    };
    let door = File::open(DOOR).with_context(|| format!("cannot open {DOOR}"))?;
    wait(|| door.try_lock(), stop)?;
    // While it is off it is written down, and only a killed one leaves it so.
    let left = Path::new(MEMORY).exists();
    if alone || left {
        wait(|| parameter.try_lock(), stop)?;
        restore()?;
    }
    if !alone {
        parameter.unlock().context("cannot unlock HyStart")?;
        wait(|| parameter.try_lock_shared(), stop)?;
    }
    Ok(Some(parameter))
}

fn wait(lock: impl Fn() -> Result<(), TryLockError>, stop: &Stop) -> Result<()> {
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => stop.sleep(POLL)?,
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {PARAMETER}"));
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.off {
            // If it cannot be put back now it stays written down, and the next tries again.
            let _ = restore();
        }
    }
}

/// Puts back what is written down, if anything is. For who holds it alone.
fn restore() -> Result<()> {
    let before = match fs::read_to_string(MEMORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        before => before.with_context(|| format!("cannot read {MEMORY}"))?,
    };
    // Nothing but what the kernel may have said; else it ended before it had changed anything.
    if before.trim().parse::<u8>().is_ok() {
        fs::write(PARAMETER, before.trim()).with_context(|| {
            format!(
                "a killed experiment has left HyStart off, and {PARAMETER} cannot be written; run as root"
            )
        })?;
    }
    fs::remove_file(MEMORY).with_context(|| format!("cannot remove {MEMORY}"))
}

/// Puts back what a killed experiment has left.
///
/// # Errors
/// It cannot be put back.
pub(crate) fn clear() -> Result<()> {
    match File::open(PARAMETER) {
        // Else somebody has it off who is alive.
        Ok(parameter) if parameter.try_lock().is_ok() => restore(),
        _ => Ok(()),
    }
}

/// Setting when nobody has turned it off; none where the kernel has no such parameter.
pub(crate) fn setting() -> Option<String> {
    let value = fs::read_to_string(MEMORY).or_else(|_| fs::read_to_string(PARAMETER));
    value.ok().map(|value| value.trim().to_owned())
}

/// Checks that it can be turned off here.
pub(super) fn check() -> Result<(), String> {
    let open = fs::OpenOptions::new().write(true).open(PARAMETER);
    open.map(drop)
        .map_err(|error| format!("HyStart cannot be turned off: {PARAMETER}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    use super::*;

    #[test]
    fn who_wants_it_alone_waits_for_the_others_and_they_for_him() {
        let stop = Stop::new().unwrap();
        let Some(first) = lock(false, &stop).unwrap() else {
            // A kernel without the parameter.
            return;
        };
        let second = lock(false, &stop).unwrap();
        let (sender, events) = channel();
        let alone = {
            let (sender, stop) = (sender.clone(), stop.clone());
            thread::spawn(move || {
                let held = lock(true, &stop).unwrap();
                sender.send("alone").unwrap();
                held
            })
        };
        drop(first);
        let still = events.recv_timeout(10 * POLL);
        assert_eq!(still, Err(RecvTimeoutError::Timeout));
        // Who comes now waits behind him, though others share it still.
        let late = {
            let stop = stop.clone();
            thread::spawn(move || {
                let held = lock(false, &stop).unwrap();
                sender.send("shared").unwrap();
                held
            })
        };
        let still = events.recv_timeout(10 * POLL);
        assert_eq!(still, Err(RecvTimeoutError::Timeout));
        drop(second);
        assert_eq!(events.recv().unwrap(), "alone");
        let held = alone.join().unwrap();
        let still = events.recv_timeout(10 * POLL);
        assert_eq!(still, Err(RecvTimeoutError::Timeout));
        drop(held);
        assert_eq!(events.recv().unwrap(), "shared");
        drop(late.join().unwrap());
        // Who is told to stop waits no longer.
        let held = lock(true, &stop).unwrap();
        stop.stop();
        assert!(lock(false, &stop).is_err());
        drop(held);
    }
}
