//! Files of runs that are kept beside their results.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use bentpipe_testbed::privileged;
use serde_json::Value;

use super::{directory, done, lab};
use crate::BENTPIPE;

#[test]
fn captures_traces_and_probes_are_kept_and_the_page_leads_to_them() -> Result<()> {
    if !privileged("lab") {
        return Ok(());
    }
    let directory = directory(
        "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\"]\n\
         contenders = [\"bentpipe\"]\n[task.get]\nkind = \"transfer\"\nsize = \"200 kB\"\n",
    )?;
    let path = directory.path();
    let refused = lab(path, &["--keep", "pcap,log"]).output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && said.contains("`probes`"),
        "{said}"
    );
    done(&lab(path, &["--keep", "pcap,qlog,probes"]).output()?)?;
    let kept = path.join("out/kept/bentpipe near.toml get 1");
    let capture = fs::read(kept.join("link.pcapng"))?;
    // A section header block, and at least what crossed (pcapng, section 4.1).
    ensure!(capture.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) && capture.len() > 200_000);
    let probes = fs::read_to_string(kept.join("probes.jsonl"))?;
    let parsed = probes.lines().map(serde_json::from_str::<Value>);
    ensure!(parsed.collect::<Result<Vec<_>, _>>()?.len() > 1, "{probes}");
    let mut names = Vec::new();
    for entry in fs::read_dir(&kept)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for role in ["client-", "server-"] {
        let of_role = |name: &&String| name.starts_with(role) && name.ends_with(".sqlog");
        ensure!(names.iter().filter(of_role).count() == 1, "{names:?}");
    }
    let mut report = Command::new(BENTPIPE);
    report.args(["lab", "report", "out"]).current_dir(path);
    done(&report.output()?)?;
    let page = fs::read_to_string(path.join("report.html"))?;
    ensure!(page.contains("href=\"out/kept/bentpipe near.toml get 1/link.pcapng\""));
    Ok(())
}
