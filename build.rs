//! Facts about the build that `bentpipe --version` shows: commit, target and features; and the year of the commit, by which `bentpipe
//! doctor` judges the clock.

use std::env;
use std::process::Command;

/// Says `commit: unknown` for a tree that no repository holds, such as an unpacked archive, unless the packager says what is in it by
/// `$BENTPIPE_COMMIT` and `$BENTPIPE_YEAR`.
fn main() {
    // An archive that was unpacked inside of another repository has nothing to do with its commits.
    let ours = git(&["rev-parse", "--show-prefix"]).is_some_and(|below| below.is_empty());
    let said = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        let value = env::var_os(name)?.into_string().ok()?;
        (!value.is_empty()).then_some(value)
    };
    let commit = said("BENTPIPE_COMMIT")
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| ours));
    println!(
        "cargo::rustc-env=BENTPIPE_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
    // Not the year of the build: the same commit gives the same bytes.
    let year = said("BENTPIPE_YEAR")
        .or_else(|| git(&["log", "-1", "--format=%cd", "--date=format:%Y"]).filter(|_| ours));
    println!(
        "cargo::rustc-env=BENTPIPE_YEAR={}",
        year.unwrap_or_default()
    );
    println!(
        "cargo::rustc-env=BENTPIPE_TARGET={}",
        env::var_os("TARGET").unwrap_or_default().display()
    );
    println!("cargo::rustc-env=BENTPIPE_FEATURES={}", features());
    println!("cargo::rerun-if-changed=build.rs");
    // The log of the checkout grows with whatever changes the commit.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// The features of this package that are on, separated by blanks.
fn features() -> String {
    let on = env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?;
        Some(name.to_lowercase().replace('_', "-"))
    });
    let mut on: Vec<_> = on.filter(|name| name != "default").collect();
    on.sort_unstable();
    match on.is_empty() {
        true => "none".to_owned(),
        false => on.join(" "),
    }
}

/// Output of git, if there are git and a repository of ours.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
