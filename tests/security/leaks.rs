//! Nothing crosses the link in clear, whatever happens: the quick form of `make leak-test`, which also has to see a leak
//! where there is one. Needs root.

use std::process::{Command, Output};

use bentpipe_testbed::{installed, privileged};

use crate::BENTPIPE;

fn leaks(contender: &str) -> (String, Output) {
    let output = Command::new(BENTPIPE)
        .args(["lab", "leaks", contender, "--quick"])
        .output()
        .expect("bentpipe runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

/// Packets of the tunnel, in clear, and with readable content, for each state.
fn rows(table: &str) -> Vec<(&str, [u64; 3])> {
    table
        .lines()
        .skip(1)
        .map(|line| {
            let (state, figures) = line.split_at(34);
            let mut figures = figures.split_whitespace().map(|word| word.parse::<u64>());
            let mut figure = || figures.next().expect("a figure").expect("a number");
            (state.trim(), [figure(), figure(), figure()])
        })
        .collect()
}

/// Tries a contender that may let nothing out.
fn expect_none(contender: &str) {
    if !privileged(&format!("leaks: {contender}")) {
        return;
    }
    let (table, output) = leaks(contender);
    println!("{table}");
    assert!(output.status.success(), "{table}\n{output:?}");
    let rows = rows(&table);
    assert_eq!(rows.len(), 22, "{table}");
    let silent = |[_, clear, readable]: [u64; 3]| clear == 0 && readable == 0;
    assert!(rows.iter().all(|(_, row)| silent(*row)), "{table}");
    // And the tunnel carries where it runs: while it does, and started again after either end was killed.
    for row in [2, 6, 10, 12, 14] {
        assert!(rows[row].1[0] > 20, "{table}");
    }
}

#[test]
fn bentpipe_lets_nothing_out_in_any_state() {
    expect_none("bentpipe");
}

#[test]
fn a_tunnel_over_tls_lets_nothing_out_in_any_state() {
    expect_none("bentpipe-tls");
}

#[test]
fn sealed_flows_let_nothing_out_in_any_state() {
    expect_none("bentpipe-sle");
}

#[test]
fn packets_in_two_zones_let_nothing_out_in_any_state() {
    expect_none("bentpipe-les");
}

/// A VPN without rules of its operator's leaks before it starts and when it dies; a suite that does not see that sees nothing.
#[test]
fn a_leak_is_seen() {
    if !privileged("leaks: a leak") || !installed("leaks: a leak", "openvpn") {
        return;
    }
    let (table, output) = leaks("openvpn-udp");
    println!("{table}");
    assert_eq!(output.status.code(), Some(1), "{table}\n{output:?}");
    let rows = rows(&table);
    assert!(rows[0].1[1] > 100 && rows[11].1[1] > 100, "{table}");
    let kinds = [
        "TCP",
        "UDP",
        "DNS",
        "ICMP",
        "fragment",
        "IPv6 TCP",
        "IPv6 UDP",
        "IPv6 ICMP",
        "IPv6 fragment",
        "protocol 47",
        "protocol 132",
        "protocol 253",
        "UDP multicast",
        "IPv6 UDP multicast",
    ];
    let first = table.lines().nth(1).expect("a row");
    for kind in kinds {
        assert!(first.contains(&format!(" {kind} ")), "no {kind}: {table}");
    }
}
