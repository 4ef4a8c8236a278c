//! A log that nobody reads: the daemons go on, and tell of it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use bentpipe_testbed::status::report;

use super::joining::{Site, through};
use crate::BENTPIPE;

/// Bytes whose crossing fills the pipe of a log in all its detail many times over.
const SIZE: usize = 8_000_000;

#[test]
fn a_pipe_that_nobody_reads_does_not_stop_the_tunnel() {
    let site = Site::new();
    let code = site.add("terminal-1", &[]);
    let socks = site.join("one", &code);
    let detail = ["--log", "trace"];
    let server = site.start_server_by(Command::new(BENTPIPE), &detail);
    let client = site.start_client_with("one", &detail);
    site.wait_for("one", "ready");

    let source = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = source.local_addr().expect("an address").port();
    let sends = thread::spawn(move || {
        let (mut stream, _) = source.accept().expect("somebody");
        stream.write_all(&vec![7; SIZE]).expect("all is taken");
    });
    let mut heard = Vec::new();
    let mut stream = through(socks, port);
    stream.read_to_end(&mut heard).expect("the flow goes on");
    assert_eq!(heard.len(), SIZE);
    drop(stream);
    sends.join().expect("no panic");

    for (socket, daemon) in [("server.sock", server), ("one/client.sock", client)] {
        let status = report(BENTPIPE, &site.path(socket)).expect("a report");
        let events = status["events"].to_string();
        assert!(events.contains("lines of the log are dropped"), "{events}");
        // What fitted is there, whole.
        let ended = daemon.stop();
        assert_eq!(ended.code, Some(0));
        assert!(ended.stderr.len() > 30_000 && ended.stderr.ends_with('\n'));
    }
}
