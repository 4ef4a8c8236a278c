//! What commands and daemons leave alone: files of others where their own are to be, and lists that they could not tell of.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use super::config_errors::home::{Home, run};
use super::joining::{Site, said};
use crate::BENTPIPE;

/// A regular file refuses connections as the socket of a dead daemon does.
#[test]
fn nothing_that_others_made_is_removed() {
    let home = Home::new();
    let path = home.path("precious");
    for role in ["client", "server"] {
        let (old, new) = (format!("{role}.sock"), "precious");
        home.edit(&format!("{role}.toml"), &old, new);
    }
    let make: [(&str, &dyn Fn()); 4] = [
        ("file", &|| home.write("precious", "hello")),
        ("directory", &|| fs::create_dir(&path).expect("a directory")),
        ("link", &|| {
            drop(UnixListener::bind(home.path("other.sock")).expect("a socket"));
            symlink("other.sock", &path).expect("a link");
        }),
        ("socket", &|| {
            drop(UnixListener::bind(&path).expect("a socket"));
        }),
    ];
    let commands: [&[&str]; 7] = [
        &["status", "--socket", "precious"],
        &["status", "--check", "--socket", "precious"],
        &["status", "--json", "--socket", "precious"],
        &["doctor", "--config", "client.toml"],
        &["measure", "--config", "client.toml"],
        &["server", "add", "q", "--config", "server.toml"],
        &["server", "remove", "q", "--config", "server.toml"],
    ];
    home.edit(
        "server.toml",
        "status_socket",
        "public_address = \"127.0.0.1:4433\"\nstatus_socket",
    );
    for (what, make) in make {
        make();
        let before = fs::symlink_metadata(&path).expect("it is there").ino();
        for arguments in commands {
            let mut command = Command::new(BENTPIPE);
            let ended = run(command.args(arguments).current_dir(home.directory.path()));
            let now = fs::symlink_metadata(&path).map(|found| found.ino());
            assert_eq!(now.ok(), Some(before), "{arguments:?} on a {what}");
            if arguments[0] == "status" && ["file", "directory"].contains(&what) {
                ended.must_say(6, "bentpipe: precious is no socket", &[]);
            }
        }
        // A daemon that is to have its socket there works without.
        let daemon = daemon_beside(&home);
        let now = fs::symlink_metadata(&path).map(|found| found.ino());
        assert_eq!(now.ok(), Some(before), "the client on a {what}: {daemon}");
        match what {
            "directory" => fs::remove_dir(&path),
            _ => fs::remove_file(&path),
        }
        .expect("it is ours");
    }
}

/// Runs the client for a moment, and returns its log.
fn daemon_beside(home: &Home) -> String {
    let log = home.log_of_client();
    assert!(log.contains("set another `status_socket`"), "{log}");
    log
}

/// Nobody can have a code again, so a client whose code was not printed is not listed.
#[test]
fn a_client_whose_code_is_lost_is_not_listed() {
    let site = Site::new();
    // A comment at the end would go with the client that is added before it.
    let before = fs::read_to_string(site.server()).expect("it is there") + "# the end\n";
    fs::write(site.server(), &before).expect("it is ours");
    for (output, words) in [
        (">/dev/full", "No space left on device"),
        (">&-", "standard output is closed"),
        // A pipe whose reader has gone.
        (
            "3<>\"$2\" 4>\"$2\" 3<&- >&4",
            "nobody reads standard output",
        ),
    ] {
        let line = format!(
            "test -e \"$2\" || mkfifo \"$2\"; exec \"$0\" server add u --config \"$1\" {output}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &line, BENTPIPE, &site.server()]);
        let ended = run(command.arg(site.path("fifo")));
        ended.must_say(1, "bentpipe: ", &[words]);
        let after = fs::read_to_string(site.server()).expect("it is there");
        assert_eq!(after, before, "{output}");
    }
}

/// An operator's own draft beside the file is none of the program's.
#[test]
fn files_beside_the_configuration_stay() {
    let site = Site::new();
    let draft = site.path("server.toml.new");
    fs::write(&draft, "precious").expect("it is ours");
    site.add("u", &[]);
    said(&["server", "remove", "u", "--config", &site.server()]);
    assert_eq!(fs::read(&draft).expect("it is there"), b"precious");
    let names = fs::read_dir(site.path(".")).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let aside = names.filter(|name| name.to_string_lossy().contains(".bentpipe-"));
    assert_eq!(aside.count(), 0);
}
