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
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

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

    /// A pipe that has room for nothing more, and its sink.
    fn full_pipe() -> (File, Sink<File>) {
        let (reader, writer) = nonblocking_pipe();
        let sink = Sink::new(writer);
        while sink.put(LINE, |_| String::new()) {}
        (reader, sink)
    }

    fn told(count: u64) -> String {
        // As long as a line: where that finds no room, it does not either.
        format!("{count:020} dropped\n")
    }

    #[test]
    fn last_words_wait_for_a_reader_and_not_for_ever() {
        let (mut reader, sink) = full_pipe();
        let began = now();
        assert!(!sink.put(LINE, told));
        assert!(began.elapsed() < LAST_WORDS / 2, "an ordinary line waits");
        let comes = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            let (mut came, mut buffer) = (Vec::new(), [0; 1 << 16]);
            let until = now() + Duration::from_secs(10);
            while !came.ends_with(b"why\n") && now() < until {
                match reader.read(&mut buffer) {
                    Ok(count) => came.extend_from_slice(&buffer[..count]),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
            came
        });
        assert!(sink.put_last(b"why\n", told));
        let came = comes.join().expect("no panic");
        assert!(came.ends_with(b"00002 dropped\nwhy\n"));

        let (_reader, sink) = full_pipe();
        let began = now();
        assert!(!sink.put_last(b"why\n", told));
        assert!(began.elapsed() >= LAST_WORDS, "given up too soon");
        let began = now();
        assert!(!sink.put_last(b"and this\n", told));
        sink.end(told);
        assert!(began.elapsed() < LAST_WORDS / 2, "a second for each");
    }

    #[test]
    fn a_count_of_what_was_dropped_is_told_at_the_end() {
        let (mut reader, sink) = full_pipe();
        sink.put(LINE, told);
        let mut buffer = vec![0; 1 << 17];
        while reader.read(&mut buffer).is_ok() {}
        sink.end(told);
        let count = reader.read(&mut buffer).expect("a line");
        assert!(buffer[..count].ends_with(b"00002 dropped\n"));
        sink.end(|_| unreachable!("it is told"));
        assert!(reader.read(&mut buffer).is_err(), "nothing more");
    }

    /// Bytes of a line on the terminal, and lines of each writer.
    const LONG: usize = 1000;
    const LINES: usize = 500;

    #[test]
    fn lines_of_two_who_write_to_a_terminal_are_whole_and_all_there() {
        let own = std::env::current_exe().expect("this test");
        let own = own.display();
        // It makes a terminal, and says what came there.
        let mut script = Command::new("script");
        let command = format!("{own} --exact log::sink::tests::two_write --ignored --nocapture");
        script.args(["-qec", &command, "/dev/null"]);
        let output = script.stdin(Stdio::null()).output().expect("script(1)");
        let text = String::from_utf8_lossy(&output.stdout);
        for letter in ["a", "b"] {
            let whole = text.lines().filter(|line| *line == letter.repeat(LONG));
            assert_eq!(whole.count(), LINES, "{text:.4000}");
        }
    }

    /// No test: what the one above starts on a terminal.
    #[test]
    #[ignore = "started by lines_of_two_who_write_to_a_terminal_are_whole_and_all_there"]
    fn two_write() {
        let writers = ["a", "b"].map(|letter| {
            let sink = Sink::new(io::stderr());
            assert!(sink.is_terminal);
            thread::spawn(move || {
                let line = letter.repeat(LONG) + "\n";
                for _ in 0..LINES {
                    assert!(sink.put(line.as_bytes(), told));
                    // A terminal is read by somebody; half a megabyte at once would be too much for it.
                    thread::sleep(Duration::from_millis(1));
                }
            })
        });
        for writer in writers {
            writer.join().expect("no panic");
        }
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
