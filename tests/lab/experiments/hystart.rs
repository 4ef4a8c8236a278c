//! CUBIC without HyStart, which is a parameter of the whole machine: whoever turns it off does so alone, and it is put back.

use std::fs::{self, OpenOptions};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::privileged;
use serde_json::Value;

use super::{directory, done, lab, lines, records, start, wait_for};

const PARAMETER: &str = "/sys/module/tcp_cubic/parameters/hystart";

fn setting() -> String {
    let text = fs::read_to_string(PARAMETER).unwrap_or_default();
    text.trim().to_owned()
}

fn experiment(contender: &str, task: &str) -> String {
    format!(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\"]\n\
         contenders = [\"{contender}\"]\n[task.get]\nkind = \"request\"\n{task}\n"
    )
}

fn one_record(directory: &std::path::Path) -> Result<Value> {
    records(directory)?.pop().context("a result")
}

#[test]
fn it_is_off_for_one_alone_and_put_back_whatever_happens() -> Result<()> {
    let writable = OpenOptions::new().write(true).open(PARAMETER).is_ok();
    if !privileged("lab") || !writable {
        return Ok(());
    }
    // Many requests: it is off for seconds.
    let off = experiment("plain/cubic-no-hystart", "count = 60");
    let [first, second, usual] =
        [&off, &off, &experiment("plain/cubic", "count = 1")].map(|text| directory(text));
    let (first, second, usual) = (first?, second?, usual?);
    let before = {
        // Whoever else measures here has it off now, or nobody.
        done(&lab(usual.path(), &[]).output()?)?;
        let manifest = fs::read(usual.path().join("out/manifest.json"))?;
        let manifest: Value = serde_json::from_slice(&manifest)?;
        let known = &manifest["machine"]["sysctls"]["module.tcp_cubic.hystart"];
        known.as_str().context("its setting")?.to_owned()
    };
    ensure!(before != "0", "it is off on this machine");
    // Two at once: the second waits, and does not take the first's for the machine's.
    let mut one = start(first.path())?;
    wait_for(&mut one, || setting() == "0")?;
    let since = Instant::now();
    let mut other = start(second.path())?;
    wait_for(&mut one, || {
        setting() != "0" || !lines(first.path()).is_empty()
    })?;
    let off = since.elapsed().as_secs_f64();
    ensure!(one.wait()?.success() && other.wait()?.success());
    ensure!(setting() == before, "it was left at {}", setting());
    let [early, late] = [one_record(first.path())?, one_record(second.path())?];
    ensure!(
        early["outcome"] == "measured" && late["outcome"] == "measured",
        "{early} {late}"
    );
    // Whoever came meanwhile let it be until the first was done.
    let seconds = early["seconds"].as_array().context("figures")?;
    let took: f64 = seconds.iter().filter_map(Value::as_f64).sum();
    ensure!(off > took, "it was off for {off} s of {took}");
    let version = late["version"].as_str().context("a version")?;
    ensure!(version.ends_with("TCP cubic, HyStart off"), "{version}");
    // Killed while it is off: whoever measures next has it back first.
    fs::remove_dir_all(first.path().join("out"))?;
    let mut one = start(first.path())?;
    wait_for(&mut one, || setting() == "0")?;
    thread::sleep(Duration::from_millis(300));
    one.kill()?;
    one.wait()?;
    ensure!(setting() == "0", "somebody put it back");
    fs::remove_dir_all(usual.path().join("out"))?;
    done(&lab(usual.path(), &[]).output()?)?;
    ensure!(setting() == before, "it was left at {}", setting());
    Ok(())
}
