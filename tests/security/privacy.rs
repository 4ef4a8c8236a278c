//! What logs, files, the link and `status` tell, and to whom.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{WEB, WEB6};
use bentpipe_testbed::peer::{Service, accept, payload, read_exactly, read_to_eof};
use bentpipe_testbed::proxy::{Proxy, SOCKS5};
use bentpipe_testbed::site::SiteConfig;
use bentpipe_testbed::transfer::{Transfer, Way};
use bentpipe_testbed::{expect_tunnel_alone, start};
use serde_json::Value;

use crate::BENTPIPE;
use crate::{SOON, on_site};

#[test]
fn secrets_are_written_only_where_the_operator_asks_for_it() {
    on_site("key log", SiteConfig::new(BENTPIPE), |site| {
        site.start_server()?;
        let directory = site.topology.directory().to_owned();
        let (asked, environment) = (directory.join("asked"), directory.join("environment"));
        let plain = start::client(site, |command| {
            command.env("SSLKEYLOGFILE", &environment);
        })?;
        plain.wait_for_line("ready", SOON)?;
        drop(plain);
        ensure!(!environment.exists(), "a variable has made a key log");

        let logging = start::client(site, |command| {
            command.arg("--key-log").arg(&asked);
        })?;
        logging.wait_for_line("TLS secrets are written to", SOON)?;
        logging.wait_for_line("ready", SOON)?;
        let secrets = fs::read_to_string(&asked)?;
        for label in ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"] {
            let of = |line: &&str| line.starts_with(label) && line.split(' ').count() == 3;
            ensure!(secrets.lines().filter(of).count() == 1, "no {label}");
        }
        let mode = fs::metadata(&asked)?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "mode {mode:o}");
        Ok(())
    });
}

/// Everything that anybody may say of a flow at this level; what a client may not reach, its operator is told once.
fn expect_nothing_about_flows(log: &str) -> Result<()> {
    let telling = ["10.30.", "10.10.", "fd00:", ".example", ":7001", ":7002"];
    for line in log.lines().filter(|line| !line.contains(" is denied: ")) {
        let told = telling.iter().find(|word| line.contains(**word));
        ensure!(
            told.is_none(),
            "the log tells `{}`: {line}",
            told.unwrap_or(&"")
        );
    }
    Ok(())
}

#[test]
fn logs_and_link_tell_nothing_about_flows() {
    let config = SiteConfig {
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\n[socks5]\nlisten = \"{SOCKS5}\"\n"
        ),
        server_hosts: Some("10.30.0.2 web.example\n".into()),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("what logs tell", config, |site| {
        let capture = site.watch()?;
        site.start_server()?;
        site.start_client()?;
        let web = site.topology.web().into();
        let _servers = [WEB.into(), WEB6.into()].map(|address| {
            let say = |mut stream: TcpStream| Ok(stream.write_all(&payload(9_000))?);
            Service::start(&web, SocketAddr::new(address, 7001), say).expect("a server")
        });
        for route in site.routes() {
            let mut flow = route.connect(SocketAddr::new(route.server, 7001))?;
            read_to_eof(&mut flow)?;
            // Refused or unreachable: an operator may not be told of each, either.
            for (address, port) in [(route.server, 7002), (route.nobody, 7001)] {
                let _ = route
                    .try_connect(SocketAddr::new(address, port))?
                    .map(|mut flow| read_to_eof(&mut flow));
            }
        }
        for name in ["web.example", "nowhere.example", "10.10.0.2"] {
            let (mut flow, _) = Proxy::Socks5.connect(site, name, 7001)?;
            let _ = read_to_eof(&mut flow);
        }
        let (client, server) = (site.client().stderr_text(), site.server().stderr_text());
        let keys = [
            site.topology.directory().join("server.key"),
            site.client_home().join("client.key"),
        ];
        site.stop_client()?;
        site.stop_server()?;
        for log in [client, server] {
            expect_nothing_about_flows(&log)?;
            for key in &keys {
                let key = fs::read_to_string(key)?;
                ensure!(!log.contains(key.trim()), "a private key in the log");
            }
        }
        expect_tunnel_alone(capture)
    });
}

/// The number at `path`, which must be there.
fn number(document: &Value, path: &str) -> Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("no number {path} in {document:#}"))
}

/// What both sides tell of a tunnel through which `payload` bytes have come down.
fn expect_figures(session: &Value, lan: &str, wire: &str, payload: f64) -> Result<()> {
    let text = |path: &str| session.pointer(path).and_then(Value::as_str);
    ensure!(text("/tunnel/state") == Some("ready"), "{session:#}");
    ensure!(
        text("/tunnel/key_exchange") == Some("X25519MLKEM768"),
        "{session:#}"
    );
    for (rtt, limit) in [("/tunnel/min_rtt_ms", 600.0), ("/tunnel/rtt_ms", 800.0)] {
        let rtt = number(session, rtt)?;
        ensure!((500.0..limit).contains(&rtt), "RTT {rtt} ms");
    }
    ensure!(
        number(session, "/flows/opened_total")? == 2.0,
        "{session:#}"
    );
    ensure!(number(session, "/flows/active")? == 1.0, "{session:#}");
    let (lan, wire) = (number(session, lan)?, number(session, wire)?);
    ensure!(
        lan == payload,
        "{lan} bytes on the LAN side instead of {payload}"
    );
    ensure!(
        (payload..1.5 * payload + 20_000.0).contains(&wire),
        "{wire} bytes on the link"
    );
    let (used, ceiling) = (
        number(session, "/memory/used")?,
        number(session, "/memory/ceiling")?,
    );
    ensure!(used < ceiling, "memory {used} of {ceiling}");
    Ok(())
}

#[test]
fn status_tells_what_is_going_on() {
    on_site("status", SiteConfig::new(BENTPIPE), |site| {
        site.start_server()?;
        site.start_client()?;
        let [route, _] = site.routes();
        let length = 50_000;
        Transfer::start(&route, Way::Download, length)?.finish_whole()?;
        let (listener, address) = route.listen()?;
        let mut user = route.connect(address)?;
        user.write_all(b"!")?;
        let mut web = accept(&listener, route.patience)?;
        read_exactly(&mut web, 1)?;
        // The server's first: the end of the transfer's flow is acknowledged meanwhile.
        let server = site.newer_server_report()?;
        let client = site.client_report()?;
        for (document, role) in [(&client, "client"), (&server, "server")] {
            ensure!(document["role"] == role, "{document:#}");
            ensure!(document["schema"] == 1, "{document:#}");
            ensure!(
                document["version"] == env!("CARGO_PKG_VERSION"),
                "{document:#}"
            );
        }
        let length = 50_000.0;
        expect_figures(&client, "/bytes/lan_out", "/bytes/wire_in", length)?;
        let session = server.pointer("/clients/0").context("no client")?;
        ensure!(session["name"] == "terminal-1", "{server:#}");
        expect_figures(session, "/bytes/lan_in", "/bytes/wire_out", length)?;
        let text = Command::new(BENTPIPE)
            .args(["status", "--socket"])
            .arg(site.client_home().join("client.sock"))
            .output()?;
        let text = String::from_utf8(text.stdout)?;
        ensure!(
            text.contains("ready") && text.contains("X25519MLKEM768"),
            "{text}"
        );
        Ok(())
    });
}
