//! `transport = "plain"`: who is served, where to, with which TCP, and that nobody takes it for a tunnel. That connections end
//! as they should is in the suite on fidelity. Needs root.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::{GATEWAY_SAT, WEB};
use bentpipe_testbed::peer::{
    PATIENCE, Service, digest, echo, payload, read_exactly, set_patience,
};
use bentpipe_testbed::privileged;
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Carried, PORT, Site, SiteConfig};
use rustix::process::Signal;

use crate::BENTPIPE;

fn site(carried: Carried) -> Site {
    Site::start(SiteConfig {
        carried,
        client_keys: match carried {
            Carried::Tunnel => String::new(),
            _ => "controller = \"reno\"".into(),
        },
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// Text of `bentpipe status` about the client.
fn status(site: &Site) -> String {
    let socket = site.client_home().join("client.sock");
    let mut command = Command::new(BENTPIPE);
    command.arg("status").arg("--socket").arg(socket);
    let output = command.output().expect("bentpipe runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Somebody on the web who sends back what comes, and the user's connection to it.
fn echoed(site: &Site) -> (Service, TcpStream) {
    let web = Place::from(site.topology.web());
    let service = Service::start(&web, (WEB, 0).into(), echo).expect("a server");
    let user = Place::from(site.topology.user());
    let connect = || TcpStream::connect_timeout(&service.address, PATIENCE);
    let stream = user.at(connect).expect("the user").expect("a connection");
    set_patience(&stream, PATIENCE).expect("patience");
    (service, stream)
}

#[test]
fn what_is_carried_is_shown_and_sent_with_the_tcp_that_was_asked_for() {
    if !privileged("splitting") {
        return;
    }
    let site = site(Carried::Distributed);
    let (_service, mut stream) = echoed(&site);
    let sent = payload(50_000);
    stream.write_all(&sent).expect("sent");
    let back = read_exactly(&mut stream, sent.len()).expect("all of it");
    assert_eq!(digest(&back), digest(&sent));

    let text = status(&site);
    assert!(
        text.contains("plain TCP: neither encrypted nor authenticated") && text.contains("1 open"),
        "{text}"
    );
    let report = site.client_report().expect("a report");
    assert_eq!(report["transport"], "plain");
    for lan in ["lan_in", "lan_out"] {
        assert_eq!(report["bytes"][lan], 50_000, "{lan}");
    }
    assert_eq!(report["flows"]["active"], 1);
    // Towards the server; the topology's routes say cubic.
    let filter = format!("dport = :{PORT}");
    let sockets = site.topology.terminal().run("ss", &["-tinH", &filter]);
    let sockets = sockets.expect("ss runs");
    assert!(sockets.contains(" reno "), "{sockets}");
    for process in [site.client(), site.server()] {
        let log = process.stderr_text();
        assert!(log.contains("neither encrypted nor authenticated"), "{log}");
    }
}

#[test]
fn strangers_are_reset_and_destinations_are_checked() {
    if !privileged("splitting") {
        return;
    }
    let site = site(Carried::Distributed);
    let user = Place::from(site.topology.user());
    let asked = |address: SocketAddr| {
        let start = Instant::now();
        let ended = user.at(|| {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            set_patience(&stream, PATIENCE)?;
            stream.write_all(b"hello")?;
            stream.read(&mut [0; 8])
        });
        (
            ended.expect("the user").map_err(|error| error.kind()),
            start.elapsed(),
        )
    };
    // The user's own address is in nobody's `source`; what goes to the server is not taken in.
    let (ended, _) = asked((GATEWAY_SAT, PORT).into());
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    // Of the terminal, what `allow` does not open; a router would have tried for much longer.
    let (ended, took) = asked("192.168.7.7:80".parse().expect("an address"));
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_server_with_a_tunnel_serves_no_tcp() {
    if !privileged("splitting") {
        return;
    }
    let site = site(Carried::Tunnel);
    let terminal = Place::from(site.topology.terminal());
    let server = (GATEWAY_SAT, PORT).into();
    let connected = terminal.at(|| TcpStream::connect_timeout(&server, PATIENCE).map(drop));
    let error = connected.expect("the terminal").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// A server that has read its file again knows of the connections from before: they count, and a stop waits for them, also for
/// those of a client that the file lists no more.
#[test]
fn connections_from_before_a_reload_are_known() {
    if !privileged("splitting") {
        return;
    }
    for listed in [true, false] {
        let site = site(Carried::Distributed);
        let (_service, mut stream) = echoed(&site);
        let mut answers = || {
            stream.write_all(b"hello").expect("sent");
            let heard = read_exactly(&mut stream, 5).expect("an answer");
            assert_eq!(heard, b"hello", "{}", site.logs());
        };
        answers();
        if !listed {
            let file = site.topology.directory().join("server.toml");
            let text = std::fs::read_to_string(&file).expect("a file");
            let other = text.replace("\"terminal-1\"", "\"terminal-2\"");
            assert_ne!(other, text, "the client's name");
            std::fs::write(&file, other).expect("a file");
        }
        reload(&site, "reloaded: ").expect("a list");
        answers();
        site.server().signal(Signal::TERM).expect("a process");
        // Without anything to wait for it ends at once.
        std::thread::sleep(Duration::from_millis(500));
        answers();
        drop(stream);
        let ended = site.server().wait(PATIENCE);
        assert!(ended.expect("an end").success(), "{}", site.logs());
    }
}
