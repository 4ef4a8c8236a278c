//! Sockets of daemons and who asks at them, with real sockets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;

use super::*;
use crate::status::socket::{RunDirectory, query_in};

/// A run directory of its own.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("bentpipe-status-{}-{count}", std::process::id())))
    }

    fn directories(&self) -> [RunDirectory; 1] {
        [RunDirectory::of(self.0.clone(), geteuid())]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `work` beside a daemon that serves `sockets`.
fn beside<T: Send + 'static>(
    bind: impl FnOnce() -> Vec<StatusSocket>,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        for socket in bind() {
            tokio::task::spawn_local(async move { socket.serve(client_report).await });
        }
        tokio::task::spawn_blocking(work).await.unwrap()
    })
}

#[test]
fn the_only_daemon_answers_and_its_socket_goes_with_it() {
    let place = Place::new();
    let (bound, asked) = (place.directories(), place.directories());
    let answer = beside(
        move || {
            let socket = StatusSocket::bind_in(&bound, Role::Client).unwrap();
            let mode = fs::metadata(socket.path().unwrap())
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
            vec![socket]
        },
        move || {
            (
                query_in(&asked, None).unwrap(),
                query_in(&asked, None).unwrap(),
            )
        },
    );
    assert_eq!(answer, (client_report(), client_report()));
    assert!(
        query_in(&place.directories(), None)
            .unwrap_err()
            .is_no_daemon()
    );
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);
}

#[test]
fn several_daemons_are_listed() {
    let place = Place::new();
    let (bound, asked) = (place.directories(), place.directories());
    let error = beside(
        move || {
            [Role::Client, Role::Server]
                .map(|role| StatusSocket::bind_in(&bound, role).unwrap())
                .into()
        },
        move || query_in(&asked, None).unwrap_err(),
    );
    let QueryError::Several(found) = &error else {
        panic!("{error}")
    };
    assert_eq!(found.len(), 2);
    assert!(error.to_string().contains("--socket"));
}

#[test]
fn a_socket_whose_file_another_program_removes_comes_back() {
    let place = Place::new();
    let directories = place.directories();
    beside(
        move || {
            let mut socket = StatusSocket::bind_in(&directories, Role::Client).unwrap();
            let (path, mut told) = (socket.path().unwrap().to_owned(), false);
            fs::remove_file(&path).unwrap();
            socket.keep(&mut told);
            assert!(path.exists() && !told);
            // Nobody can bind where there is no directory.
            fs::remove_dir_all(directories[0].path()).unwrap();
            socket.keep(&mut told);
            assert!(told);
            directories[0].make().unwrap();
            socket.keep(&mut told);
            socket.keep(&mut told);
            assert!(path.exists() && !told);
            vec![socket]
        },
        || (),
    );
}

#[test]
fn sockets_of_the_dead_are_removed_and_of_the_living_kept() {
    let place = Place::new();
    let directories = place.directories();
    beside(
        move || {
            let socket = StatusSocket::bind_in(&directories, Role::Client).unwrap();
            let dead = directories[0].path().join("server-1.sock");
            drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
            fs::set_permissions(&dead, fs::Permissions::from_mode(0o600)).unwrap();
            // A file of that name refuses connections, too.
            let named = directories[0].path().join("client-2.sock");
            fs::write(&named, "precious").unwrap();
            let again = StatusSocket::bind_in(&directories, Role::Client).unwrap_err();
            assert!(matches!(again, SocketError::InUse(_)), "{again}");
            assert!(!dead.exists() && named.exists() && socket.path().unwrap().exists());
            let plain = directories[0].path().join("plain");
            fs::write(&plain, "precious").unwrap();
            // Nothing of others is removed, and no daemon ends: the socket is there as soon as it can be.
            let mut waiting = StatusSocket::bind(Role::Client, Some(&plain)).unwrap();
            assert!(waiting.path().is_none() && plain.exists());
            waiting.keep(&mut false);
            assert!(waiting.path().is_none() && plain.exists());
            fs::remove_file(&plain).unwrap();
            waiting.keep(&mut false);
            assert_eq!(waiting.path(), Some(&*plain));
            vec![socket]
        },
        || (),
    );
}

#[test]
fn what_another_program_puts_in_the_place_of_a_socket_outlives_the_daemon() {
    let place = Place::new();
    let directories = place.directories();
    beside(
        move || {
            let socket = StatusSocket::bind_in(&directories, Role::Client).unwrap();
            let path = socket.path().unwrap().to_owned();
            fs::remove_file(&path).unwrap();
            fs::write(&path, "precious").unwrap();
            drop(socket);
            assert_eq!(fs::read(&path).unwrap(), b"precious");
            Vec::new()
        },
        || (),
    );
}

#[test]
fn a_directory_that_others_enter_is_not_used() {
    let place = Place::new();
    fs::create_dir(&place.0).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    let error = StatusSocket::bind_in(&place.directories(), Role::Client).unwrap_err();
    assert!(error.to_string().contains("mode 0700"), "{error}");
}

/// In /tmp anybody can make what root's daemons would use; root can give a directory away, so this test needs root.
#[test]
fn a_directory_of_somebody_else_is_neither_asked_nor_cleaned() {
    if !geteuid().is_root() {
        eprintln!("a directory of somebody else: skipped, needs root");
        return;
    }
    let place = Place::new();
    fs::create_dir(&place.0).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o700)).unwrap();
    let dead = place.0.join("client-1.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let living = place.0.join("server-1.sock");
    let listener = std::os::unix::net::UnixListener::bind(&living).unwrap();
    std::os::unix::fs::chown(&place.0, Some(65_534), None).unwrap();
    let error = query_in(&place.directories(), None).unwrap_err();
    assert!(error.is_no_daemon(), "{error}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it was asked");
    assert!(dead.exists());
    // The same by a link to a directory of ours: who made the link chose what is asked.
    let linked = Place::new();
    std::os::unix::fs::chown(&place.0, Some(0), None).unwrap();
    std::os::unix::fs::symlink(&place.0, &linked.0).unwrap();
    assert!(
        query_in(&linked.directories(), None)
            .unwrap_err()
            .is_no_daemon()
    );
    assert!(listener.accept().is_err(), "it was asked");
    fs::remove_file(&linked.0).unwrap();
}

#[test]
fn an_answer_commands_no_terminal() {
    let place = Place::new();
    let (bound, asked) = (place.directories(), place.directories());
    let report = beside(
        move || {
            let socket = StatusSocket::bind_in(&bound, Role::Client).unwrap();
            let path = socket.path().unwrap().to_owned();
            drop(socket);
            // Somebody else's program, which says what it likes.
            let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut report = client_report();
                report.version = "\u{1b}[2J".into();
                serde_json::to_writer(&mut stream, &report).unwrap();
            });
            Vec::new()
        },
        move || query_in(&asked, None).unwrap(),
    );
    assert_eq!(report.version, "\u{fffd}[2J");
}
