//! `bentpipe doctor` over two PEPs of an operator, in two network namespaces that an Ethernet joins.
//!
//! ```text
//!  lan0 ─ terminal: near 192.0.2.2 ══ veth ══ far 192.0.2.1 :gateway ─ lan0
//! ```

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::{keys, privileged};
use tempfile::TempDir;

use super::config_errors::home::PATIENCE;
use super::doctor::Examined;
use crate::BENTPIPE;

/// Both PEPs; the one at the gateway may run.
struct Peps {
    // The daemon ends before its namespace does.
    gateway_pep: Option<Child>,
    directory: TempDir,
    terminal: NetNsGuard,
    gateway: NetNsGuard,
}

fn shell(place: &NetNs, words: &str) -> String {
    place.run("sh", &["-ec", words]).expect("a shell")
}

impl Peps {
    fn new() -> Self {
        let (terminal, gateway) = (namespace("pt"), namespace("pg"));
        shell(
            &terminal,
            &format!(
                "ip link add near type veth peer name far netns {}",
                gateway.name()
            ),
        );
        let directory = tempfile::tempdir().expect("a directory");
        for (place, device, own, other) in [(&terminal, "near", 2, 1), (&gateway, "far", 1, 2)] {
            shell(
                place,
                &format!(
                    "ip link set lo up; ip addr add 192.0.2.{own}/24 dev {device}; ip link set {device} up\n\
                     ip route add default via 192.0.2.{other}; ip link add lan0 type veth peer name host0; ip link set lan0 up; ip link set host0 up\n\
                     ip addr add fd00:{own}::1/64 dev lan0; ip addr add fd00::{own}/64 dev {device}\n\
                     cd /proc/sys/net; echo 1 > ipv4/conf/all/forwarding; echo 1 > ipv6/conf/all/forwarding"
                ),
            );
        }
        let [near, far] = ["near", "far"].map(|name| {
            let key = directory.path().join(format!("{name}.key"));
            keys::generate(BENTPIPE, &key).expect("a key")
        });
        for (name, more, peer) in [
            (
                "far",
                "listen = \"192.0.2.1:4434\"\n",
                format!("public_key = \"{near}\"\n"),
            ),
            (
                "near",
                "",
                format!("address = \"192.0.2.1:4434\"\npublic_key = \"{far}\"\n"),
            ),
        ] {
            let text = format!(
                "private_key_file = \"{name}.key\"\nstate_dir = \"{name}-state\"\nstatus_socket = \"{name}.sock\"\n\
                 lan = [\"lan0\"]\nwan = [\"{name}\"]\n{more}[peer]\n{peer}[clear]\n"
            );
            fs::write(directory.path().join(format!("{name}.toml")), text).expect("a file");
        }
        Self {
            gateway_pep: None,
            directory,
            terminal,
            gateway,
        }
    }

    fn start_gateway(&mut self) {
        let mut command = self.gateway.command(BENTPIPE);
        command.args(["pep", "--config", "far.toml"]);
        command.current_dir(self.directory.path());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        self.gateway_pep = Some(command.spawn().expect("bentpipe starts"));
        let deadline = Instant::now() + 2 * PATIENCE;
        while !self.directory.path().join("far.sock").exists() {
            assert!(Instant::now() < deadline, "the PEP does not start");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn edit(&self, old: &str, new: &str) {
        let file = self.directory.path().join("near.toml");
        let text = fs::read_to_string(&file).expect("a file");
        assert!(text.contains(old), "{text}");
        fs::write(file, text.replace(old, new)).expect("it is ours");
    }

    fn examine(&self, name: &str) -> Examined {
        let place = match name {
            "near" => &self.terminal,
            _ => &self.gateway,
        };
        let mut command = place.command(BENTPIPE);
        command.args(["doctor", "--config", &format!("{name}.toml")]);
        let output = command.current_dir(self.directory.path()).output();
        let output = output.expect("bentpipe runs");
        Examined {
            code: output.status.code(),
            text: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Drop for Peps {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.gateway_pep {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn what_a_pep_needs_is_there_before_and_while_the_other_one_runs() {
    if !privileged("doctor of PEPs") {
        return;
    }
    let mut peps = Peps::new();
    let alone = peps.examine("near");
    alone.must_fail_only(&["peer"]);
    let port = ["no program listens at that UDP port", "start the other PEP"];
    alone.must_say("fail", "peer", &port);
    alone.must_say("ok", "nftables", &["takes the PEP's table"]);
    alone.must_say("ok", "interfaces", &["`lan` and `wan`"]);
    alone.must_say("ok", "sysctl", &["forwards between `lan` and `wan`"]);
    peps.examine("far")
        .must_say("ok", "listen", &["192.0.2.1:4434", "can be bound"]);
    peps.start_gateway();
    let known = ["192.0.2.1:4434 answers and knows this PEP's key, RTT "];
    let both = peps.examine("near");
    both.must_fail_only(&[]);
    both.must_say("ok", "peer", &known);
    let far = peps.examine("far");
    far.must_fail_only(&["daemon"]);
    far.must_say("ok", "listen", &["the running"]);
}

#[test]
fn what_is_in_a_peps_way_is_named_with_its_mend() {
    if !privileged("doctor of PEPs") {
        return;
    }
    let mut peps = Peps::new();
    peps.start_gateway();
    let near = || peps.examine("near");
    shell(
        &peps.terminal,
        "nft 'add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'",
    );
    let mend = "nft 'insert rule ip filter FORWARD iifname \"bentpipe-*\" accept'";
    near().must_say("fail", "firewall", &["chain `ip filter FORWARD`", mend]);
    for direction in ["iifname", "oifname"] {
        let rule = mend.replace("iifname", direction);
        shell(&peps.terminal, &rule);
    }
    near().must_fail_only(&[]);

    shell(
        &peps.terminal,
        "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding",
    );
    near().must_say(
        "fail",
        "sysctl",
        &[
            "not forward IPv6",
            "sysctl -w net.ipv6.conf.all.forwarding=1",
        ],
    );
    shell(
        &peps.terminal,
        "echo 0 > /proc/sys/net/ipv4/conf/near/forwarding",
    );
    near().must_say(
        "fail",
        "sysctl",
        &["comes in by near,", "sysctl -w net.ipv4.ip_forward=1"],
    );
    shell(
        &peps.terminal,
        "cd /proc/sys/net; echo 1 > ipv4/conf/near/forwarding; echo 1 > ipv6/conf/all/forwarding",
    );
    near().must_fail_only(&[]);

    let drop = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c udp dport 4434 drop'";
    shell(&peps.gateway, drop);
    near().must_say(
        "fail",
        "peer",
        &["nothing came back from 192.0.2.1:4434", "the other PEP"],
    );
    shell(&peps.gateway, "nft delete table inet t");

    peps.edit("lan0", "lan7");
    near().must_say(
        "fail",
        "interfaces",
        &["not there: lan7", "`lan` and `wan`"],
    );
    peps.edit("lan7", "lan0");
    // A key that the other PEP does not list.
    fs::remove_file(peps.directory.path().join("near.key")).expect("it is ours");
    let own = keys::generate(BENTPIPE, &peps.directory.path().join("near.key")).expect("a key");
    near().must_say("fail", "peer", &["does not know this PEP's key", &own]);
}
