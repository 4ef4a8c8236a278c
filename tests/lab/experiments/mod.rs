//! `bentpipe lab` as its users run it, killed and started again. Needs root.
mod compared;
mod hystart;
mod kept;
mod made_with;
mod policer;
mod shipped;
mod terrestrial;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::{privileged, required};
use serde_json::Value;

use crate::BENTPIPE;

/// A link that costs the tests little time.
const LINK: &str = "[scenario]\nname = \"near\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"10 ms\"\n\
    [forward]\nstandard = \"cbr\"\nbit_rate = \"40 Mbit/s\"\n[return]\nstandard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n";
/// For a run to begin or to end, on a machine that is busy with others' runs, which those without HyStart wait for.
const SOON: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(10);

fn directory(experiment: &str) -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("near.toml"), LINK)?;
    fs::write(directory.path().join("e.toml"), experiment)?;
    Ok(directory)
}

fn lab(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BENTPIPE);
    command.args(["lab", "run", "e.toml", "--output", "out"]);
    command.args(arguments).current_dir(directory);
    command
}

fn done(output: &Output) -> Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The whole lines of the results.
fn lines(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("out/results.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

fn records(directory: &Path) -> Result<Vec<Value>> {
    let parse = |line: &String| serde_json::from_str(line).with_context(|| line.clone());
    lines(directory).iter().map(parse).collect()
}

/// Fails if a namespace, a directory or a process of the lab with this process ID is left.
fn expect_nothing_left(process: u32) -> Result<()> {
    let prefix = format!("bp-lab-{process}-");
    for directory in ["/run/netns".into(), std::env::temp_dir()] {
        for entry in fs::read_dir(&directory)? {
            let name = entry?.file_name();
            let foreign = !name.to_string_lossy().starts_with(&prefix);
            ensure!(foreign, "{name:?} is left in {directory:?}");
        }
    }
    let mark = format!("BENTPIPE_EXPERIMENT={prefix}");
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Processes end while one looks at them.
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        let foreign = !String::from_utf8_lossy(&environment).contains(&mark);
        ensure!(foreign, "{path:?} is still running");
    }
    Ok(())
}

#[test]
fn a_file_may_cross_before_pages_and_is_not_measured() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\"]\n\
         contenders = [\"bentpipe\"]\n\
         [task.page]\nkind = \"page\"\npages = \"usual\"\ncount = 1\nwarm_up = \"2 MB\"\n",
    )?;
    done(&lab(directory.path(), &[]).output()?)?;
    let records = records(directory.path())?;
    let [record] = &records[..] else {
        anyhow::bail!("{records:?}");
    };
    let figures = record["seconds"].as_array().context("figures")?;
    ensure!(figures.len() == 1, "{record}");
    // A page of 2 MB and what went before it, counted at both ends of the link.
    let carried = record["crossed"]["tunnel_bytes"].as_u64();
    ensure!(carried.context("a count")? > 8_000_000, "{record}");
    Ok(())
}

