//! `make seeds`, with a stand-in for the program: what may run abreast does.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

/// Program that notes its beginning and its end.
const STAND_IN: &str = "#!/bin/sh\necho begin >>log\nsleep 0.1\necho end >>log\n";

fn script(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(file, text).expect("a script");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Three runs of thin links beside one of the others: one after the other they take two hours.
#[test]
fn four_experiments_run_at_one_time() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    script(&place.join("target/release/bentpipe"), STAND_IN);
    for nothing_to_do in [".ci/deps", "bin/cargo"] {
        script(&place.join(nothing_to_do), "#!/bin/sh\n");
    }
    for named in ["Makefile", "scenarios"] {
        symlink(repository.join(named), place.join(named)).expect("a link");
    }
    let make = "PATH=$PWD/bin:$PATH exec make --old-file=privileges seeds";
    let made = Command::new("sh")
        .args(["-c", make])
        .current_dir(place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        // Of the `make` that runs this.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .expect("make");
    assert!(made.status.success(), "{made:?}");
    let log = fs::read_to_string(place.join("log")).expect("the notes");
    let (mut running, mut most) = (0_u32, 0);
    for line in log.lines() {
        match line {
            "begin" => running += 1,
            _ => running -= 1,
        }
        most = most.max(running);
    }
    assert_eq!((running, most), (0, 4), "{log}");
}
