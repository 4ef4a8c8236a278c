//! What the daemons have given up while they run, and that they can still do all that they have to.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::Process;
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::site::{Site, SiteConfig};
use serde_json::Value;

use crate::BENTPIPE;
use crate::on_site;

/// CAP_NET_BIND_SERVICE and CAP_NET_ADMIN, in order of their bits.
const SERVER: [(&str, u64); 2] = [("net_bind_service", 10), ("net_admin", 12)];
/// And CAP_NET_RAW, by which a client answers in resolvers' place.
const CLIENT: [(&str, u64); 3] = [SERVER[0], SERVER[1], ("net_raw", 13)];

/// `key` in /proc/PID/status of every thread.
fn of_threads(process: &Process, key: &str) -> Result<Vec<String>> {
    let mut values = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", process.id()))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let value = status.lines().find_map(|line| line.strip_prefix(key));
        values.push(value.context("no such key")?.trim().to_owned());
    }
    Ok(values)
}

fn check(process: &Process, report: &Value, capabilities: &[(&str, u64)]) -> Result<bool> {
    let bits = capabilities
        .iter()
        .fold(0, |bits, (_, bit)| bits | 1 << bit);
    for key in ["CapEff:", "CapPrm:", "CapBnd:"] {
        for value in of_threads(process, key)? {
            let left = u64::from_str_radix(&value, 16)?;
            ensure!(left == bits, "{key} {value}");
        }
    }
    let privileges = of_threads(process, "NoNewPrivs:")?;
    ensure!(
        privileges.iter().all(|value| value == "1"),
        "{privileges:?}"
    );
    let sandbox = &report["sandbox"];
    let names: Vec<_> = sandbox["capabilities"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let expected: Vec<_> = capabilities.iter().map(|(name, _)| *name).collect();
    ensure!(names == expected, "{sandbox}");
    ensure!(sandbox["no_new_privs"] == true, "{sandbox}");
    Ok(sandbox["files"] != "unavailable")
}

#[test]
fn daemons_keep_what_they_need_and_reach_nothing_else() {
    on_site("sandbox", SiteConfig::new(BENTPIPE), |site| {
        site.start_server()?;
        site.start_client()?;
        let closed = check(site.server(), &site.server_report()?, &SERVER)?;
        check(site.client(), &site.client_report()?, &CLIENT)?;
        // A new file renamed into place, as editors do it, is read again, and so is a key.
        let file = site.server_file();
        let new = file.with_extension("new");
        fs::copy(&file, &new)?;
        fs::rename(&new, &file)?;
        edit(&file, "name = \"terminal-1\"", "name = \"terminal-one\"")?;
        reload(site, "reloaded: +1 -1 ~0 clients")?;
        if !closed {
            eprintln!("no Landlock in this kernel: what files are out of reach is not tried");
            return Ok(());
        }
        elsewhere(site)
    });
}

/// A file in a place that the configuration did not name at the start, which a link in a named one leads to.
fn elsewhere(site: &Site) -> Result<()> {
    let other = tempfile::tempdir()?;
    fs::create_dir(other.path().join("secret"))?;
    let file = site.server_file();
    fs::rename(&file, other.path().join("secret/server.toml"))?;
    symlink(other.path().join("secret/server.toml"), &file)?;
    reload(site, "Permission denied")?;
    fs::remove_file(&file)?;
    fs::rename(other.path().join("secret/server.toml"), &file)?;
    reload(site, "reloaded: +0 -0 ~0 clients")?;
    Ok(())
}
