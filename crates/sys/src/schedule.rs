//! When a thread runs: before all others and without waiting for memory, for those that must be in time; or after all others.
#![expect(unsafe_code, reason = "sched_setscheduler(2) has no safe wrapper")]

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Lets the calling thread run before every ordinary thread of the machine, until it sleeps; threads and processes that
/// it starts are ordinary. For threads that sleep nearly all the time. A nice value would not do: the kernel weighs it
/// within one login session only.
///
/// # Errors
/// CAP_SYS_NICE of the machine itself is missing, or its configuration forbids real-time threads.
pub fn go_first() -> io::Result<()> {
    schedule(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)
}

/// Lets the calling thread run only where a processor would sleep, and so do the threads that it starts.
///
/// # Errors
/// The machine's configuration forbids it.
pub fn go_last() -> io::Result<()> {
    schedule(libc::SCHED_IDLE, 0)
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: 0 is the calling thread; the kernel's `sched_param` is one integer, which outlives the call and is only read.
    // musl's function of this name refuses, and its structure has more fields.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Keeps every page that the process touches from now on in memory. Where the amount is limited it does nothing, since
/// the process would later fail for want of memory instead; whether it did anything.
#[must_use]
pub fn keep_memory() -> bool {
    let unlimited = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    // Pages are fetched when touched: the stacks of threads are mostly never used.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    unlimited && mlockall(flags).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy in /proc/thread-self/stat: field 41, counted after the name in parentheses.
    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        fields.split_whitespace().nth(38).unwrap().to_owned()
    }

    #[test]
    fn only_the_calling_thread_goes_first() {
        let before = policy();
        let inside = std::thread::spawn(|| {
            let allowed = go_first();
            let child = std::thread::spawn(policy).join().unwrap();
            (allowed, policy(), child)
        });
        match inside.join().unwrap() {
            (Ok(()), own, child) => assert_eq!((&*own, &*child), ("2", "0")),
            (Err(error), own, _) => {
                eprintln!("not allowed here: {error}");
                assert_eq!(own, before);
            }
        }
        assert_eq!(policy(), before);
    }

    #[test]
    fn who_goes_last_does_so_alone() {
        let before = policy();
        let inside = std::thread::spawn(|| go_last().map(|()| policy()));
        assert_eq!(inside.join().unwrap().unwrap(), "5");
        assert_eq!(policy(), before);
    }
}
