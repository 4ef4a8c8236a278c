//! LES between the hosts, whose headers both PEPs may read: what they relay arrives whole, and they never see what is said.

use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, Process, TERMINAL_LAN, VPN_HOST, WEB};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::keys;
use bentpipe_testbed::memory::{holds, memory};
use bentpipe_testbed::peer::{read_exactly, read_to_reset};
use bentpipe_testbed::site::near;
use bentpipe_testbed::transfer::{Transfer, Way};
use rustix::process::Signal;

use super::site::{Pep, PepSite, SOON};
use super::{LENGTH, reset, whole_or_reset};
use crate::BENTPIPE;
use crate::talk::{half_close, talk};

/// UDP port at which PEPs take keys.
const KEYS: u16 = 4502;

/// Words that no PEP may see.
const CANARY: &[u8] = b"5e1f-in-no-memory-of-a-pep-b04c7a";

/// A site whose hosts speak LES, and their daemons, which end first.
struct LayeredSite {
    client: Process,
    _server: Process,
    site: PepSite,
}

impl LayeredSite {
    fn start() -> Result<Self> {
        let mut site = PepSite::plain(near(), "")?;
        let directory = site.topology.directory().to_owned();
        let [client, server] = ["client", "server"]
            .map(|name| keys::generate(BENTPIPE, &directory.join(format!("{name}.key"))));
        let (client, server) = (client?, server?);
        for pep in Pep::BOTH {
            site.add(pep, &format!("[les]\nclients = [\"{client}\"]\n"))?;
            site.run(pep)?;
        }
        site.until_joined()?;
        let web = site.topology.web();
        let address = format!("addr replace {VPN_HOST}/32 dev eth0\n");
        site.topology.configure(web, &address)?;
        let [gateway, terminal] = Pep::BOTH.map(|pep| site.key(pep));
        fs::write(
            directory.join("server.toml"),
            format!(
                "private_key_file = \"server.key\"\nstatus_socket = \"server.sock\"\nstate_dir = \"server-state\"\n\
                 listen = \"{VPN_HOST}:4435\"\n\
                 [[client]]\nname = \"user\"\npublic_key = \"{client}\"\nallow = [\"{WEB}\"]\n\
                 [les]\nlisten = \"{VPN_HOST}:4501\"\npeps = [\"{gateway}\", \"{terminal}\"]\n"
            ),
        )?;
        fs::write(
            directory.join("client.toml"),
            format!(
                "private_key_file = \"client.key\"\nstatus_socket = \"client.sock\"\nstate_dir = \"client-state\"\n\
                 [server]\naddress = \"{VPN_HOST}:4435\"\npublic_key = \"{server}\"\n\
                 [intercept]\nlocal = true\n[les]\ndestinations = [\"10.30.0.0/24\"]\n\
                 [[les.pep]]\nname = \"terminal\"\naddress = \"{TERMINAL_LAN}:{KEYS}\"\npublic_key = \"{terminal}\"\n\
                 [[les.pep]]\nname = \"gateway\"\naddress = \"{GATEWAY_SAT}:{KEYS}\"\npublic_key = \"{gateway}\"\n"
            ),
        )?;
        let server = run(&site, site.topology.web(), "server")?;
        let client = run(&site, site.topology.user(), "client")?;
        let own = Self {
            client,
            _server: server,
            site,
        };
        own.until_keyed()?;
        Ok(own)
    }

