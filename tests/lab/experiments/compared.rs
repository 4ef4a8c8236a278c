//! `bentpipe lab compare` as a script calls it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::BENTPIPE;

/// Three runs of these seconds.
fn results(directory: &Path, seconds: [f64; 3]) -> Result<()> {
    fs::create_dir(directory)?;
    let manifest = json!({
        "experiment": "e", "extent": "full", "seed": 1, "selection": [""], "file": "e.toml", "text": "",
        "outline": {
            "question": "?", "contenders": ["x"], "scenarios": ["geo"], "tasks": ["get"], "published": [],
        },
        "bentpipe": { "version": "v", "sha256": "0", "revision": null },
        "machine": { "kernel": "k", "cpu": "c", "cpus": 2, "sysctls": {} },
        "contenders": {},
    });
    fs::write(directory.join("manifest.json"), manifest.to_string())?;
    let line = |(repeat, seconds)| {
        let record = json!({
            "contender": "x", "scenario": "geo", "task": "get", "repeat": repeat, "seed": 1, "version": "v", "began": 1,
            "took_s": 1.0, "outcome": "measured", "seconds": [seconds], "bytes": 1, "doubts": [], "limit_s": null,
            "crossed": null, "link": null,
        });
        format!("{record}\n")
    };
    let lines: String = (1..).zip(seconds).map(line).collect();
    fs::write(directory.join("results.jsonl"), lines)?;
    Ok(())
}

fn compare(directory: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(BENTPIPE);
    command.args(["lab", "compare"]).args(arguments);
    Ok(command.current_dir(directory).output()?)
}

#[test]
fn what_became_worse_ends_with_one() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    results(&path.join("before"), [1.0, 1.01, 1.02])?;
    results(&path.join("after"), [1.3, 1.31, 1.32])?;
    let worse = compare(path, &["before", "after"])?;
    let text = String::from_utf8_lossy(&worse.stdout).into_owned();
    ensure!(worse.status.code() == Some(1), "{}: {text}", worse.status);
    for part in [
        "geo, get",
        "1.01 s",
        "1.31 s",
        "1.297",
        "WORSE",
        "1 worse by more than 10 %",
    ] {
        ensure!(text.contains(part), "{part}: {text}");
    }
    // Within what is tolerated, and the other way round.
    for arguments in [
        &["before", "after", "--threshold", "40 %"][..],
        &["after", "before"],
    ] {
        let fine = compare(path, arguments)?;
        let text = String::from_utf8_lossy(&fine.stdout).into_owned();
        ensure!(fine.status.success(), "{arguments:?}: {text}");
    }
    let nothing = compare(path, &["before", "absent"])?;
    let text = String::from_utf8_lossy(&nothing.stderr).into_owned();
    ensure!(
        !nothing.status.success() && text.contains("absent"),
        "{text}"
    );
    Ok(())
}