#[test]
fn an_experiment_measures_every_contender_and_checks_what_crossed() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\"]\n\
         contenders = [\"plain/cubic\", \"wireguard\", \"openvpn-udp\", \"bentpipe\"]\n\
         [task.down]\nkind = \"transfer\"\nsize = \"500 kB\"\n\
         [task.up]\nkind = \"transfer\"\nsize = \"100 kB\"\ndirection = \"up\"\nwarm_up = \"10 kB\"\n\
         [task.loaded]\nkind = \"loaded\"\ncount = 2\nbackground = \"up\"\n\
         [[published]]\ncontender = \"bentpipe\"\nscenario = \"near.toml\"\ntask = \"down\"\nseconds = 7.5\nstatistic = \"median\"\nsource = \"S\"\n",
    )?;
    let path = directory.path();
    // The slow task for one contender only, and a VPN where there is one.
    let filters = ["bentpipe", "plain down", "wireguard down", "openvpn up"];
    let filters = filters.map(|words| ["--filter", words]).concat();
    let table = done(&lab(path, &filters).output()?)?;
    ensure!(
        table.contains("near.toml, loaded") && table.contains("7.50 s"),
        "{table}"
    );
    let records = records(path)?;
    ensure!(records.len() == 6, "{records:?}");
    for record in &records {
        let contender = record["contender"].as_str().unwrap_or_default();
        let optional = ["wireguard", "openvpn-udp"].contains(&contender);
        if optional && record["outcome"] == "unsupported" && !required() {
            continue;
        }
        ensure!(record["outcome"] == "measured", "{record}");
        let limit = record["limit_s"].as_f64().context("a limit")?;
        let seconds = record["seconds"].as_array().context("figures")?;
        ensure!(
            seconds.iter().all(|one| one.as_f64() > Some(limit)),
            "{record}"
        );
        ensure!(
            record["repairs"].is_object() == (contender == "bentpipe"),
            "{record}"
        );
        let crossed = &record["crossed"];
        if contender == "plain/cubic" {
            ensure!(crossed.is_null(), "{record}");
        } else {
            let carried = crossed["tunnel_bytes"].as_u64().context("a count")?;
            ensure!(
                carried >= 100_000 && crossed["clear_packets"] == 0,
                "{record}"
            );
        }
    }
    let rows = fs::read_to_string(path.join("out/results.csv"))?;
    // Two figures of the requests, one of each other run, and the names.
    ensure!(rows.lines().count() == 8, "{rows}");
    let manifest: Value = serde_json::from_slice(&fs::read(path.join("out/manifest.json"))?)?;
    let check = &manifest["link_checks"]["near.toml"][0];
    let rtt = check["rtt_ms"].as_f64().context("a link check")?;
    ensure!((20.0..30.0).contains(&rtt), "{check}");
    made_with::expect_all(&manifest)?;
    // Nothing is left to do for this one, and nothing of what is known is forgotten.
    done(&lab(path, &["--filter", "bentpipe down"]).output()?)?;
    let again: Value = serde_json::from_slice(&fs::read(path.join("out/manifest.json"))?)?;
    ensure!(again["link_checks"] == manifest["link_checks"], "{again}");
    let selections = again["selection"].as_array().context("selections")?;
    let first = selections[0].as_str().context("a selection")?;
    ensure!(
        selections.len() == 2 && first.contains("'openvpn up'"),
        "{selections:?}"
    );
    let mut report = Command::new(BENTPIPE);
    report.args(["lab", "report", "out"]).current_dir(path);
    ensure!(done(&report.output()?)?.trim() == "report.html");
    let page = fs::read_to_string(path.join("report.html"))?;
    ensure!(page.contains("near.toml, loaded") && page.contains("7.50 s"));
    Ok(())
}

#[test]
fn killed_and_started_again_it_loses_nothing_and_leaves_nothing() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 2\nscenarios = [\"near.toml\"]\n\
         contenders = [\"plain/bbr\", \"bentpipe\"]\n[task.get]\nkind = \"request\"\ncount = 3\n",
    )?;
    let path = directory.path();
    let mut killed = Vec::new();
    let mut kept: Vec<String> = Vec::new();
    // While namespaces are made, while daemons start, and while results are there.
    for (results, after) in [(0, 40), (0, 250), (0, 1500), (1, 300), (2, 900)] {
        let mut running = start(path)?;
        wait_for(&mut running, || lines(path).len() >= results)?;
        thread::sleep(Duration::from_millis(after));
        running.kill()?;
        running.wait()?;
        killed.push(running.id());
        let now = lines(path);
        ensure!(
            now.starts_with(&kept),
            "a finished run was lost: {kept:?}, {now:?}"
        );
        kept = now;
    }
    let output = lab(path, &[]).output()?;
    done(&output)?;
    let now = lines(path);
    ensure!(
        now.starts_with(&kept) && now.len() == 4,
        "{kept:?}, {now:?}"
    );
    let keys: BTreeSet<String> = records(path)?
        .iter()
        .map(|record| format!("{} {}", record["contender"], record["repeat"]))
        .collect();
    ensure!(keys.len() == 4, "{keys:?}");
    killed.into_iter().try_for_each(expect_nothing_left)?;
    // All is finished: nothing is measured again.
    done(&lab(path, &[]).output()?)?;
    ensure!(lines(path) == now);
    Ok(())
}

