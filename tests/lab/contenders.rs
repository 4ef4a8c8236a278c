//! Everybody whom the lab can start carries a file whole; and who truncates or leaks is shown as such. Needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::{installed, privileged, required};
use serde_json::Value;

use crate::BENTPIPE;

/// A link that costs the tests little time.
const LINK: &str = "[scenario]\nname = \"near\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"10 ms\"\n\
    [forward]\nstandard = \"cbr\"\nbit_rate = \"40 Mbit/s\"\n[return]\nstandard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n";

/// Runs `contenders` with a file of 300 kB; `tables` are what the experiment says besides.
pub(crate) fn measure(contenders: &[&str], tables: &str, directory: &Path) -> Result<Vec<Value>> {
    measure_with(contenders, tables, directory, &[])
}

/// The same, with further options.
pub(crate) fn measure_with(
    contenders: &[&str],
    tables: &str,
    directory: &Path,
    options: &[&str],
) -> Result<Vec<Value>> {
    fs::write(directory.join("near.toml"), LINK)?;
    fs::write(
        directory.join("e.toml"),
        format!(
            "[experiment]\nname = \"e\"\nquestion = \"?\"\nrepeats = 1\nscenarios = [\"near.toml\"]\npatience = \"60 s\"\n\
             contenders = {contenders:?}\n[task.down]\nkind = \"transfer\"\nsize = \"300 kB\"\n{tables}"
        ),
    )?;
    let mut command = Command::new(BENTPIPE);
    command.args(["lab", "run", "e.toml", "--output", "out"]);
    command.args(options);
    let output = command.current_dir(directory).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    let text = fs::read_to_string(directory.join("out/results.jsonl"))?;
    let records: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    ensure!(records.len() >= contenders.len(), "{text}");
    Ok(records)
}

#[test]
fn everybody_carries_a_file_whole() -> Result<()> {
    if !privileged("contenders") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let own = [
        "split",
        "split-terminal",
        "split-gateway",
        "split/bbr",
        "accelerator",
        "bentpipe-tls",
        "bentpipe-pep-a",
        "bentpipe-sle",
        "bentpipe-les",
        "prefetch",
        "trusted",
        "dssl-quick",
        "sle@hosts",
        "sle-transparent@hosts",
        "sle@hosts+accelerator",
        "sle@hosts+split",
        "les@hosts",
        "les@hosts+pep",
        "les-paper@hosts+pep",
        "les-psk@hosts+pep",
        "clear+pep",
    ];
    let installed = [
        "wireguard-best",
        "wireguard-pep-b",
        "openvpn-udp-best",
        "openvpn-udp-best-pep-b",
        "openvpn-tcp-best",
        "openvpn-tcp-pep-a",
        "openvpn-tcp-pep-b",
        "ipsec",
        "ipsec-best",
        "ipsec-pep-b",
        "masque",
        "wireguard@hosts",
        "ipsec@hosts",
        "openvpn-udp@hosts+split",
        "ipsec@hosts+accelerator",
        "openvpn-tcp@hosts+accelerator",
    ];
    let contenders = [&own[..], &installed, &["hysteria2"]].concat();
    for record in measure(&contenders, "", directory.path())? {
        let name = record["contender"].as_str().context("a name")?;
        let (outcome, reason) = (&record["outcome"], record["reason"].as_str());
        if name == "hysteria2" {
            ensure!(outcome == "unsupported", "{record}");
            let reason = reason.context("a reason")?;
            ensure!(reason.contains("[contender.hysteria2]"), "{reason}");
            continue;
        }
        if outcome == "unsupported" && installed.contains(&name) && !required() {
            continue;
        }
        ensure!(outcome == "measured", "{record}");
        // A busy machine may make a run invalid, and nobody else.
        let doubts = record["doubts"].as_array().context("doubts")?;
        let about_it = |doubt: &&Value| {
            [
                "outside of the tunnel",
                "outside of the VPN",
                "passes it by",
                "went another way",
                "went around",
                "does not say",
                "no knowing",
            ]
            .iter()
            .any(|text| doubt.as_str().is_some_and(|doubt| doubt.contains(text)))
        };
        ensure!(
            !doubts.iter().any(|doubt| about_it(&doubt)),
            "{name}: {doubts:?}"
        );
    }
    Ok(())
}

