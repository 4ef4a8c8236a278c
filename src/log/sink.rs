//! Standard error that never waits: what nobody takes is dropped, and counted.
//!
//! ```text
//! line ─► room? ─ yes ─► "N lines … dropped", if some were ─► line
//!           └─── no ──► count
//! ```
//!
//! A pipe whose reader stands still, a terminal that was stopped and a service manager that hangs would otherwise hold up the thread
//! that logs, and with it the tunnel. A file takes what it is given.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Longest piece that is written at once: where a pipe has room at all, it has room for that.
const PIECE: usize = 4096;

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
    losses: Mutex<Losses>,
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
            fd,
            losses: Mutex::default(),
        }
    }

    /// Writes `line`, which ends in a newline, or drops it: then false. After some were dropped, `notice` tells how many in a line
    /// before it.
    pub(super) fn put(&self, line: &[u8], notice: impl FnOnce(u64) -> String) -> bool {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        if losses.dropped > 0 {
            let begins = if losses.cut { "\n" } else { "" };
            let told = format!("{begins}{}", notice(losses.dropped));
            if !self.take(told.as_bytes(), &mut losses) {
                losses.dropped += 1;
                return false;
            }
            losses.dropped = 0;
        }
        let taken = self.take(line, &mut losses);
        losses.dropped += u64::from(!taken);
        taken
    }

    /// True if all of `text` was taken.
    fn take(&self, text: &[u8], losses: &mut Losses) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(PIECE)];
            match self.outlet.write(self.fd.as_fd(), piece) {
                Ok(count) if count > 0 => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LINE: &[u8] = b"a line of the log\n";

    /// Far more than any pipe or socket holds, then all that came, then one more line.
    fn overwhelm<F: AsFd>(sink: &Sink<F>, mut reader: impl io::Read) {
        // Longer than a line: where a line finds no room, it does not either.
        let notice = |count| format!("{count:020} dropped\n");
        let lines = 200_000;
        let taken = (0..lines).filter(|_| sink.put(LINE, notice)).count();
        // Nobody need end the output for what came to be read.
        let mut came = Vec::new();
        let mut buffer = [0; 1 << 16];
        loop {
            match reader.read(&mut buffer) {
                Ok(count) => came.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let whole = came.len() / LINE.len();
        assert!(whole > 100 && whole < lines / 2, "{whole} lines came");
        assert_eq!(taken, whole);
        assert!(sink.put(LINE, notice), "there is room again");
        let mut after = vec![0; 1 << 10];
        let count = reader.read(&mut after).expect("a line");
        let after = String::from_utf8_lossy(&after[..count]);
        let told = format!("{:020} dropped\na line of the log\n", lines - whole);
        assert_eq!(after, told);
    }

    fn nonblocking_pipe() -> (File, File) {
        let (reader, writer) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&reader, true).expect("a flag");
        let file = |fd: OwnedFd| File::from(fd);
        (file(reader.into()), file(writer.into()))
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up() {
        let (reader, writer) = nonblocking_pipe();
        let sink = Sink::new(writer);
        assert!(matches!(sink.outlet, Outlet::Own(_)));
        overwhelm(&sink, reader);
    }

    #[test]
    fn nor_does_one_of_another_user() {
        let (reader, writer) = nonblocking_pipe();
        let sink = Sink {
            outlet: Outlet::Shared,
            ..Sink::new(writer)
        };
        overwhelm(&sink, reader);
    }

    #[test]
    fn nor_a_socket() {
        let (reader, writer) = UnixStream::pair().expect("sockets");
        reader.set_nonblocking(true).expect("a flag");
        let sink = Sink::new(writer);
        assert!(matches!(sink.outlet, Outlet::Socket));
        overwhelm(&sink, reader);
    }

    #[test]
    fn a_file_takes_all_and_others_flags_stay() {
        let mut file = tempfile::tempfile().expect("a file");
        let sink = Sink::new(file.try_clone().expect("a descriptor"));
        assert!((0..1000).all(|_| sink.put(LINE, |_| unreachable!("nothing is dropped"))));
        io::Seek::rewind(&mut file).expect("a file");
        let mut came = Vec::new();
        file.read_to_end(&mut came).expect("lines");
        assert_eq!(came.len(), 1000 * LINE.len());
        let (_reader, writer) = io::pipe().expect("a pipe");
        let other = writer.try_clone().expect("a descriptor");
        let _sink = Sink::new(writer);
        let flags = rustix::fs::fcntl_getfl(&other).expect("flags");
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
