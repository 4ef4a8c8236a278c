//! `cap` of `[metering]` with real daemons: what is used up is used up, and nothing takes another way. Needs root.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use bentpipe_emulator::topology::WEB;
use bentpipe_lab::leaks::Prober;
use bentpipe_testbed::peer::{PATIENCE, Service, endless, read_to_the_end, set_patience};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, fast_geo};
use bentpipe_testbed::start;
use bentpipe_testbed::strace::Strace;
use bentpipe_testbed::transfer::{Transfer, Way};
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
    let metering = metering(&site);
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

/// The metering of the client's `status`.
fn metering(site: &Site) -> Value {
    site.client_report().expect("a report")["metering"].take()
}

#[test]
fn a_count_that_cannot_be_written_is_told_each_time_and_shown_until_it_can() {
    if !privileged("metering: a count that cannot be written") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: fast_geo(),
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n[metering]\ncap = \"100 MB\"\n"
            .into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    // A directory where the new content is to be written.
    let in_the_way = site.client_home().join("state/usage.json.bentpipe-new");
    let [route, _] = site.routes();
    // More than a hundredth of the cap is written soon.
    let grow = || {
        let transfer = Transfer::start(&route, Way::Download, 2_000_000).expect("a transfer");
        transfer.finish_whole().expect("a whole transfer");
    };
    let told = |text: &str, times: usize| {
        let deadline = Instant::now() + PATIENCE;
        while site.client().stderr_text().matches(text).count() < times {
            assert!(Instant::now() < deadline, "{text}: {}", site.logs());
            thread::sleep(Duration::from_millis(100));
        }
    };
    for time in 1..=2 {
        fs::create_dir_all(&in_the_way).expect("the directory is ours");
        grow();
        told("`cap` of [metering] counts anew after a restart", time);
        let metering = metering(&site);
        let fault = metering["fault"].as_str().unwrap_or_default();
        assert!(fault.contains("usage.json cannot be written"), "{metering}");
        fs::remove_dir(&in_the_way).expect("it is ours");
        grow();
        told("usage.json is written again", time);
    }
    assert_eq!(metering(&site)["fault"], Value::Null);
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