#[test]
fn every_task_that_needs_no_browser_is_done() -> Result<()> {
    if !privileged("tasks") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let tables = "[task.call]\nkind = \"voice\"\nlength = \"1 s\"\n\
        [task.called]\nkind = \"voice\"\nlength = \"1 s\"\ndirection = \"up\"\n\
        [task.several]\nkind = \"parallel\"\ncount = 5\nsize = \"20 kB\"\ndirection = \"up\"\n\
        [task.echoes]\nkind = \"echo\"\ncount = 10\nbackground = \"up\"\nwarm_up = \"10 kB\"\n\
        [task.objects]\nkind = \"objects\"\ncount = 10\nsize = \"2 kB\"\n\
        [task.ftp]\nkind = \"ftp\"\ncount = 5\nsize = \"1 kB\"\nlongest = \"20 kB\"\n\
        [task.ftp-up]\nkind = \"ftp\"\ncount = 5\nsize = \"2 kB\"\ndirection = \"up\"\n\
        [task.each]\nkind = \"page\"\ncount = 1\nconnections = \"each\"\ntls = \"none\"\nparallel = 2\n\
        [task.sent]\nkind = \"page\"\ncount = 1\nconnections = \"each\"\ntls = \"none\"\ndirection = \"up\"\n\
        [task.old]\nkind = \"page\"\ncount = 1\nconnections = \"each\"\ntls = \"1.2\"\n\
        [task.multiplexed]\nkind = \"page\"\ncount = 1\nprotocol = \"h2\"\n\
        [task.handshakes]\nkind = \"handshake\"\ncount = 12\n\
        [task.session]\nkind = \"session\"\ncount = 8\nrequest = \"1 kB\"\nresponse = \"3 kB\"\nevery = \"50 ms\"\ncontent = \"text\"\n\
        [task.start]\nkind = \"handshake\"\ncount = 1\nto = \"contender\"\n\
        [task.cold]\nkind = \"transfer\"\nsize = \"10 kB\"\ncold = true\n";
    let records = measure(&["plain", "bentpipe", "split"], tables, directory.path())?;
    ensure!(records.len() == 3 * 16);
    for record in records {
        let name = record["contender"].as_str().context("a name")?;
        let task = record["task"].as_str().context("a task")?;
        if ["call", "called", "echoes"].contains(&task) && name == "split" {
            let reason = record["reason"].as_str().context("a reason")?;
            let said = record["outcome"] == "unsupported" && reason.contains("UDP");
            ensure!(said, "{record}");
            continue;
        }
        ensure!(record["outcome"] == "measured", "{record}");
        let seconds = record["seconds"].as_array().context("figures")?;
        let least = seconds.iter().filter_map(Value::as_f64).fold(1e9, f64::min);
        let (figures, physics) = match task {
            "call" | "called" => {
                ensure!(record["lost"] == 0.0, "{record}");
                (50, 0.010)
            }
            // What is lost in a full queue has no figure.
            "echoes" => {
                let lost = record["lost"].as_f64().context("a share")?;
                ((10.0 * (1.0 - lost)).round() as usize, 0.02)
            }
            "handshakes" => (12, 0.02),
            "session" => {
                expect_transactions(&record)?;
                (8, 0.02)
            }
            // Neither agrees on anything with anybody; the tunnel's handshake takes a round trip.
            "start" if name != "bentpipe" => (1, 0.0),
            // Ten round trips.
            "objects" => (1, 0.2),
            _ => (1, 0.02),
        };
        ensure!(seconds.len() == figures && least >= physics, "{record}");
    }
    Ok(())
}

/// Fails unless each transaction of the session has its end and the bytes of its content.
fn expect_transactions(record: &Value) -> Result<()> {
    let all = record["transactions"].as_array().context("transactions")?;
    let of = |key: &'static str| all.iter().map(move |one| one[key].as_f64().unwrap_or(0.0));
    ensure!(of("ended_s").is_sorted() && all.len() == 8, "{record}");
    // Between the last one's end and the count there may be packets on their way.
    ensure!(of("client_bytes").all(|bytes| bytes > 3500.0), "{record}");
    ensure!(of("client_bytes").sum::<f64>() < 8.0 * 12e3, "{record}");
    Ok(())
}

#[test]
fn names_cross_in_a_tunnel_and_beside_who_splits_tcp_alone() -> Result<()> {
    if !privileged("names") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let tables = "[task.page]\nkind = \"page\"\npages = \"usual\"\ncount = 1\ndns = true\n";
    let contenders = ["plain", "bentpipe", "wireguard", "split", "split-terminal"];
    for record in measure(&contenders, tables, directory.path())? {
        let name = record["contender"].as_str().context("a name")?;
        if name == "wireguard" && record["outcome"] == "unsupported" && !required() {
            continue;
        }
        ensure!(record["outcome"] == "measured", "{record}");
        let doubts = record["doubts"].to_string();
        for text in ["never asked", "outside of the tunnel"] {
            ensure!(!doubts.contains(text), "{name}: {doubts}");
        }
        let crossed = &record["crossed"];
        if crossed.is_object() && record["task"] == "page" {
            let beside = crossed["name_packets"].as_u64().context("a count")?;
            ensure!((beside > 0) == (name == "split"), "{record}");
        }
    }
    Ok(())
}

/// Takes connections in transparently and ends each after 100 kB, in good order.
const TRUNCATOR: &str = "
import socket, threading
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_IP, 19, 1)
listener.bind(('0.0.0.0', 8080))
listener.listen()
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
def serve(user):
    web = socket.create_connection(user.getsockname())
    threading.Thread(target=copy, args=(user, web), daemon=True).start()
    left = 100000
    while left and (data := web.recv(min(left, 65536))):
        user.sendall(data)
        left -= len(data)
    user.shutdown(socket.SHUT_WR)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Listens and ends as soon as connections are handed to it; what is handed to it then is forwarded as if it were not there.
