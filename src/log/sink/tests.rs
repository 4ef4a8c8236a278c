//! Tests of the sink: lines that are read, dropped and counted.

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
