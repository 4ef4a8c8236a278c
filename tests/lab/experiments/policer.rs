//! An operator's policer of UDP drops what exceeds its rate, and leaves TCP alone.

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::privileged;

use super::{directory, done, lab, records};

#[test]
fn what_of_udp_exceeds_the_rate_is_dropped() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    // A call is 10 kB/s with its headers: of 3 s, 3 kB/s pass, and 3 kB more that the bucket holds.
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\", \"policed\"]\n\
         contenders = [\"plain/cubic\"]\n[link.policed]\nbase = \"near.toml\"\nudp_policer = \"24 kbit/s\"\n\
         [task.down]\nkind = \"voice\"\nlength = \"3 s\"\n\
         [task.up]\nkind = \"voice\"\nlength = \"3 s\"\ndirection = \"up\"\n\
         [task.file]\nkind = \"transfer\"\nsize = \"100 kB\"\n",
    )?;
    let path = directory.path();
    done(&lab(path, &[]).output()?)?;
    let records = records(path)?;
    ensure!(records.len() == 6, "{records:?}");
    for record in records {
        ensure!(record["outcome"] == "measured", "{record}");
        if record["task"] == "file" {
            continue;
        }
        let lost = record["lost"].as_f64().context("a share")?;
        let expected = match record["scenario"] == "policed" {
            true => 0.3..0.7,
            // What a busy machine loses.
            false => 0.0..0.1,
        };
        ensure!(expected.contains(&lost), "{record}");
    }
    Ok(())
}
