//! `bentpipe emulate --uplink`: a namespace plays the machine, another the network that it is on, a third what else it has. Needs root.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_testbed::failing::FailingTool;
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;

use crate::BENTPIPE;
use crate::emulate::{Emulator, ping};

const MACHINE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(10);

/// A machine with two interfaces, and who is behind each.
struct Neighbours {
    machine: NetNsGuard,
    outside: NetNsGuard,
    beside: NetNsGuard,
}

fn ip(namespace: &NetNs, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    namespace.run("ip", &words).expect("ip works");
}

impl Neighbours {
    fn new() -> Self {
        let [machine, outside, beside] = ["machine", "outside", "beside"].map(namespace);
        for (own, other, network) in [("out0", &outside, "203.0.113"), ("in0", &beside, "192.0.2")]
        {
            let peer = other.name();
            ip(
                &machine,
                &format!("link add {own} type veth peer name eth0 netns {peer}"),
            );
            ip(&machine, &format!("addr add {network}.1/24 dev {own}"));
            ip(&machine, &format!("link set {own} up"));
            ip(other, &format!("addr add {network}.2/24 dev eth0"));
            ip(other, "link set eth0 up");
            ip(other, &format!("route add default via {network}.1"));
        }
        ip(&machine, "route add default via 203.0.113.2");
        Self {
            machine,
            outside,
            beside,
        }
    }

    fn emulate(&self, prefix: &str) -> Emulator {
        let program = self.machine.command(BENTPIPE);
        Emulator::start_by(program, &["leo", "--prefix", prefix, "--uplink", "out0"])
    }

    fn refused(&self, interface: &str) -> String {
        let mut program = self.machine.command(BENTPIPE);
        let Output { status, stderr, .. } = program
            .args(["emulate", "leo", "--uplink", interface])
            .output()
            .expect("bentpipe runs");
        assert!(!status.success());
        String::from_utf8_lossy(&stderr).into_owned()
    }

    fn forwards(&self) -> bool {
        let file = "/proc/sys/net/ipv4/conf/out0/forwarding";
        let read = || std::fs::read_to_string(file).expect("the setting");
        self.machine.enter(read).expect("inside").trim() == "1"
    }

    fn has_rules(&self) -> bool {
        let listed = self
            .machine
            .run("nft", &["list", "tables"])
            .expect("nft works");
        listed.contains("bentpipe_uplink")
    }

    fn has_device(&self) -> bool {
        self.machine
            .run("ip", &["link", "show", "dev", "bp-uplink"])
            .is_ok()
    }

    fn expect_nothing(&self) {
        assert!(!self.has_device() && !self.has_rules() && !self.forwards());
    }
}

/// Listens in `namespace` and says who has come: one host, to whom it sends two bytes.
fn listen(namespace: &NetNs, address: Ipv4Addr) -> thread::JoinHandle<SocketAddr> {
    let bind = || TcpListener::bind((address, PORT));
    let listener = namespace.enter(bind).expect("inside").expect("a listener");
    thread::spawn(move || {
        use std::io::Write as _;
        let (mut socket, from) = listener.accept().expect("somebody");
        socket.write_all(b"hi").expect("it is sent");
        from
    })
}

fn reach(namespace: &NetNs, address: Ipv4Addr) -> std::io::Result<String> {
    let connect = || TcpStream::connect_timeout(&(address, PORT).into(), PATIENCE);
    let mut socket = namespace.enter(connect).expect("inside")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text)
}

fn answers(from: &NetNs, to: &str) -> bool {
    from.run("ping", &["-c", "1", "-W", "1", to]).is_ok()
}

/// Removes the namespaces of an emulation that was killed.
fn remove(prefix: &str) {
    for role in ["user", "terminal", "gateway", "web"] {
        NetNs::delete(&format!("{prefix}-{role}")).expect("it was left");
    }
}

