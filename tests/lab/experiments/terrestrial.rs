//! What lies between gateway and web takes the time that it is said to take, and changes nothing else.

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
