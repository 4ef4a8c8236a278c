//! Rules, routes, devices and interfaces that others take away: what is back, how soon, and what leaves meanwhile.

use super::*;

/// How soon what was taken away is back: the client needs some tens of milliseconds, a busy machine more.
const BACK: Duration = Duration::from_secs(5);

/// What other programs take away, each as a shell line at the terminal, and a line that prints something once it is back.
const THEFTS: [(&str, &str, &str); 10] = [
    (
        "the rule set is flushed",
        "nft flush ruleset",
        "nft list chain inet bentpipe_client from_lan",
    ),
    (
        "the table's rules are flushed",
        "nft flush table inet bentpipe_client",
        "nft list chain inet bentpipe_client from_lan | grep goto",
    ),
    (
        "a set's elements are flushed",
        "nft flush set inet bentpipe_client exempt4",
        "nft list set inet bentpipe_client exempt4 | grep elements",
    ),
    (
        "routing rules are flushed",
        "ip rule flush; ip rule add lookup main pref 32766; ip -6 rule flush; ip -6 rule add lookup main pref 32766",
        "test $(ip rule | grep -c '^\\(99\\|100\\):')$(ip -6 rule | grep -c '^\\(99\\|100\\):') = 55 && echo back",
    ),
    (
        "routes are flushed",
        "ip route flush table 25200; ip route flush table 25201; ip -6 route flush table 25201",
        "ip route show table 25200 | grep local && ip route show table 25201 | grep blackhole \
         && ip -6 route show table 25201 | grep 'dev bentpipe0'",
    ),
    ("the device is deleted", "ip link del bentpipe0", DEVICE),
    (
        "the device is set down and up",
        "ip link set bentpipe0 down; sleep 0.2; ip link set bentpipe0 up",
        DEVICE,
    ),
    (
        "the device is renamed",
        "ip link set bentpipe0 down; ip link set bentpipe0 name other0; ip link set other0 up",
        DEVICE,
    ),
    (
        "the device has another MTU",
        "ip link set bentpipe0 mtu 1300",
        "ip link show bentpipe0 | grep 'mtu 1500'",
    ),
    (
        "forwarding is switched off",
        "echo 0 >/proc/sys/net/ipv4/conf/lan0/forwarding; echo 0 >/proc/sys/net/ipv4/conf/bentpipe0/forwarding",
        "grep 1 /proc/sys/net/ipv4/conf/lan0/forwarding && grep 1 /proc/sys/net/ipv4/conf/bentpipe0/forwarding",
    ),
];

/// A prefix that comes to the LAN, and what shows that the rules have followed.
const ANOTHER_PREFIX: (&str, &str, &str) = (
    "the LAN has another prefix",
    "ip addr add 10.77.0.1/24 dev lan0",
    "nft list set inet bentpipe_client exempt4 | grep 10.77.0.0/24",
);

/// The device is up and has addresses and routes of both families.
const DEVICE: &str = "ip -4 -o addr show dev bentpipe0 | grep 100.96 && ip -6 -o addr show dev bentpipe0 | grep fd \
                      && ip route show table 25201 | grep bentpipe0 && ip -6 route show table 25201 | grep bentpipe0";

#[test]
fn what_others_take_away_comes_back_and_meanwhile_nothing_leaves() {
    if !privileged("fail closed: thefts") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = steal(&site);
    expect_ok(result, &site);
}

fn steal(site: &Site) -> Result<()> {
    let terminal = site.topology.terminal();
    let shell = |line: &str| terminal.run("sh", &["-c", line]);
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let change = |(what, line, sign): (&str, &str, &str)| -> Result<()> {
        let changed = Instant::now();
        shell(line).with_context(|| what.to_owned())?;
        await_sign(site, sign).with_context(|| what.to_owned())?;
        println!("{what}: back after {} ms", changed.elapsed().as_millis());
        Ok(())
    };
    for (what, theft, sign) in THEFTS {
        await_sign(site, sign).with_context(|| format!("before {what}"))?;
        change((what, theft, sign))?;
    }
    change(ANOTHER_PREFIX)?;
    expect_echo(&site.routes())?;
    let status = site.client_report()?;
    for part in ["table inet bentpipe_client", "device bentpipe0"] {
        let repairs = status["kernel"].as_array().into_iter().flatten();
        let mut repairs = repairs.filter(|repair| repair["part"] == part);
        let number = repairs
            .next()
            .and_then(|repair| repair["repairs_total"].as_u64());
        ensure!(number >= Some(2), "{part} in {status:#}");
    }
    let log = site.client().stderr_text();
    ensure!(
        log.contains("table inet bentpipe_client is gone and was put back; \"nft\""),
        "{log}"
    );
    drop(prober);
    expect_tunnel_alone(capture)
}