#[test]
fn what_a_killed_search_for_leaks_left_is_removed_too() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let mut leaks = Command::new(BENTPIPE)
        .args(["lab", "leaks", "bentpipe", "--quick"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let process = leaks.id();
    let made = || {
        let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.any(|name| name.contains(&format!("-{process}-")) && name.ends_with("-terminal"))
    };
    wait_for(&mut leaks, made)?;
    leaks.kill()?;
    leaks.wait()?;
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\"]\n\
         contenders = [\"plain/cubic\"]\n[task.get]\nkind = \"request\"\ncount = 1\n",
    )?;
    done(&lab(directory.path(), &[]).output()?)?;
    ensure!(!made(), "its namespaces are left");
    expect_nothing_left(process)
}

#[test]
fn shards_that_start_together_clear_away_what_a_killed_one_left() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 4\nscenarios = [\"near.toml\"]\n\
         contenders = [\"plain/cubic\"]\n[task.get]\nkind = \"request\"\ncount = 1\n",
    )?;
    // Nobody with this number began then: the owner is gone.
    let gone = format!("bp-lab-{}-1", std::process::id());
    for left in 0..30 {
        NetNs::create(&format!("{gone}-{left}"))?;
    }
    let start = |shard: u32| {
        let mut command = Command::new(BENTPIPE);
        command.args(["lab", "run", "e.toml", "--shard", &format!("{shard}/4")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir(directory.path()).spawn()
    };
    let shards: Vec<Child> = (1..=4).map(start).collect::<Result<_, _>>()?;
    let ends: Vec<Output> = shards
        .into_iter()
        .map(Child::wait_with_output)
        .collect::<Result<_, _>>()?;
    for end in &ends {
        done(end)?;
    }
    let left = NetNs::open(&format!("{gone}-0"));
    ensure!(left.is_err(), "what was left is still there");
    Ok(())
}

fn start(directory: &Path) -> Result<Child> {
    let mut command = lab(directory, &[]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn()?)
}

fn wait_for(running: &mut Child, condition: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while !condition() {
        ensure!(running.try_wait()?.is_none(), "it ended");
        ensure!(Instant::now() < deadline, "nothing happens");
        thread::sleep(POLL);
    }
    Ok(())
}

#[test]
fn shards_are_merged_and_other_experiments_are_not() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 2\nscenarios = [\"near.toml\"]\n\
         contenders = [\"plain/cubic\"]\n[task.get]\nkind = \"request\"\ncount = 1\n",
    )?;
    let path = directory.path();
    for shard in ["1/2", "2/2"] {
        let mut command = Command::new(BENTPIPE);
        command.args(["lab", "run", "e.toml", "--shard", shard]);
        done(&command.current_dir(path).output()?)?;
    }
    let merge = || {
        let mut command = Command::new(BENTPIPE);
        command.args(["lab", "merge", "--output", "out"]);
        command.args(["lab-results/e-full-1-of-2", "lab-results/e-full-2-of-2"]);
        command.current_dir(path).output()
    };
    ensure!(done(&merge()?)?.starts_with("2 runs"));
    ensure!(records(path)?.len() == 2);
    let manifest = path.join("lab-results/e-full-2-of-2/manifest.json");
    let text = fs::read_to_string(&manifest)?;
    made_with::expect_merged(path, false)?;
    fs::remove_dir_all(path.join("out"))?;
    fs::write(&manifest, text.replace("\"Linux ", "\"Linux of old "))?;
    let merged = merge()?;
    let said = String::from_utf8_lossy(&merged.stderr).into_owned();
    done(&merged)?;
    ensure!(
        said.contains("Linux of old") && said.contains(": kernel, "),
        "{said}"
    );
    made_with::expect_merged(path, true)?;
    fs::write(&manifest, text.replace("plain/cubic", "plain/bbr"))?;
    fs::remove_dir_all(path.join("out"))?;
    let refused = merge()?;
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && errors.contains("another experiment"),
        "{errors}"
    );
    Ok(())
}

#[test]
fn what_cannot_be_run_is_told_in_a_line() -> Result<()> {
    let directory = directory("[experiment]\nname = \"e\"\n")?;
    let output = lab(directory.path(), &[]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(3) && errors.starts_with("e.toml:1: missing key"),
        "{errors}"
    );
    Ok(())
}
