//! Two clients of one server whose LANs have the same prefix, and one of them moves.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bentpipe_emulator::topology::TERMINAL_SAT;
use bentpipe_link::Terminal;
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::echo::{Echo, Heard, Speech, any, median, speak};
use bentpipe_testbed::moving::change_address;
use bentpipe_testbed::second::{Second, places};
use bentpipe_testbed::site::{Site, SiteConfig, geo, near};
use bentpipe_testbed::{expect_tunnel_alone, privileged};

use super::{WEBS, assigned_at, ping};
use crate::BENTPIPE;

/// The ports that all users send from to IPv4 and IPv6: what the two sites send has the same addresses and ports.
const PORTS: [u16; 2] = [5554, 5556];

/// What each user says to each server: five seconds.
const SPEECH: Speech = Speech {
    mark: 0,
    count: 1000,
    rate: 200,
};

/// The longest silence that a move may cost: 50 ms is the round trip.
const GAP: Duration = Duration::from_millis(1500);

/// Two terminals on a short path that loses nothing; behind each of them is 192.168.7.0/24 with the same host in it.
fn sites() -> Result<(Site, Second)> {
    let terminal = |number: u8| Terminal {
        name: format!("terminal-{number}"),
        station: None,
        extra_attenuation: Default::default(),
        cra: None,
        rbdc_max: None,
        vbdc_max: None,
        modcod: None,
    };
    let mut scenario = near();
    scenario.errors = geo().errors;
    scenario.terminals = vec![terminal(1), terminal(2)];
    let mut site = Site::plain(SiteConfig {
        scenario,
        ..SiteConfig::new(BENTPIPE)
    })?;
    for (number, (user, terminal)) in site.topology.sites().enumerate() {
        same_lan(number, user, terminal)?;
    }
    let mut second = Second::introduce(&site)?;
    site.start_server()?;
    site.start_client()?;
    second.start(&site)?;
    Ok((site, second))
}

/// Gives the LAN of the site with this number, from 0, the prefixes that all of them have, instead of its own.
fn same_lan(number: usize, user: &NetNs, terminal: &NetNs) -> Result<()> {
    let old6 = if number == 0 {
        "fd00:10::"
    } else {
        "fd00:10:0:1::"
    };
    let change = |place: &NetNs, device: &str, host: u8, routes: &str| {
        let lines = format!(
            "addr add 192.168.7.{host}/24 dev {device}\n\
             addr add fd00:77::{host}/64 dev {device} nodad\n\
             {routes}\
             addr del 10.10.{number}.{host}/24 dev {device}\n\
             addr del {old6}{host}/64 dev {device}\n"
        );
        let mut command = place.command("ip");
        run_with_input(command.args(["-batch", "-"]), &lines).map(drop)
    };
    change(terminal, "lan0", 1, "")?;
    let routes = "route replace default via 192.168.7.1\nroute replace ::/0 via fd00:77::1\n";
    change(user, "eth0", 2, routes)?;
    Ok(())
}

/// All that both users hear: by user and by server.
fn talk(site: &Site, echoes: &[Echo; 2], moves: impl FnOnce() -> Result<()>) -> Result<Vec<Talk>> {
    let users: Vec<_> = site.topology.sites().map(|(user, _)| user).collect();
    thread::scope(|scope| {
        let mut talks = Vec::new();
        for (mark, user) in (1..).zip(&users) {
            for (echo, port) in echoes.iter().zip(PORTS) {
                let socket = user.enter(|| UdpSocket::bind((any(echo.address.ip()), port)))??;
                socket.set_read_timeout(Some(Duration::from_secs(3)))?;
                socket.connect(echo.address)?;
                let speech = Speech { mark, ..SPEECH };
                talks.push((mark, echo, scope.spawn(move || speak(&socket, speech))));
            }
        }
        for user in &users {
            for web in WEBS {
                ping(user, &web.to_string(), 1400).with_context(|| format!("ping {web}"))?;
            }
        }
        moves()?;
        let ended = talks.into_iter().map(|(mark, echo, talk)| {
            let heard = talk.join().map_err(|_| anyhow!("a speaker panicked"))??;
            let talk = Talk {
                user: mark,
                web: echo.address.ip(),
                heard,
            };
            println!("{talk}");
            Ok(talk)
        });
        ended.collect()
    })
}

struct Talk {
    user: u8,
    web: IpAddr,
    heard: Vec<Heard>,
}

impl Talk {
    /// The longest time without an echo, and when it began.
    fn silence(&self) -> (Duration, Duration) {
        let pairs = self.heard.windows(2);
        let gaps = pairs.map(|pair| (pair[1].came.saturating_sub(pair[0].came), pair[0].came));
        gaps.max().unwrap_or_default()
    }

    /// Whether each of the packets sent since `then` was heard of.
    fn whole_since(&self, then: Duration) -> bool {
        let spoken = SPEECH.count - (then.as_secs_f64() * f64::from(SPEECH.rate)).ceil() as u32;
        let heard = self.heard.iter().filter(|heard| heard.sent >= then).count();
        heard >= spoken as usize
    }
}

impl std::fmt::Display for Talk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut delays: Vec<_> = self.heard.iter().map(|it| it.came - it.sent).collect();
        delays.sort_unstable();
        let (user, web, came) = (self.user, self.web, self.heard.len());
        let (median, (silence, at)) = (median(&delays), self.silence());
        write!(
            f,
            "user {user} and {web}: {came} of {} echoes, median {median:?}, silent for {silence:?} after {at:?}",
            SPEECH.count
        )
    }
}

#[test]
fn equal_lans_are_not_confused_and_one_may_move() {
    if !privileged("packets: equal LANs") {
        return;
    }
    let (site, second) = sites().expect("two sites");
    let result = equal_lans(&site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}\n{}", site.logs(), second.log()));
}

fn equal_lans(site: &Site) -> Result<()> {
    let second = places(site)?.1;
    let terminals = [site.topology.terminal(), second];
    let before = terminals.map(|terminal| assigned_at(site, terminal));
    ensure!(before[0] != before[1], "{before:?}");
    let web = site.topology.web();
    let echoes = [Echo::start(web, WEBS[0])?, Echo::start(web, WEBS[1])?];
    let capture = site.watch()?;
    for talk in talk(site, &echoes, || Ok(()))? {
        ensure!(talk.whole_since(Duration::ZERO), "{talk}");
    }
    // And now the first client's address becomes another. The link knows those behind the terminal as its own.
    // A router that still gets packets for its old address would redirect their sender to it.
    for device in ["all", "sat0"] {
        let setting = format!("net.ipv4.conf.{device}.send_redirects=0");
        terminals[0].run("sysctl", &["-w", &setting])?;
    }
    let moves = || {
        let new = Ipv4Addr::new(10, 10, 0, 77);
        change_address(terminals[0], TERMINAL_SAT, new)
    };
    for talk in talk(site, &echoes, moves)? {
        if talk.user == 1 {
            let (silence, at) = talk.silence();
            ensure!(silence <= GAP, "{talk}");
            ensure!(talk.whole_since(at + silence), "lost later: {talk}");
        } else {
            ensure!(talk.whole_since(Duration::ZERO), "disturbed: {talk}");
        }
    }
    let after = terminals.map(|terminal| assigned_at(site, terminal));
    ensure!(after == before, "{before:?} {after:?}");
    let log = site.client().stderr_text();
    ensure!(!log.contains("tunnel is down"), "the tunnel was given up");
    expect_tunnel_alone(capture)
}
