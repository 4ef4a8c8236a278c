//! Guardian of this process's nftables rules, routes and settings in the kernel, which other programs change or remove.
//!
//! ```text
//!   kernel ══ notices ══► Guardian ── compare ──► Subject (what should be there, what is)
//!      ▲                      │  faults
//!      │                      ▼
//!      └────── repair ◄── Keeper (now or later, which line to log, what `status` shows)
//! ```
//!
//! A client, a server and a PEP have one [`Guardian`] each: a thread that looks at every notice and every 2 s
//! ([`LOOK`]), or at least every 20 s where a look takes long ([`LONGEST`]), and puts back what is gone. What belongs to them is
//! a [`Subject`]. When to repair is decided by [`Keeper`], which has no clock.

mod closed_passages;
mod keeper;
mod last_look;
mod noticed;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bentpipe_sys::link::Link;
use bentpipe_sys::watch::{Change, Object, Watch};
use rustix::event::{EventfdFlags, eventfd};

pub(crate) use closed_passages::ClosedPassages;
pub(crate) use keeper::{Keeper, NoticeLevel};
pub(crate) use last_look::LastLook;
use noticed::Noticed;

use crate::complaint::Complaint;
use crate::process;
use crate::status::KernelRepair;

/// Without a notice one looks so often: settings have none, and notices may be lost.
const LOOK: Duration = Duration::from_secs(2);

/// Comparisons without a notice take at most one part in so many of the time: of a full routing table each takes tens of milliseconds.
const SHARE_UNASKED: u32 = 100;

/// Longest time without a comparison, however dear they are.
const LONGEST: Duration = Duration::from_secs(20);

/// Comparisons after notices take at most one part in so many of the time, however many come.
const SHARE: u32 = 8;

/// At least so long from one comparison to the next.
const GAP: Duration = Duration::from_millis(10);

/// A part of the kernel's state that is ours and can be put back by itself.
pub(crate) trait KernelPart {
    /// Name of the part, as the log and `status` tell it.
    fn name(&self) -> String;

    /// Object that a notice about it names.
    fn object(&self) -> Object;

    /// Level of the line that says that it cannot be put back.
    fn gravity(&self) -> NoticeLevel {
        NoticeLevel::Error
    }

    /// Time for which the part must be at fault before it is put back.
    fn settles(&self) -> Duration {
        Duration::ZERO
    }

    /// True if others are the cause, who may be hosts of the LAN: it is told, and no reason to call the daemon unhealthy.
    fn is_of_others(&self) -> bool {
        false
    }
}

/// Parts that are not as they should be, and the difference of each: "is gone", "was changed".
pub(crate) type Faults<P> = Vec<(P, &'static str)>;

/// Parts of the kernel's state that are ours.
pub(crate) trait Subject: Send + 'static {
    /// One of its parts.
    type Part: KernelPart;

    /// Faults: parts that are not as they should be.
    ///
    /// # Errors
    /// The kernel does not say what it has.
    fn compare(&mut self) -> io::Result<Faults<Self::Part>>;

    /// Puts one part back that the last comparison found at fault.
    ///
    /// # Errors
    /// It could not; the text says why, and the mend.
    fn repair(&mut self, part: &Self::Part) -> io::Result<()>;

    /// Hears of changes, also of what is not ours.
    fn notice(&mut self, _changes: &[Change]) {}
}

/// Difference between `link`, which is up where it is whole, and one of this `mtu`.
pub(crate) fn device_fault(link: &Link, mtu: usize) -> Option<&'static str> {
    match (link.up, usize::try_from(link.mtu) == Ok(mtu)) {
        (false, _) => Some("is down"),
        (true, false) => Some("has another MTU"),
        (true, true) => None,
    }
}

/// A part of the kernel's state that is ours, and is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KernelFault {
    /// Name of the part.
    part: String,
    /// Difference of the part.
    state: &'static str,
    /// Object that a notice about it names.
    object: Object,
    /// Level of the line that says that it cannot be put back.
    gravity: NoticeLevel,
    /// Time for which the part must be at fault before it is put back.
    settles: Duration,
    /// True if others are the cause.
    of_others: bool,
}

