//! Pages that contenders bring: sessions with several web servers, and how a page looks when it has loaded. Needs root.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::{chromium, privileged};

use crate::contenders::{measure, measure_with};

#[test]
fn sessions_are_with_several_web_servers_by_users_with_their_own_tls() -> Result<()> {
    if !privileged("sessions with several servers") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let tables = "[task.sessions]\nkind = \"page\"\ncount = 8\nobjects = 2\nservers = 4\nin_session = 2\nat_once = true\nwarm_up = \"10 kB\"\n\
        [task.handshake]\nkind = \"handshake\"\ncount = 4\n";
    let contenders = ["dssl-quick", "prefetch:tls=none", "plain:tls=1.2"];
    let records = measure(&contenders, tables, directory.path())?;
    ensure!(records.len() == 3 * 3);
    for record in records {
        let name = record["contender"].as_str().context("a name")?;
        if name.ends_with("none") && record["task"] == "handshake" {
            let reason = record["reason"].as_str().context("a reason")?;
            let said = record["outcome"] == "unsupported" && reason.contains("no TLS");
            ensure!(said, "{record}");
            continue;
        }
        ensure!(record["outcome"] == "measured", "{record}");
        let figures = record["seconds"].as_array().context("figures")?.len();
        let wanted = match record["task"].as_str() {
            Some("sessions") => 8,
            Some("handshake") => 4,
            _ => 1,
        };
        ensure!(figures == wanted, "{record}");
    }
    Ok(())
}

#[test]
fn pages_look_as_they_do_without_those_who_read_them_or_fetch_ahead() -> Result<()> {
    if !privileged("pictures") || chromium("pictures").is_none() {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let tables = "[task.pages]\nkind = \"page\"\ncount = 3\nbrowser = \"chromium\"\n";
    let contenders = ["plain", "bentpipe", "trusted", "dssl-quick"];
    for record in measure_with(
        &contenders,
        tables,
        directory.path(),
        &["--keep", "pictures"],
    )? {
        ensure!(record["outcome"] == "measured", "{record}");
    }
    let picture = |contender: &str, page: u32| {
        let file = format!("out/kept/{contender} near.toml pages 1/{page}.png");
        fs::read(directory.path().join(&file)).context(file)
    };
    let mut others = Vec::new();
    for page in 1..=3 {
        let plain = picture("plain", page)?;
        // Pages that show nothing would look alike.
        ensure!(!others.contains(&plain), "page {page} looks like another");
        for contender in &contenders[1..] {
            let seen = picture(contender, page)?;
            ensure!(seen == plain, "page {page} is another with {contender}");
        }
        others.push(plain);
    }
    Ok(())
}
