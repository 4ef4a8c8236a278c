//! Rules that lead what comes to a daemon's port to somebody else.

use bentpipe_sys::nftables::PREROUTING;

use super::*;

/// Findings that are no `ok` where Docker has these `rules` in its chain, as iptables-nft makes it.
fn beside_docker(rules: &str) -> Vec<Finding> {
    let base = BaseChain {
        family: "ip",
        table: "nat".into(),
        name: "PREROUTING".into(),
        hook: PREROUTING,
        drops: false,
    };
    let listing = format!(
        "table ip nat {{\n\
         \tchain DOCKER {{\n\t\tiifname \"docker0\" counter packets 0 bytes 0 return\n\t\t{rules}\n\t}}\n\n\
         \tchain PREROUTING {{\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
         \t\tfib daddr type local counter packets 3 bytes 4 jump DOCKER\n\t}}\n}}\n"
    );
    let found = found(vec![(base, listing)]).into_iter();
    found.filter(|one| one.level != Level::Ok).collect()
}

#[test]
fn a_container_that_publishes_the_servers_port_is_named() {
    let rule =
        "iifname != \"docker0\" udp dport 4433 counter packets 5 bytes 6 dnat to 172.17.0.2:4433";
    let found = beside_docker(rule);
    assert_eq!(levels(&found), [Level::Fail], "{found:#?}");
    let line = found[0].to_string();
    for words in [
        "`ip nat PREROUTING` leads UDP to port 4433 of the server away",
        "by `iifname != \"docker0\" udp dport 4433 dnat to 172.17.0.2:4433`",
        "publish another port of that container",
    ] {
        assert!(line.contains(words), "{line}");
    }
    // As nft lists what it cannot translate, and the port of TLS.
    let rule = "meta l4proto tcp tcp dport 443 counter packets 5 bytes 6 xt target \"DNAT\"";
    let found = beside_docker(rule);
    assert_eq!(levels(&found), [Level::Fail], "{found:#?}");
    assert!(found[0].text.contains("TCP to port 443"), "{found:#?}");
}

#[test]
fn what_is_for_one_address_of_many_is_a_warning() {
    let found = beside_docker("ip daddr 192.0.2.9 udp dport 4433 dnat to 172.17.0.2:4433");
    assert_eq!(levels(&found), [Level::Warn], "{found:#?}");
}

#[test]
fn what_leads_to_the_same_port_or_is_for_others_is_no_fault() {
    for rule in [
        "",
        "iifname != \"docker0\" tcp dport 4433 dnat to 172.17.0.2:80",
        "udp dport 53 dnat to 172.17.0.2:53",
        "udp dport 4433 redirect to :4433",
        "ip daddr 10.96.0.10 dnat to 172.17.0.2",
        "tcp dport 8443 redirect to :443",
    ] {
        let found = beside_docker(rule);
        assert!(found.is_empty(), "{rule}: {found:#?}");
    }
}