    /// Waits until both PEPs have keys.
    fn until_keyed(&self) -> Result<()> {
        let deadline = Instant::now() + SOON;
        for pep in Pep::BOTH {
            while self.site.status(pep)?["keys"]["associations"] == 0 {
                ensure!(Instant::now() < deadline, "no key at {pep:?}");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Takes all PEPs from the client's list, and waits until they have no keys of it.
    fn revoke(&self) -> Result<()> {
        let file = self.site.topology.directory().join("client.toml");
        let text = fs::read_to_string(&file)?;
        let (before, _) = text.split_once("[[les.pep]]").expect("it has some");
        fs::write(&file, before)?;
        self.client.signal(Signal::HUP)?;
        let deadline = Instant::now() + SOON;
        for pep in Pep::BOTH {
            while self.site.status(pep)?["keys"]["associations"] != 0 {
                ensure!(Instant::now() < deadline, "{pep:?} keeps its keys");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Number of flows that have been relayed at both.
    fn relayed(&self) -> Result<[u64; 2]> {
        let [one, other] = Pep::BOTH.map(|pep| self.site.figure(pep, "/relayed_total"));
        Ok([one?, other?])
    }
}

fn run(site: &PepSite, place: &NetNs, role: &str) -> Result<Process> {
    let mut command = Command::new(BENTPIPE);
    let file = site.topology.directory().join(format!("{role}.toml"));
    command.args([role, "--config"]).arg(file);
    let process = site.topology.spawn_in(place, command)?;
    process.wait_for_line("ready", SOON)?;
    Ok(process)
}

#[test]
fn peps_relay_what_they_cannot_read() {
    on_layered_site("peps_relay_what_they_cannot_read", |les| {
        let [route, _] = les.site.routes();
        let download = Transfer::start(&route, Way::Download, LENGTH)?;
        download.finish_whole()?;
        Transfer::start(&route, Way::Upload, LENGTH)?.finish_whole()?;
        half_close(&route)?;
        reset(&route)?;
        let mut words = talk(&route)?;
        for _ in 0..64 {
            words.write_all(CANARY)?;
            ensure!(read_exactly(&mut words, CANARY.len())? == CANARY);
        }
        let relayed = les.relayed()?;
        ensure!(relayed == [6; 2], "{relayed:?} flows were relayed");
        for pep in Pep::BOTH {
            let pid = les.site.pid(pep).expect("both run");
            ensure!(!holds(&memory(pid)?, CANARY), "{pep:?} holds what was said");
        }
        // The search finds what is there.
        ensure!(holds(&memory(std::process::id())?, CANARY));
        Ok(())
    });
}

#[test]
fn a_client_that_takes_its_keys_back_is_passed_untouched() {
    on_layered_site(
        "a_client_that_takes_its_keys_back_is_passed_untouched",
        |les| {
            let [route, _] = les.site.routes();
            talk(&route)?;
            ensure!(les.relayed()? == [1; 2]);
            les.revoke()?;
            Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
            ensure!(les.relayed()? == [1; 2], "flows are relayed without keys");
            ensure!(les.site.figure(Pep::Gateway, "/passed_total/no_key")? > 0);
            Ok(())
        },
    );
}

#[test]
fn flows_of_peps_that_are_all_revoked_at_once_are_reset() {
    on_layered_site(
        "flows_of_peps_that_are_all_revoked_at_once_are_reset",
        |les| {
            let [route, _] = les.site.routes();
            let mut idle = talk(&route)?;
            let download = Transfer::start(&route, Way::Download, 10 * LENGTH)?;
            let upload = Transfer::start(&route, Way::Upload, 10 * LENGTH)?;
            download.until(LENGTH / 4, SOON)?;
            upload.until(LENGTH / 4, SOON)?;
            ensure!(les.relayed()? == [3; 2], "they are relayed");
            les.revoke()?;
            let revoked = Instant::now();
            let ends = [
                whole_or_reset("download", download)?,
                whole_or_reset("upload", upload)?,
            ];
            let heard = read_to_reset(&mut idle)?;
            ensure!(heard.is_empty() && ends == [false; 2], "{ends:?}");
            let waited = revoked.elapsed();
            ensure!(waited < SOON, "they stood still for {waited:?}");
            Transfer::start(&route, Way::Download, LENGTH)?.finish_whole()?;
            ensure!(les.relayed()? == [3; 2], "flows are relayed without keys");
            Ok(())
        },
    );
}

/// Runs `case` on a site of LES, and shows the logs if it fails.
fn on_layered_site(name: &str, case: impl FnOnce(&mut LayeredSite) -> Result<()>) {
    if !bentpipe_testbed::privileged(name) {
        return;
    }
    let mut les = LayeredSite::start().expect("a site");
    let result = case(&mut les);
    let logs = || format!("{}\n{}", les.site.logs(), les.client.stderr_text());
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), logs());
}
