//! `cap` of `[metering]` with real daemons: what is used up is used up, and nothing takes another way. Needs root.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use bentpipe_emulator::topology::WEB;
use bentpipe_lab::leaks::Prober;
use bentpipe_testbed::peer::{PATIENCE, Service, endless, read_to_the_end, set_patience};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::start;
use bentpipe_testbed::strace::Strace;
use bentpipe_testbed::{installed, privileged};
use serde_json::Value;

use crate::BENTPIPE;

const CAP: u64 = 2_000_000;

/// What is under way when the last byte was used, 10 Mbit/s for a round trip and a queue of as much, still comes.
const LATE: u64 = 1_500_000;

#[test]
fn at_its_cap_the_tunnel_ends_and_nothing_leaves_in_clear() {
    if !privileged("metering: the cap") {
        return;
    }
    let mut site = Site::start(SiteConfig {
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\n\
             [metering]\ncap = \"{CAP} B\"\nat_cap = \"stop\"\nprice_per_mb = 2.0\n"
        ),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let capture = site.watch().expect("a capture");
    let service = Service::start(&web, SocketAddr::new(WEB.into(), 0), endless).expect("a server");
    let download = || {
        let connected = user.at(|| TcpStream::connect_timeout(&service.address, PATIENCE));
        connected.expect("a namespace").map(|mut stream| {
            set_patience(&stream, PATIENCE).expect("a timeout");
            read_to_the_end(&mut stream)
        })
    };
    let (bytes, end) = download().expect("a connection");
    end.expect_err("no clean end");
    let got = bytes.len() as u64;
    assert!(got > CAP / 2 && got < CAP + LATE, "{got}\n{}", site.logs());
    let prober = Prober::start(site.topology.user()).expect("a prober");
    if let Ok((bytes, end)) = download() {
        end.expect_err("no clean end");
        assert!(bytes.is_empty(), "{}", bytes.len());
    }
    thread::sleep(Duration::from_secs(1));
    drop(prober);
    let crossed = capture.stop().expect("a whole capture");
    crossed.expect_only_tunnel().expect("the tunnel alone");
    let socket = site.client_home().join("client.sock");
    let arguments = [
        "status",
        "--json",
        "--socket",
        socket.to_str().expect("a path"),
    ];
    let report = site.topology.terminal().run(BENTPIPE, &arguments);
    let report: Value = serde_json::from_str(&report.expect("a status")).expect("a report");
    let metering = &report["metering"];
    let used = metering["used_bytes"].as_u64().expect("a figure");
    assert_eq!(metering["used_up"], true, "{metering}");
    assert!((CAP..CAP + LATE).contains(&used), "{metering}");
    let cost = metering["cost"].as_f64().expect("a figure");
    assert!((cost - used as f64 / 5e5).abs() < 0.01, "{metering}");

    // A restart frees nothing: the month is the same. Nor does a power cut, whichever write it comes between.
    let traced = installed("metering: the state files", "strace");
    let renaming = ["-e", "trace=fsync,rename,renameat,renameat2"];
    let strace = traced.then(|| Strace::attach(site.client().id(), &renaming).expect("strace"));
    site.stop_client().expect("an orderly end");
    if let Some(strace) = strace {
        expect_synced(&strace.calls().expect("its calls"));
    }
    let client = start::client(&site, |_| ()).expect("a client");
    client
        .wait_for_line("`cap` of [metering] is reached", PATIENCE)
        .expect("a line");
    // What the server had sent when the client stopped has arrived by then.
    thread::sleep(Duration::from_secs(2));
    let capture = site.watch().expect("a capture");
    thread::sleep(Duration::from_secs(2));
    // Taken in, and reset without a byte, as before the restart.
    if let Ok((bytes, end)) = download() {
        end.expect_err("no clean end");
        assert!(bytes.is_empty(), "{}", bytes.len());
    }
    assert!(
        !client.stderr_text().contains("ready"),
        "{}",
        client.stderr_text()
    );
    let crossed = capture.stop().expect("a whole capture");
    assert_eq!(crossed.tunnel_packets, 0, "{crossed}");
}

/// Expects that the bytes of a file are on the disk before its name is, and that its directory follows.
fn expect_synced(calls: &str) {
    let lines: Vec<&str> = calls.lines().collect();
    let renames = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains("rename"));
    let mut seen = 0;
    for (at, line) in renames {
        let mut quoted = line.split('"').skip(1).step_by(2).map(Path::new);
        let (Some(aside), Some(file)) = (quoted.next(), quoted.next()) else {
            continue;
        };
        let synced = |path: &Path| {
            let shown = format!("<{}>", path.display());
            move |line: &&str| line.contains("fsync(") && line.contains(&shown)
        };
        assert!(lines[..at].iter().any(synced(aside)), "{calls}");
        let directory = file.parent().expect("it is in a directory");
        assert!(lines[at..].iter().any(synced(directory)), "{calls}");
        seen += 1;
    }
    assert!(seen > 0, "nothing was written: {calls}");
}