impl KernelFault {
    fn of<P: KernelPart>((part, state): &(P, &'static str)) -> Self {
        Self {
            part: part.name(),
            state,
            object: part.object(),
            gravity: part.gravity(),
            settles: part.settles(),
            of_others: part.is_of_others(),
        }
    }
}

/// The thread that keeps a [`Subject`]; dropping it ends the thread, before what it keeps is removed.
pub(crate) struct Guardian {
    shared: Arc<GuardianShared>,
    thread: Option<JoinHandle<()>>,
}

/// Answers for `status`, for as long as it is wanted.
#[derive(Clone)]
pub(crate) struct Repairs(Arc<GuardianShared>);

struct GuardianShared {
    keeper: Mutex<Keeper>,
    stop: AtomicBool,
    wake: OwnedFd,
}

impl GuardianShared {
    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Full only if it is readable anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Repairs {
    /// Parts that were put back so far.
    pub(crate) fn report(&self) -> Vec<KernelRepair> {
        self.0.keeper().report(process::now())
    }
}

impl Guardian {
    /// Begins to watch the calling thread's network namespace.
    pub(crate) fn start(subject: impl Subject) -> io::Result<Self> {
        let watch = Watch::open()?;
        let shared = Arc::new(GuardianShared {
            keeper: Mutex::default(),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let inside = shared.clone();
        let thread = thread::Builder::new()
            .name("kernel".into())
            .spawn(move || keep(&inside, &watch, subject))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// [`Self::start`] for a daemon that can do without; the log is told why it has to.
    pub(crate) fn start_or_tell(subject: impl Subject) -> Option<Self> {
        Self::start(subject)
            .inspect_err(|error| {
                tracing::error!("what others change in the kernel is not noticed: {error}");
            })
            .ok()
    }

    /// Parts that `status` is told of.
    pub(crate) fn repairs(&self) -> Repairs {
        Repairs(self.shared.clone())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

fn keep(shared: &GuardianShared, watch: &Watch, mut subject: impl Subject) {
    let mut noticed = Noticed::default();
    let mut sight = Complaint::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let (began, worked) = (process::now(), process::thread_time());
        let found = seen(&mut sight, subject.compare());
        shared.keeper().sees(sight.reason().map(str::to_owned));
        // Whatever caused them was noticed before it could be seen. What was noticed may also have come after the look.
        let calls = noticed.take_in(watch.take(), &mut subject);
        // Of what cannot be seen nothing is known: neither that it is whole nor that it is not.
        if found.is_some_and(|found| put_back(shared, &mut subject, &found, began, &noticed)) {
            noticed = Noticed::default();
            continue;
        }
        let now = process::now();
        // Of its own time: what others do with the processor meanwhile is no reason to be late.
        let worked = process::thread_time() - worked;
        let pause = (worked * SHARE).max(GAP);
        if !calls {
            noticed = Noticed::default();
            // Short of a notice that comes meanwhile this is waited for.
            let due = shared.keeper().poll_timeout();
            let wait = (worked * SHARE_UNASKED).clamp(LOOK, LONGEST);
            let wait = due.map_or(wait, |due| due.saturating_duration_since(now).min(wait));
            if let Err(error) = wait_for_notice(shared, watch, now + wait, |new| {
                noticed.take_in(new, &mut subject)
            }) {
                tracing::error!("the kernel is not watched any more: {error}");
                return;
            }
        }
        // Notices come in bursts: one look serves many, and the first is answered at once.
        let spent = process::now().saturating_duration_since(now);
        if spent < pause && !shared.stop.load(Ordering::Relaxed) {
            thread::sleep(pause.saturating_sub(spent).min(LOOK));
            noticed.take_in(watch.take(), &mut subject);
        }
    }
}

/// Waits until `take` says of what was noticed that it calls for a look, the guardian is to stop, or it is `until`.
fn wait_for_notice(
    shared: &GuardianShared,
    watch: &Watch,
    until: Instant,
    mut take: impl FnMut(Vec<Change>) -> bool,
) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(process::now());
        watch.wait(shared.wake.as_fd(), left)?;
        let mut count = [0; 8];
        let _ = rustix::io::read(&shared.wake, &mut count);
        if take(watch.take()) || left.is_zero() || shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Those of a routing daemon come by the hundred, one by one.
        thread::sleep(GAP.min(left));
    }
}

/// Puts back what is due of what was `found` in a look that `began` then; true if anything was.
fn put_back<S: Subject>(
    shared: &GuardianShared,
    subject: &mut S,
    found: &Faults<S::Part>,
    began: Instant,
    noticed: &Noticed,
) -> bool {
    let faults: Vec<_> = found.iter().map(KernelFault::of).collect();
    let due = shared.keeper().judge(began, &faults);
    for index in &due {
        let fault = &faults[*index];
        let outcome = subject.repair(&found[*index].0);
        let outcome = outcome.map_err(|error| error.to_string());
        let by = noticed.culprit(&fault.object);
        let line = shared.keeper().mended(process::now(), fault, by, &outcome);
        if let Some((level, line)) = line {
            log(level, &line);
        }
    }
    !due.is_empty()
}

/// Faults of a comparison that the kernel has answered; the log is told of what it has not.
fn seen<P>(sight: &mut Complaint, compared: io::Result<Faults<P>>) -> Option<Faults<P>> {
    let reason = compared.as_ref().err().map(ToString::to_string);
    let line = |reason: &str| {
        format!("cannot see whether rules, routes and table are in force: {reason}; trying on")
    };
    let over = "rules, routes and table can be seen again";
    sight.tell(process::now(), reason, line, over);
    compared.ok()
}

fn log(level: NoticeLevel, line: &str) {
    match level {
        NoticeLevel::Error => tracing::error!("{line}"),
        NoticeLevel::Warn => tracing::warn!("{line}"),
        NoticeLevel::Debug => tracing::debug!("{line}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use bentpipe_sys::command::run;
    use bentpipe_sys::netns::NetNs;

    use super::*;

    const PRIORITY: &str = "4711";

    /// Sees its rule once, after which it is taken away before the comparison has ended.
    struct Late {
        stolen: bool,
        told: Sender<()>,
    }

    /// The rule as a part.
    struct Rule;

    impl KernelPart for Rule {
        fn name(&self) -> String {
            "rule".into()
        }

        fn object(&self) -> Object {
            Object::Rule
        }
    }

    impl Subject for Late {
        type Part = Rule;

        fn compare(&mut self) -> io::Result<Faults<Rule>> {
            let rules = run("ip", &["rule", "show", "priority", PRIORITY]).expect("rules");
            if !rules.is_empty() && !std::mem::replace(&mut self.stolen, true) {
                run("ip", &["rule", "del", "priority", PRIORITY]).expect("a theft");
            }
            let gone = rules.is_empty().then_some((Rule, "is gone"));
            Ok(gone.into_iter().collect())
        }

        fn repair(&mut self, _: &Rule) -> io::Result<()> {
            run(
                "ip",
                &["rule", "add", "priority", PRIORITY, "lookup", "main"],
            )?;
            let _ = self.told.send(());
            Ok(())
        }
    }

    #[test]
    fn what_goes_during_a_look_is_seen_at_once_and_not_at_the_next_look() {
        // Root alone makes namespaces.
        let Ok(place) = NetNs::temporary(&format!("bpk-{}", std::process::id())) else {
            let required = std::env::var_os("BENTPIPE_REQUIRE_ROOT").is_some();
            assert!(!required, "no namespace can be made here");
            eprintln!("skipped: needs root, to make a namespace");
            return;
        };
        let (told, tells) = channel();
        let late = Late {
            stolen: false,
            told,
        };
        let guardian = place.enter(|| {
            let add = ["rule", "add", "priority", PRIORITY, "lookup", "main"];
            run("ip", &add).expect("a rule");
            Guardian::start(late).expect("a guardian")
        });
        let back = tells.recv_timeout(LOOK * 3 / 4);
        drop(guardian.expect("the place"));
        back.expect("it is put back before the next look");
    }
}
