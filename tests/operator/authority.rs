//! `bentpipe ca`: a CA is made once, shown, and deleted with a word on where it may still be trusted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::config_errors::home::{Ended, run};
use crate::BENTPIPE;

fn ca(arguments: &[&str]) -> Ended {
    run(Command::new(BENTPIPE).arg("ca").args(arguments))
}

#[test]
fn a_ca_is_made_once_shown_and_removed() {
    let home = tempfile::tempdir().expect("a directory");
    let directory = home.path().join("ca");
    let place = ["--dir", directory.to_str().expect("UTF-8")];
    let with = |arguments: &[&'static str]| ca(&[arguments, &place].concat());

    let none = with(&["show"]);
    assert_eq!(none.code, Some(1), "{}", none.stderr);
    assert!(none.stderr.contains("bentpipe ca init"), "{}", none.stderr);

    let names = [
        "init",
        "--name",
        "B.example.com",
        "--name",
        "a.example.com",
        "--name",
        "b.example.com",
    ];
    let made = with(&names);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for word in [
        "a.example.com, b.example.com\n",
        "SHA-256 ",
        "update-ca-certificates",
        "Firefox",
        "certutil -d",
        "certutil -addstore",
        "add-trusted-cert",
    ] {
        assert!(made.stdout.contains(word), "{word}: {}", made.stdout);
    }
    let mode = |name: &str| {
        let metadata = fs::metadata(directory.join(name)).expect("it was made");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("ca.key"), 0o600);
    assert_eq!(mode(""), 0o700);
    assert_eq!(with(&["show"]).stdout, made.stdout);

    let key = fs::read(directory.join("ca.key")).expect("a key");
    let again = with(&names);
    assert_eq!(again.code, Some(1));
    assert!(
        again.stderr.contains("bentpipe ca remove"),
        "{}",
        again.stderr
    );
    assert_eq!(fs::read(directory.join("ca.key")).expect("a key"), key);

    let removed = with(&["remove"]);
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(
        removed.stdout.contains("stays trusted"),
        "{}",
        removed.stdout
    );
    assert!(!directory.exists());
    assert_eq!(with(&["remove"]).code, Some(1));
}

#[test]
fn what_another_program_has_made_is_not_removed() {
    let home = tempfile::tempdir().expect("a directory");
    let [certificate, key] = ["ca.pem", "ca.key"].map(|name| home.path().join(name));
    let place = home.path().to_str().expect("UTF-8");
    for content in ["precious", ""] {
        fs::write(&certificate, content).expect("a file");
        fs::write(&key, "precious").expect("a file");
        let ended = ca(&["remove", "--dir", place]);
        ended.must_say(1, "bentpipe: ", &["ca.pem", "not the certificate of a CA"]);
        assert!(certificate.exists() && key.exists());
    }
    fs::remove_file(&certificate).expect("it is ours");
    let ended = ca(&["remove", "--dir", place]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(key.exists());
}

#[test]
fn names_that_no_ca_may_be_for_are_refused() {
    for (name, why) in [
        ("com", "single label"),
        ("*.example.com", "by its own name"),
        ("192.0.2.1", "is an address"),
    ] {
        let ended = ca(&["init", "--name", name, "--dir", "/nonexistent/ca"]);
        assert_eq!(ended.code, Some(2), "{name}");
        assert!(ended.stderr.contains(why), "{name}: {}", ended.stderr);
    }
}