const MORTAL: &str = "
import socket, subprocess
listener = socket.socket()
listener.setsockopt(socket.SOL_IP, 19, 1)
listener.bind(('0.0.0.0', 8080))
listener.listen()
while subprocess.run(['nft', 'list', 'table', 'inet', 'bentpipe_lab'], capture_output=True).returncode:
    pass
";
/// Listens, and not transparently: nothing can be handed to it, from the beginning.
const DEAF: &str = "
import socket, time
listener = socket.socket()
listener.bind(('0.0.0.0', 8080))
listener.listen()
time.sleep(1000)
";

#[test]
fn who_lets_packets_pass_is_not_measured_by_them() -> Result<()> {
    if !privileged("contenders") || !installed("contenders", "python3") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let script = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text)?;
        Ok::<_, anyhow::Error>(format!(
            "[contender.{name}]\nterminal = [\"python3\", {path:?}]\nintercept = 8080\n"
        ))
    };
    let tables = script("mortal", MORTAL)? + &script("deaf", DEAF)?;
    let records = measure(&["mortal", "deaf"], &tables, directory.path())?;
    ensure!(!records.is_empty());
    for record in records {
        let doubts = record["doubts"].to_string();
        let doubted = doubts.contains("went around it");
        if record["contender"] == "deaf" {
            ensure!(record["outcome"] == "measured" && doubted, "{record}");
        } else {
            // Who was handed a connection in its last moment has failed.
            ensure!(record["outcome"] == "failed" || doubted, "{record}");
        }
    }
    Ok(())
}

#[test]
fn who_truncates_or_leaks_is_shown_as_such() -> Result<()> {
    if !privileged("contenders") || !installed("contenders", "python3") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("truncator.py");
    fs::write(&script, TRUNCATOR)?;
    let tables = format!(
        "[contender.truncator]\nterminal = [\"python3\", {script:?}]\nintercept = 8080\n\
         [contender.leaker]\nterminal = [\"sleep\", \"1000\"]\ntunnel = \"udp/9000\"\n\
         [contender.dead]\ngateway = [\"false\"]\nready = \"ready\"\n\
         [contender.absent]\nterminal = [\"./nothing\"]\n"
    );
    let contenders = ["truncator", "leaker", "dead", "absent"];
    for record in measure(&contenders, &tables, directory.path())? {
        let name = record["contender"].as_str().context("a name")?;
        let (outcome, text) = match name {
            "truncator" => ("failed", "body"),
            "leaker" => ("measured", "outside of the tunnel crossed"),
            "dead" => ("failed", "did not come up"),
            _ => ("unsupported", "there is no "),
        };
        ensure!(record["outcome"] == outcome, "{record}");
        let remarks = format!("{} {}", record["reason"], record["doubts"]);
        ensure!(remarks.contains(text), "{name}: {remarks}");
    }
    Ok(())
}

#[test]
fn a_binary_that_is_named_for_a_run_is_started() -> Result<()> {
    if !privileged("binaries") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let stub = directory.path().join("stub");
    fs::write(&stub, "#!/bin/sh\necho \"started as $*\" >&2\nexit 3\n")?;
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755))?;
    let names = ["hysteria2", "qpep", "pepsal"];
    let without = measure(&names, "", directory.path())?;
    ensure!(
        without
            .iter()
            .all(|record| record["outcome"] == "unsupported"),
        "{without:?}"
    );
    let given = names.map(|name| format!("{name}=stub"));
    let options: Vec<&str> = given.iter().flat_map(|one| ["--binary", one]).collect();
    let all = measure_with(&names, "", directory.path(), &options)?;
    for record in &all[names.len()..] {
        ensure!(record["outcome"] == "failed", "{record}");
        let said = record["reason"].as_str().context("a reason")?;
        ensure!(
            said.contains("exit status: 3") && said.contains("started as"),
            "{said}"
        );
        let version = record["version"].as_str().context("a version")?;
        ensure!(version.contains("stub, SHA-256 "), "{version}");
    }
    let manifest: Value =
        serde_json::from_slice(&fs::read(directory.path().join("out/manifest.json"))?)?;
    let version = manifest["contenders"]["qpep"]
        .as_str()
        .context("a version")?;
    ensure!(version.contains("stub, SHA-256 "), "{version}");
    for (option, text) in [
        ("openvpn-udp=stub", "takes no binary"),
        ("qpep-best=stub", "has no `qpep-best`"),
    ] {
        let failed = measure_with(&names, "", directory.path(), &["--binary", option]);
        let error = failed.err().context("it was not refused")?.to_string();
        ensure!(error.contains(text), "{error}");
    }
    Ok(())
}
