//! SIGHUP: the server takes over its new list of clients while tunnels are up.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{Process, TERMINAL_LAN, WEB, host};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::keys;
use bentpipe_testbed::peer::{Service, echo, read_to_reset};
use bentpipe_testbed::privileged;
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::{FOUND, RTT, SLACK, SOON, connect, echo_address, exchange, on_site, route};
use crate::BENTPIPE;

/// A second client at the terminal, with a key of its own; its proxy is on the terminal's LAN side.
struct Second {
    process: Process,
    public_key: String,
}

const PROXY_PORT: u16 = 1080;

impl Second {
    fn start(site: &Site) -> Result<Self> {
        let directory = site.topology.directory().join("second");
        fs::create_dir(&directory)?;
        let public_key = keys::generate(BENTPIPE, &directory.join("client.key"))?;
        let text = fs::read_to_string(site.client_file())?;
        let tables = text.find("[intercept]").context("an interception")?;
        let text = format!(
            "{}[socks5]\nlisten = \"{TERMINAL_LAN}:{PROXY_PORT}\"\n",
            &text[..tables]
        );
        let file = directory.join("client.toml");
        fs::write(&file, text)?;
        let mut command = Command::new(BENTPIPE);
        command.args(["client", "--config"]).arg(&file);
        let process = site.topology.spawn_in(site.topology.terminal(), command)?;
        Ok(Self {
            process,
            public_key,
        })
    }
}

#[test]
fn a_reload_closes_the_removed_and_takes_the_added() {
    on_site("reload", SiteConfig::new(BENTPIPE), |site| {
        let second = Second::start(site)?;
        second.process.wait_for_line(&second.public_key, SOON)?;
        // The operator of the server hears of it, with the key that is to be added, and once.
        let unknown = format!("shows a key that no [[client]] has: {}", second.public_key);
        site.server().wait_for_line(&unknown, SOON)?;
        let server = site.server_file();
        let whole = fs::read_to_string(&server)?;
        let first_key = whole
            .split("public_key = \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let first_key = first_key.context("the first client's key")?.to_owned();

        // Added: it gets in by its next attempt, after a pause that has grown with every refusal, and the first one's flows do not notice.
        let download = Transfer::start(&route(site, RTT), Way::Download, 3_000_000)?;
        download.until(200_000, SOON)?;
        let added = format!(
            "{whole}[[client]]\nname = \"terminal-2\"\npublic_key = \"{}\"\n",
            second.public_key
        );
        fs::write(&server, added)?;
        reload(site, "reloaded: +1 -0 ~0 clients")?;
        second.process.wait_for_line("ready", 3 * SOON)?;
        download.finish_whole()?;

        // At fault: the old list stays.
        edit(&server, "name = \"terminal-1\"", "nam = \"terminal-1\"")?;
        reload(site, "not reloaded, the old list stays")?;
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        exchange(&mut connect(site, web.address, RTT)?)?;

        // Removed: its flows are reset, it is told why, and it does not get in again.
        let download = Transfer::start(&route(site, RTT), Way::Download, 30_000_000)?;
        download.until(200_000, SOON)?;
        let text = fs::read_to_string(&server)?;
        let from = text.find("[[client]]").context("the first client")?;
        let to = text.rfind("[[client]]").context("the second client")?;
        fs::write(&server, format!("{}{}", &text[..from], &text[to..]))?;
        let hung_up = std::time::Instant::now();
        reload(site, "reloaded: +0 -1 ~0 clients")?;
        let named = site.server().stderr_text().matches(&unknown).count();
        ensure!(named == 1, "an unknown key is named {named} times");
        let ended = download.finish_reset()?.ended - hung_up;
        ensure!(ended <= 2 * RTT + SLACK, "reset after {ended:?}");
        let mend = format!("add a [[client]] with public_key = \"{first_key}\"");
        site.client().wait_for_line(&mend, FOUND + SLACK)?;
        ensure!(
            second.process.try_wait()?.is_none(),
            "the second client has gone"
        );
        let log = second.process.stderr_text();
        ensure!(
            log.matches("ready").count() == 1 && !log.contains("tunnel is down"),
            "{log}"
        );
        Ok(())
    });
}

#[test]
fn a_reload_raises_the_number_of_flows() {
    if !privileged("a reload of limits") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = raised(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

fn raised(site: &mut Site) -> Result<()> {
    let server = site.server_file();
    edit(&server, "allow = ", "max_flows = 2\nallow = ")?;
    site.start_server()?;
    site.start_client()?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
    let open = || {
        let mut stream = connect(site, web.address, RTT)?;
        exchange(&mut stream).map(|()| stream)
    };
    let first = [open()?, open()?];
    ensure!(open().is_err(), "a third flow of two");
    drop(first);

    edit(&server, "max_flows = 2", "max_flows = 4")?;
    edit(
        &server,
        "[[client]]",
        "[dns]\nservers = \"192.0.2.53\"\n[[client]]",
    )?;
    reload(
        site,
        "reloaded: +0 -0 ~1 clients; changed but needs a restart: dns.servers",
    )?;
    // What a tunnel may hold is told when it begins.
    site.stop_client()?;
    site.start_client()?;
    let open = || {
        let mut stream = connect(site, web.address, RTT)?;
        exchange(&mut stream).map(|()| stream)
    };
    let _four = [open()?, open()?, open()?, open()?];
    ensure!(open().is_err(), "a fifth flow of four");
    Ok(())
}

/// Rights that are withdrawn end what was begun with them: TCP is reset, and UDP is not heard from the other side either.
#[test]
fn a_reload_ends_what_is_not_permitted_any_more() {
    on_site("withdrawn rights", SiteConfig::new(BENTPIPE), |site| {
        let web = Place::from(site.topology.web());
        let kept = Service::start(&web, SocketAddr::new(host(1).into(), 0), echo)?;
        let lost = Service::start(&web, echo_address(), echo)?;
        let mut flows = [
            connect(site, kept.address, RTT)?,
            connect(site, lost.address, RTT)?,
        ];
        flows.iter_mut().try_for_each(exchange)?;
        // Somebody outside who goes on talking once he was spoken to.
        let talker = web.at(|| UdpSocket::bind((WEB, 0)))??;
        let user = Place::from(site.topology.user()).at(|| UdpSocket::bind("0.0.0.0:0"))??;
        user.set_read_timeout(Some(SOON))?;
        user.send_to(b"hello", talker.local_addr()?)?;
        let (_, from) = talker.recv_from(&mut [0; 16])?;
        let talks = talker.try_clone()?;
        thread::spawn(move || {
            for _ in 0..600 {
                let _ = talks.send_to(b"and another thing", from);
                thread::sleep(Duration::from_millis(50));
            }
        });
        user.recv(&mut [0; 32])?;

        edit(
            &site.server_file(),
            "allow = [\"10.30.0.0/24\"",
            &format!("allow = [\"{}\"", host(1)),
        )?;
        reload(site, "reloaded: +0 -0 ~1 clients")?;
        let [mut kept, mut lost] = flows;
        lost.set_read_timeout(Some(RTT + SLACK))?;
        read_to_reset(&mut lost)?;
        exchange(&mut kept)?;
        // What is on its way still comes.
        thread::sleep(2 * RTT);
        user.set_nonblocking(true)?;
        while user.recv(&mut [0; 32]).is_ok() {}
        thread::sleep(2 * RTT);
        ensure!(user.recv(&mut [0; 32]).is_err(), "UDP is still heard");
        Ok(())
    });
}
