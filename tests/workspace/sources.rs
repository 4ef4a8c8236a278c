//! The workspace's packages and sources, as its rules read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace's packages, as `cargo metadata` describes them.
pub(crate) fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs this test, so it can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    array(&metadata, "packages").to_vec()
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

pub(crate) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("cargo names this list")
}

pub(crate) fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Lines of `file` that are code and shipped, with their numbers: without comments and without the tests at its end.
pub(crate) fn shipped_code(file: &Path) -> Vec<(usize, String)> {
    let of_tests = ["tests.rs", "tests", "simulation.rs"];
    if file
        .iter()
        .any(|part| of_tests.iter().any(|name| part == *name))
    {
        return Vec::new();
    }
    let code = fs::read_to_string(file).expect("a source file is UTF-8");
    let shipped = code.split("\nmod tests {").next();
    let lines = shipped.unwrap_or_default().lines().enumerate();
    lines
        .map(|(index, line)| {
            let code = line.split("//").next().unwrap_or_default();
            (index + 1, code.to_owned())
        })
        .collect()
}

pub(crate) fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).expect("a directory of the workspace");
    for path in entries.map(|entry| entry.expect("readable").path()) {
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}