#[test]
fn the_lan_reaches_the_real_network_and_nobody_comes_in() {
    if !privileged("uplink") {
        return;
    }
    let around = Neighbours::new();
    let (machine, outside) = (&around.machine, &around.outside);
    assert!(
        around
            .refused("out1")
            .contains("no interface `out1`; `ip link` lists them")
    );
    around.expect_nothing();
    // The network that it is on has addresses that the emulated web has.
    ip(machine, "route add 10.30.0.0/25 via 203.0.113.2");
    let prefix = format!("bp-up-{}", std::process::id());
    let emulator = around.emulate(&prefix);
    let user = NetNs::open(&format!("{prefix}-user")).expect("it exists");

    let least = ping(user.name(), &OUTSIDE.to_string());
    assert!((50.0..90.0).contains(&least), "{least} ms");
    let server = listen(outside, OUTSIDE);
    assert_eq!(reach(&user, OUTSIDE).expect("an answer"), "hi");
    assert_eq!(server.join().expect("no panic").ip(), MACHINE);
    assert!(
        answers(&user, "10.30.0.2"),
        "the emulated web is still there"
    );

    // The machine itself is not offered to the LAN, nor is what else it knows.
    let _own = machine.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)));
    assert!(reach(&user, MACHINE).is_err());
    assert!(!answers(&user, "192.0.2.2"));
    // And nobody comes in.
    assert!(answers(outside, &MACHINE.to_string()));
    for inner in ["198.18.255.254", "10.10.0.2", "10.20.0.1", "192.0.2.2"] {
        assert!(!answers(outside, inner), "{inner}");
    }
    assert!(!answers(&around.beside, "198.18.255.254"));

    let second = around.refused("out0");
    assert!(
        second.contains("another `bentpipe emulate --uplink`, process "),
        "{second}"
    );
    machine
        .run("nft", &["flush", "ruleset"])
        .expect("nft works");
    let start = Instant::now();
    while !around.has_rules() {
        assert!(start.elapsed() < PATIENCE, "the rules do not come back");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(answers(&user, &OUTSIDE.to_string()));
    let (_, said) = emulator.stop();
    for line in [
        "10.30.0.0/24 of the emulation and 10.30.0.0/25 of this machine collide",
        "the uplink's rules were changed by \"nft\"",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    around.expect_nothing();
}

#[test]
fn what_a_killed_emulation_leaves_is_removed_by_the_next() {
    if !privileged("uplink") {
        return;
    }
    let around = Neighbours::new();
    let prefix = |number: u8| format!("bp-upk{number}-{}", std::process::id());
    around.emulate(&prefix(1)).kill();
    assert!(around.has_device() && around.has_rules() && around.forwards());
    // Its rules still hold.
    assert!(!answers(&around.outside, "192.0.2.2"));
    let second = around.emulate(&prefix(2));
    let user = format!("{}-user", prefix(2));
    assert!(ping(&user, &OUTSIDE.to_string()) >= 50.0);
    second.stop();
    around.expect_nothing();
    remove(&prefix(1));
    // The device goes with the gateway's namespace; the machine still knows that it did not forward.
    around.emulate(&prefix(3)).kill();
    remove(&prefix(3));
    let start = Instant::now();
    while around.has_device() && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!around.has_device() && around.has_rules() && around.forwards());
    around.emulate(&prefix(4)).stop();
    around.expect_nothing();
}

/// Rules that cannot be put back close the way, until they can.
#[test]
fn without_rules_nothing_crosses_the_uplink() {
    if !privileged("uplink") {
        return;
    }
    let around = Neighbours::new();
    let tools = tempfile::tempdir().expect("a directory");
    let nft = FailingTool::new(tools.path(), "nft").expect("a tool");
    let mut program = around.machine.command(BENTPIPE);
    nft.put_first(&mut program).expect("a path");
    let prefix = format!("bp-upb-{}", std::process::id());
    let emulator = Emulator::start_by(program, &["leo", "--prefix", &prefix, "--uplink", "out0"]);
    let user = NetNs::open(&format!("{prefix}-user")).expect("it exists");
    assert!(answers(&user, &OUTSIDE.to_string()));

    nft.fail().expect("a file");
    let flush = ["flush", "ruleset"];
    around.machine.run("nft", &flush).expect("nft works");
    let start = Instant::now();
    while around.forwards() {
        assert!(start.elapsed() < PATIENCE, "it goes on forwarding");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!answers(&user, "192.0.2.2"), "what no rule let pass");
    ip(
        &around.outside,
        "route add 198.18.255.252/30 via 203.0.113.1",
    );
    assert!(!answers(&around.outside, "198.18.255.254"));
    assert!(!answers(&around.outside, "192.0.2.2"));

    nft.work().expect("it is there");
    let start = Instant::now();
    while !answers(&user, &OUTSIDE.to_string()) {
        assert!(start.elapsed() < PATIENCE, "it does not come back");
    }
    let (_, said) = emulator.stop();
    for line in [
        "rules cannot be put back",
        "Cannot allocate memory",
        "; nothing crosses it meanwhile; trying on",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    around.expect_nothing();
}