fn await_sign(site: &Site, sign: &str) -> Result<()> {
    let deadline = Instant::now() + BACK;
    let terminal = site.topology.terminal();
    while terminal
        .run("sh", &["-c", sign])
        .map_or(true, |text| text.is_empty())
    {
        ensure!(Instant::now() < deadline, "not seen: {sign}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// An intercepted interface that is gone makes the client unhealthy until it is back.
#[test]
fn a_missing_interface_is_no_health() {
    if !privileged("fail closed: health") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let socket = site.client_home().join("client.sock");
    let check = || {
        let mut command = std::process::Command::new(BENTPIPE);
        command.args(["status", "--check", "--socket"]).arg(&socket);
        let output = command.output().expect("bentpipe runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    };
    let terminal = site.topology.terminal();
    let rename = |from: &str, to: &str| {
        for action in [&["down"][..], &["name", to]] {
            let line = [&["link", "set", from], action].concat();
            terminal.run("ip", &line).expect("a link");
        }
        terminal
            .run("ip", &["link", "set", to, "up"])
            .expect("a link");
    };
    let expect = |healthy: bool, text: &str| {
        let deadline = Instant::now() + BACK;
        loop {
            let (ok, said) = check();
            if ok == healthy && said.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "{said}\n{}", site.logs());
            thread::sleep(Duration::from_millis(100));
        }
    };
    expect(true, "");
    rename("lan0", "lan9");
    expect(false, "intercepted interface lan0");
    rename("lan9", "lan0");
    expect(true, "");
}

/// One of several interfaces does not exist: the others are taken in at once, and it is when it comes.
#[test]
fn a_missing_interface_keeps_no_other_without_the_client() {
    if !privileged("fail closed: a missing interface") {
        return;
    }
    let site = Site::start(SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"lan0\", \"usb0\"]\n".into(),
        ..SiteConfig::new(BENTPIPE)
    });
    let site = site.expect("a site");
    let result = plug_in(&site);
    expect_ok(result, &site);
}

fn plug_in(site: &Site) -> Result<()> {
    let log = |line: &str| site.client().wait_for_line(line, BACK).map(drop);
    log(
        "intercepted interface usb0 is not there and cannot be put back: no interface has this name",
    )?;
    let log_text = site.client().stderr_text();
    let line = log_text.lines().find(|line| line.contains("usb0"));
    ensure!(line.is_some_and(|line| line.contains("WARN")), "{log_text}");
    let socket = site.client_home().join("client.sock");
    let status = || -> Result<String> {
        let mut command = std::process::Command::new(BENTPIPE);
        let output = command
            .args(["status", "--check", "--socket"])
            .arg(&socket)
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let await_fault = |there: bool| -> Result<()> {
        let deadline = Instant::now() + BACK;
        while status()?.contains("intercepted interface usb0") != there {
            ensure!(Instant::now() < deadline, "{}", status()?);
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    await_fault(true)?;
    expect_echo(&site.routes())?;
    let capture = site.watch()?;
    let terminal = site.topology.terminal();
    terminal.run(
        "ip",
        &[
            "link", "add", "usb0", "type", "veth", "peer", "name", "far0",
        ],
    )?;
    log("intercepted interface usb0 is there now")?;
    await_fault(false)?;
    terminal.run("ip", &["link", "del", "usb0"])?;
    await_fault(true)?;
    expect_echo(&site.routes())?;
    expect_tunnel_alone(capture)
}

/// The guard's table is flushed while no client runs: its routing rules keep the LAN in.
#[test]
fn a_guard_that_was_flushed_still_guards_the_lan() {
    if !privileged("fail closed: a flushed guard") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = flush_the_guard(&mut site);
    expect_ok(result, &site);
}

fn flush_the_guard(site: &mut Site) -> Result<()> {
    let file = site.client_home().join("client.toml");
    let guard = |site: &Site, arguments: &[&str]| -> Result<()> {
        let mut command = site.topology.terminal().command(BENTPIPE);
        let done = command.arg("guard").args(arguments).status()?;
        ensure!(done.success(), "guard {arguments:?}: {done}");
        Ok(())
    };
    let config = file.to_str().context("a path")?;
    guard(site, &["on", "--config", config])?;
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let terminal = site.topology.terminal();
    terminal.run("nft", &["flush", "ruleset"])?;
    thread::sleep(Duration::from_secs(1));
    // A client that comes later puts it back.
    site.start_server()?;
    site.start_client()?;
    await_sign(site, "nft list table inet bentpipe_guard")?;
    expect_echo(&site.routes())?;
    site.stop_client()?;
    site.stop_server()?;
    thread::sleep(Duration::from_secs(1));
    expect_tunnel_alone(capture)?;
    // And what holds it back is the guard.
    guard(site, &["off"])?;
    let capture = site.watch()?;
    thread::sleep(Duration::from_secs(1));
    drop(prober);
    let crossed = capture.stop()?;
    let leaked = crossed.expect_only_tunnel().is_err();
    ensure!(leaked, "nothing keeps the traffic in: {crossed}");
    Ok(())
}
