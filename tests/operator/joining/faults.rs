//! Codes that have expired, files that stand in the way, and a disk that is full.

use super::*;

/// A configuration that is kept elsewhere and linked to stays so: the file behind the link is changed, whole or not at all.
#[test]
fn a_link_to_a_configuration_stays_a_link() {
    let directory = tempfile::tempdir().expect("a directory");
    let [place, kept] = ["etc", "kept"].map(|name| directory.path().join(name));
    let file = place.join("server.toml");
    let shown = file.display().to_string();
    said(&[
        "server",
        "init",
        "--public",
        "192.0.2.1",
        "--config",
        &shown,
    ]);
    fs::create_dir(&kept).expect("a directory");
    let target = kept.join("gateway.toml");
    fs::rename(&file, &target).expect("it is ours");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("it is ours");
    symlink("../kept/gateway.toml", &file).expect("a link");
    // The key stays beside the link, to which the names in the file are relative.
    said(&["server", "add", "ship-1", "--config", &shown]);
    let is_link = || file.symlink_metadata().expect("it is there").is_symlink();
    assert!(is_link(), "the link has gone");
    let text = fs::read_to_string(&target).expect("it is there");
    assert!(text.contains("ship-1"), "{text}");
    let mode = target.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    said(&["server", "remove", "ship-1", "--config", &shown]);
    assert!(
        is_link()
            && !fs::read_to_string(&target)
                .expect("it is there")
                .contains("ship-1")
    );
    for left in [&place, &kept].map(|place| fs::read_dir(place).expect("a directory")) {
        let mut names = left.map(|entry| entry.expect("an entry").file_name());
        assert!(names.all(|name| !name.to_string_lossy().ends_with("new")));
    }
}

#[test]
fn a_code_expires() {
    let site = Site::new();
    let code = site.add("late", &[]);
    site.join("late", &code);
    // Nobody waits for a minute, which is the least that a code lasts.
    let text = fs::read_to_string(site.server()).expect("it is there");
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("enrolment_expires", _)) => "enrolment_expires = \"2020-01-01T00:00:00Z\"",
        _ => line,
    });
    let lines: Vec<_> = lines.collect();
    fs::write(site.server(), lines.join("\n") + "\n").expect("it is ours");
    let listed = said(&["server", "list", "--config", &site.server()]);
    let flag = format!("late --config {}`", site.server());
    for command in ["bentpipe server remove", "bentpipe server add"] {
        assert!(listed.contains(&format!("`{command} {flag}")), "{listed}");
    }
    let _server = site.start_server();
    let _late = site.start_client("late");
    site.wait_for("late", "the code has expired on 2020");
}

#[test]
fn nothing_is_overwritten_and_faults_are_named() {
    let site = Site::new();
    let again = bentpipe(&[
        "server",
        "init",
        "--public",
        "gateway.example.com",
        "--config",
        &site.server(),
    ]);
    assert_eq!(again.code, Some(1), "{}", again.stderr);
    assert!(
        again.stderr.contains("exists and stays as it is"),
        "{}",
        again.stderr
    );
    let code = site.add("terminal-1", &[]);
    let short = ["server", "add", "x", "--expires", "59 s"];
    let long = ["server", "add", "x", "--expires", "99999999 h"];
    for (arguments, code, word) in [
        (
            &["server", "add", "terminal-1"][..],
            1,
            "lists a client `terminal-1` already",
        ),
        (
            &["server", "add", "two words"],
            2,
            "is no name for a client",
        ),
        (&short, 2, "allow \"1 min\" at least"),
        (&long, 2, "is more than a time span can be"),
        (&["server", "remove", "terminal-2"], 3, "has no such client"),
        (&["server", "init", "--public", "a b"], 2, "is no address"),
        (&["server", "init", "--public", ""], 2, "is no address"),
    ] {
        let server = site.server();
        let ended = bentpipe(&[arguments, &["--config", &server]].concat());
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(word), "{}", ended.stderr);
    }
    let config = site.path("x").join("client.toml").display().to_string();
    for cut in [10, code.len() - 3] {
        let ended = bentpipe(&["client", "join", &code[..cut], "--config", &config]);
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains("is it whole?"), "{}", ended.stderr);
    }
    assert!(!site.path("x").exists(), "nothing was made");
    // A fault of the command is seen before anything is made, so that the mended one succeeds.
    let join = |lan| bentpipe(&["client", "join", &code, "--config", &config, "--lan", lan]);
    let faulty = join("lan 0");
    faulty.must_say(
        2,
        "bentpipe: ",
        &["bad interface name `lan 0`", "nothing was made"],
    );
    assert!(!site.path("x").exists(), "nothing was made");
    let mended = join("lan0");
    assert_eq!(mended.code, Some(0), "{}", mended.stderr);
    // A place in which nothing can be made is named, and no file aside that nobody knows.
    let place = format!("{config}/below/a.key");
    let out = bentpipe(&["genkey", "--out", &place]);
    out.must_say(1, "bentpipe: cannot make ", &["a.key: Not a directory"]);
    let out = bentpipe(&["genkey", "--out", "/proc/a.key"]);
    out.must_say(1, "bentpipe: cannot make /proc/a.key: ", &["os error"]);
    assert!(!out.stderr.contains(".bentpipe-"), "{}", out.stderr);
}

/// A disk that is full at the first file, and one that is at the third: what is made is made whole, or not at all.
#[test]
fn a_full_disk_leaves_nothing_that_was_begun() {
    let site = Site::new();
    let code = site.add("terminal-1", &[]);
    let directory = site.path("full");
    fs::create_dir(&directory).expect("a directory");
    let config = directory.join("client.toml");
    let limited = |blocks: &str, arguments: &[&str]| {
        // Beyond its limit a file takes nothing, as on a full disk; who ignores the signal is told so.
        let limited = "trap '' XFSZ; ulimit -f $0; exec \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", limited, blocks, BENTPIPE])
            .args(arguments);
        run(&mut command)
    };
    let config = config.display().to_string();
    let join = ["client", "join", &code, "--config", &config];
    let key = directory.join("a.key").display().to_string();
    for (blocks, culprit, arguments) in [
        ("0", "client.key: ", &join[..]),
        ("1", "client.toml: ", &join),
        ("0", "a.key: ", &["genkey", "--out", &key]),
    ] {
        let ended = limited(blocks, arguments);
        assert!(matches!(ended.code, Some(1 | 3)), "{:?}", ended.code);
        assert!(ended.stderr.contains(culprit), "{}", ended.stderr);
        let left: Vec<_> = fs::read_dir(&directory).expect("a directory").collect();
        assert!(left.is_empty(), "after {arguments:?}: {left:?}");
    }
    // Nothing is in the way of another attempt.
    said(&join);
}
