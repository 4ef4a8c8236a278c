//! What `scenarios/` and the pages of docs/ name can be run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{directory, done};
use crate::BENTPIPE;

#[test]
fn what_is_shipped_and_documented_can_be_planned() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let plan = |file: &Path, arguments: &[&str]| {
        let mut command = Command::new(BENTPIPE);
        command.args(["lab", "run", "--dry-run"]).arg(file);
        let output = command.args(arguments).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let minutes = errors
            .split_once("about ")
            .and_then(|(_, rest)| rest.split_once(" min"));
        let minutes: u64 = minutes.context(errors.clone())?.0.parse()?;
        Ok::<_, anyhow::Error>((done(&output)?.lines().count(), minutes))
    };
    for entry in fs::read_dir(root.join("scenarios"))? {
        let file = entry?.path();
        let ((full, _), (quick, minutes)) = (plan(&file, &[])?, plan(&file, &["--quick"])?);
        ensure!(0 < quick && quick < full, "{file:?}: {quick}, {full}");
        ensure!(
            minutes <= 10,
            "{file:?}: the quick size takes {minutes} min"
        );
    }
    let page = fs::read_to_string(root.join("docs/lab.md"))?;
    let example = page
        .split("```")
        .find_map(|part| part.strip_prefix("toml\n"));
    let directory = directory(example.context("an example")?)?;
    let path = directory.path();
    fs::rename(path.join("near.toml"), path.join("my-link.toml"))?;
    ensure!(plan(&path.join("e.toml"), &[])?.0 == 3 * 3 * 5);
    ensure!(plan(&path.join("e.toml"), &["--quick"])?.0 == 2);
    Ok(())
}

/// The command by which docs/web.md has its figures of Chromium made again.
#[test]
fn pages_with_the_web_far_off_are_measured_by_one_command() -> Result<()> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/web.md"))?;
    let mut commands = page.split('`');
    let command = commands.find_map(|part| part.strip_prefix("bentpipe lab run prefetch --filter"));
    let options = command.context("the command")?;
    let line = format!("exec \"$0\" lab run --dry-run prefetch --filter {options}");
    let runs = done(&Command::new("sh").args(["-c", &line, BENTPIPE]).output()?)?;
    for contender in ["bentpipe", "trusted"] {
        let own = format!("{contender}, far, corpus, #");
        let count = runs.lines().filter(|run| run.starts_with(&own)).count();
        ensure!(count == 5, "{contender}: {count} of {runs}");
    }
    ensure!(runs.lines().count() == 10, "{runs}");
    Ok(())
}

#[test]
fn the_page_of_all_designs_has_whoever_the_experiment_has() -> Result<()> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sealed.md"))?;
    let part = page.split("\n## All designs on one link\n").nth(1);
    let part = part.context("the section")?;
    let mut command = Command::new(BENTPIPE);
    let runs = done(
        &command
            .args(["lab", "run", "--dry-run", "designs"])
            .output()?,
    )?;
    let contenders = runs.lines().filter_map(|run| run.split(", ").next());
    let contenders: BTreeSet<&str> = contenders.collect();
    ensure!(contenders.len() == 14, "{contenders:?}");
    for contender in contenders {
        let name = contender.split(['/', ':']).next().unwrap_or_default();
        ensure!(
            part.contains(&format!("`{name}`")) || name == "bentpipe",
            "{name}"
        );
    }
    Ok(())
}
