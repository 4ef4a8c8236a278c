//! What lies between gateway and web, and the hosts' TCP, are as a link of the experiment's own says.

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::privileged;

use super::{directory, done, lab, records};

#[test]
fn the_way_behind_the_gateway_takes_time() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    // Objects of several segments, which offload hands over in one piece.
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\", \"far\"]\n\
         contenders = [\"plain/cubic\"]\n[link.far]\nbase = \"near.toml\"\nterrestrial_delay = \"60 ms\"\n\
         [task.get]\nkind = \"request\"\ncount = 5\nsize = \"10 kB\"\n",
    )?;
    let path = directory.path();
    done(&lab(path, &[]).output()?)?;
    let records = records(path)?;
    let quickest = |scenario: &str| {
        let mut all = records.iter();
        let record = all.find(|record| record["scenario"] == scenario);
        let record = record.context("a record")?;
        ensure!(record["outcome"] == "measured", "{record}");
        let figures = record["seconds"].as_array().context("figures")?;
        let seconds = figures.iter().filter_map(serde_json::Value::as_f64);
        seconds.reduce(f64::min).context("a figure")
    };
    let (near, far) = (quickest("near.toml")?, quickest("far")?);
    // A handshake and a request: twice there and back, 20 ms over the satellite and 120 behind it.
    ensure!(near >= 0.04 && far >= 0.28, "{near} {far}: {records:?}");
    // A busy machine may be late, but not by as much again.
    ensure!(far - near < 0.48, "{near} {far}: {records:?}");
    Ok(())
}

#[test]
fn hosts_have_the_rate_and_the_windows_that_they_are_given() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"slow\", \"narrow\", \"shy\"]\n\
         contenders = [\"plain/cubic\"]\n[link.slow]\nbase = \"near.toml\"\nhost_uplink = \"1 Mbit/s\"\n\
         [link.narrow]\nbase = \"near.toml\"\nhost_window = \"10 kB\"\n\
         [link.shy]\nbase = \"near.toml\"\nhost_initial_window = 1\n\
         [task.get]\nkind = \"request\"\ncount = 3\nsize = \"50 kB\"\n",
    )?;
    let path = directory.path();
    done(&lab(path, &[]).output()?)?;
    let records = records(path)?;
    // A round trip is 20 ms. 50 kB take 400 ms at 1 Mbit/s; a handshake and five windows of 10 kB; or a handshake and 1, 2, 4, 8,
    // 16 and 4 segments. With today's windows they take a handshake and three round trips.
    for (scenario, least) in [("slow", 0.4), ("narrow", 0.119), ("shy", 0.139)] {
        let mut all = records.iter();
        let record = all.find(|record| record["scenario"] == scenario);
        let record = record.context("a record")?;
        ensure!(record["outcome"] == "measured", "{record}");
        let figures = record["seconds"].as_array().context("figures")?;
        let seconds = figures.iter().filter_map(serde_json::Value::as_f64);
        let quickest = seconds.reduce(f64::min).context("a figure")?;
        ensure!(quickest >= least, "{scenario} {quickest}: {record}");
        // The bound knows of the rate.
        let limit = record["limit_s"].as_f64().context("a limit")?;
        ensure!((limit >= 0.4) == (scenario == "slow"), "{record}");
    }
    Ok(())
}
