//! Standard error that never waits: what nobody takes is dropped, and counted.
//!
//! ```text
//! line ─► room? ─ yes ─► "N lines … dropped", if some were ─► line
//!           └─── no ──► count                  the last words of a process wait a second for room
//! ```
//!
//! A pipe whose reader stands still, a terminal that was stopped and a service manager that hangs would otherwise hold up the thread
//! that logs, and with it the tunnel. A file takes what it is given.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Longest piece that is written at once: where a pipe has room at all, it has room for that.
const PIECE: usize = 4096;

/// Time that the rest of a line waits for room: half a line, with another's behind it, is worse. After that all are dropped at once.
const HALF_LINE: Duration = Duration::from_millis(50);

/// Time for which a line waits for its turn on a terminal: it refuses whoever comes while another process writes to it. Once a line was
/// dropped, none waits until one is taken.
const TURN: Duration = Duration::from_millis(20);

/// Time between two tries of an output that says that it has room, and has none.
const MOMENT: Duration = Duration::from_micros(200);

/// Time that all last words of a process together wait for room.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Kind of an output, by how it is written to without waiting.
#[derive(Debug)]
enum Outlet {
    /// A file, or a device that takes all.
    Patient,
    /// A pipe or a terminal, opened once more: that it does not wait is then a matter of this process alone.
    Own(File),
    /// A pipe or a terminal that another user has made: it is asked for room first.
    Shared,
    Socket,
}

/// An output that lines are written to.
#[derive(Debug)]
pub(super) struct Sink<F> {
    fd: F,
    outlet: Outlet,
    is_terminal: bool,
    losses: Mutex<Losses>,
    /// Moment at which the last words have waited long enough.
    last: OnceLock<Instant>,
}

/// Losses that the reader has not heard of.
#[derive(Debug, Default)]
struct Losses {
    dropped: u64,
    /// The last line is there in part.
    cut: bool,
}

impl<F: AsFd> Sink<F> {
    /// An output to `fd`.
    pub(super) fn new(fd: F) -> Self {
        Self {
            outlet: Outlet::of(fd.as_fd()),
            is_terminal: fd.as_fd().is_terminal(),
            fd,
            losses: Mutex::default(),
            last: OnceLock::new(),
        }
    }

    /// Writes `line`, which ends in a newline, or drops it: then false. After some were dropped, `notice` tells how many in a line
    /// before it.
    pub(super) fn put(&self, line: &[u8], notice: impl FnOnce(u64) -> String) -> bool {
        self.put_within(line, notice, Duration::ZERO)
    }

    /// Writes one of the last lines of the process as [`Sink::put`] does, but waits for room: a second, for all of them together.
    pub(super) fn put_last(&self, line: &[u8], notice: impl FnOnce(u64) -> String) -> bool {
        let last = *self.last.get_or_init(|| now() + LAST_WORDS);
        let left = last.saturating_duration_since(now());
        self.put_within(line, notice, left)
    }

    /// Tells how many were dropped since this was told last, as one of the last lines of the process.
    pub(super) fn end(&self, notice: impl FnOnce(u64) -> String) {
        self.put_last(b"", notice);
    }

    fn put_within(
        &self,
        line: &[u8],
        notice: impl FnOnce(u64) -> String,
        patience: Duration,
    ) -> bool {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = match self.is_terminal && losses.dropped == 0 {
            true => TURN,
            false => Duration::ZERO,
        };
        let until = now() + patience.max(turn);
        if losses.dropped > 0 {
            let begins = if losses.cut { "\n" } else { "" };
            let told = format!("{begins}{}", notice(losses.dropped));
            if !self.take(told.as_bytes(), &mut losses, until) {
                losses.dropped += 1;
                return false;
            }
            losses.dropped = 0;
        }
        let taken = self.take(line, &mut losses, until);
        losses.dropped += u64::from(!taken);
        taken
    }

    /// True if all of `text` was taken, which may wait for room until `until`.
    fn take(&self, text: &[u8], losses: &mut Losses, mut until: Instant) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(PIECE)];
            match self.outlet.write(self.fd.as_fd(), piece) {
                Ok(count) if count > 0 => {
                    rest = &rest[count..];
                    until = until.max(now() + HALF_LINE);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.is_worth_a_try(until) => {}
                // No room, or nobody who would read it.
                Ok(_) | Err(_) => break,
            }
        }
        if rest.len() < text.len() {
            losses.cut = !rest.is_empty();
        }
        rest.is_empty()
    }
}

impl<F: AsFd> Sink<F> {
    /// Waits for room until `until`; false if there is no time.
    fn is_worth_a_try(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return false;
        }
        let span = Timespec::try_from(left).unwrap_or_default();
        let mut asked = [PollFd::new(&self.fd, PollFlags::OUT)];
        // Interrupted, it is worth one as well.
        let _ = poll(&mut asked, Some(&span));
        thread::sleep(MOMENT);
        true
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a reader keeps the process waiting is a matter of the machine's clock"
)]
fn now() -> Instant {
    Instant::now()
}

impl Outlet {
    fn of(fd: BorrowedFd<'_>) -> Self {
        let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket,
            Ok(FileType::Fifo) => Self::reopened(fd),
            Ok(FileType::CharacterDevice) if fd.is_terminal() => Self::reopened(fd),
            _ => Self::Patient,
        }
    }

    fn reopened(fd: BorrowedFd<'_>) -> Self {
        if !cfg!(target_os = "linux") {
            // Elsewhere this would be the same open file, whose flags others have as well.
            return Self::Shared;
        }
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags.bits().cast_signed())
            .open(format!("/dev/fd/{}", fd.as_raw_fd()));
        opened.map_or(Self::Shared, Self::Own)
    }

    /// Writes as much of `piece` as there is room for.
    fn write(&self, fd: BorrowedFd<'_>, piece: &[u8]) -> io::Result<usize> {
        match self {
            Self::Patient => Ok(rustix::io::write(fd, piece)?),
            Self::Own(file) => (&*file).write(piece),
            Self::Socket => Ok(rustix::net::send(fd, piece, SendFlags::DONTWAIT)?),
            Self::Shared => {
                let mut asked = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                poll(&mut asked, Some(&Timespec::default()))?;
                match asked[0].revents().contains(PollFlags::OUT) {
                    true => Ok(rustix::io::write(fd, piece)?),
                    false => Err(Errno::AGAIN.into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
