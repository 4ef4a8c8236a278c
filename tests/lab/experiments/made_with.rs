//! What results say of how they were made, and of links that were no links.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::privileged;
use serde_json::Value;

use super::{directory, done, lab, records};
use crate::BENTPIPE;

/// Everything that explains a figure is in the manifest of what has just run.
pub(super) fn expect_all(manifest: &Value) -> Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let machine = &manifest["machine"];
    ensure!(
        machine["kernel"] == format!("Linux {}", release.trim()),
        "{machine}"
    );
    ensure!(
        machine["cpus"].as_u64() > Some(0) && machine["cpu"] != "",
        "{machine}"
    );
    let control = machine["sysctls"]["net.ipv4.tcp_congestion_control"].as_str();
    ensure!(control.is_some_and(|name| !name.is_empty()), "{machine}");
    for tool in ["ip", "nft"] {
        let version = machine["tools"][tool].as_str().context(tool)?;
        ensure!(version.contains(char::is_numeric), "{tool}: {version}");
    }
    let hystart = Path::new("/sys/module/tcp_cubic/parameters/hystart");
    let known = &machine["sysctls"]["module.tcp_cubic.hystart"];
    ensure!(known.is_string() == hystart.exists(), "{machine}");
    let sum = manifest["bentpipe"]["sha256"].as_str().context("a sum")?;
    ensure!(sum.len() == 64, "{sum}");
    let plain = manifest["contenders"]["plain"]
        .as_str()
        .context("a version")?;
    ensure!(plain.contains(release.trim()), "{plain}");
    Ok(())
}

/// The directory `out` has the checks of both of its shards, and its page says so if they are of two machines.
pub(super) fn expect_merged(path: &Path, two: bool) -> Result<()> {
    let manifest: Value = serde_json::from_slice(&fs::read(path.join("out/manifest.json"))?)?;
    let merged = manifest["merged"].as_array().map_or(0, Vec::len);
    ensure!(merged == usize::from(two), "{manifest}");
    let checks = |part: &Value| {
        part["link_checks"]["near.toml"]
            .as_array()
            .map_or(0, Vec::len)
    };
    let all = checks(&manifest) + checks(&manifest["merged"][0]);
    ensure!(all == 2, "{manifest}");
    let mut report = Command::new(BENTPIPE);
    report.args(["lab", "report", "out"]).current_dir(path);
    done(&report.output()?)?;
    let page = fs::read_to_string(path.join("report.html"))?;
    ensure!(
        page.matches("near.toml: RTT ").count() == 2,
        "checks are missing"
    );
    ensure!(page.contains("Linux of old") == two);
    ensure!(page.contains("not all runs were made alike") == two);
    ensure!(page.contains("e.toml --shard 1/2<") && page.contains("e.toml --shard 2/2<"));
    Ok(())
}

#[test]
fn no_run_over_a_link_that_does_not_answer_is_believed() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"deaf\"]\n\
         contenders = [\"plain/cubic\"]\npatience = \"2 s\"\n\
         [link.deaf]\nbase = \"near.toml\"\nerrors = { model = \"iid\", rate = \"100 %\" }\n\
         [task.get]\nkind = \"request\"\ncount = 1\n",
    )?;
    let path = directory.path();
    let table = done(&lab(path, &[]).output()?)?;
    ensure!(
        table.contains("1 invalid") && !table.contains("> 2 s"),
        "{table}"
    );
    let records = records(path)?;
    let doubts = records[0]["doubts"].to_string();
    ensure!(
        doubts.contains("none of 15 datagrams came back"),
        "{doubts}"
    );
    let manifest: Value = serde_json::from_slice(&fs::read(path.join("out/manifest.json"))?)?;
    ensure!(
        manifest["link_checks"]["deaf"][0]["rtt_ms"].is_null(),
        "{manifest}"
    );
    Ok(())
}
