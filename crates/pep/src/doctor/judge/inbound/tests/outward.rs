//! What a daemon sends, and chains that let it not leave.

use bentpipe_sys::nftables::OUTPUT;

use super::*;

/// Findings about what is sent to 192.0.2.1 where the chain `output` has this `policy` and these `rules`.
fn found(policy: &str, rules: &str, reached: HandshakeResult) -> Vec<Finding> {
    let (mut base, listing) = chain(policy, rules);
    (base.name, base.hook) = ("output".into(), OUTPUT);
    let listing = listing.replace("input", "output");
    let mut client = client(reached);
    client.servers[0].tls = vec!["192.0.2.1:443".parse().unwrap()];
    let mut facts = healthy();
    facts.subjects = vec![subject(SideFacts::Client(client))];
    facts.network.outward_chains = Some(Ok(vec![(base, listing)]));
    let found = judge(&facts).into_iter();
    let about = |one: &Finding| one.text.contains("of this machine drops");
    found.filter(about).collect()
}

fn unsent() -> HandshakeResult {
    HandshakeResult::Unsent("what is sent does not leave this machine".into())
}

#[test]
fn a_chain_that_drops_what_is_sent_to_the_server_is_named_with_the_rule() {
    let of = |policy, rules| found(policy, rules, unsent());
    for rules in [
        "udp dport 4433 counter packets 7 bytes 8 drop",
        "ip daddr 192.0.2.0/24 udp dport 4000-5000 reject",
        "oifname \"eth0\" meta l4proto udp drop",
        "fib daddr type local accept\nct state established accept\nudp dport 4433 drop",
        "iifname \"lo\" accept\nudp dport @open drop",
    ] {
        let found = of("accept", rules);
        assert_eq!(levels(&found), [Level::Fail], "{rules}: {found:#?}");
        let line = found[0].to_string();
        for words in [
            "`inet filter output` of this machine drops UDP to 192.0.2.1:4433 by",
            "`nft insert rule inet filter output ip daddr 192.0.2.1 udp dport 4433 accept`",
        ] {
            assert!(line.contains(words), "{line}");
        }
    }
    let by_rule = &of("accept", "udp dport 4433 counter packets 7 bytes 8 drop")[0];
    assert!(
        by_rule.text.ends_with("by `udp dport 4433 drop`"),
        "{by_rule}"
    );
    for rules in [
        "",
        "oifname \"lan0\" drop",
        "ip daddr 198.51.100.0/24 drop",
        "iifname \"eth0\" drop",
        "udp dport { 53, 4433 } accept\ntcp dport 443 accept\ndrop",
        "udp sport 4433 drop\ntcp dport 4433 drop",
    ] {
        let found = of("accept", rules);
        assert!(found.is_empty(), "{rules}: {found:#?}");
    }
}

#[test]
fn the_way_over_tls_is_looked_at_as_well() {
    let found_of = |reached| found("drop", "udp dport 4433 accept", reached);
    let found = found_of(HandshakeResult::Silent(std::time::Duration::from_secs(8)));
    assert_eq!(levels(&found), [Level::Fail], "{found:#?}");
    assert!(
        found[0]
            .text
            .contains("drops TCP to 192.0.2.1:443 by `the policy`")
    );
    let up = found_of(HandshakeResult::TunnelUp("up".into()));
    assert!(up.is_empty(), "{up:#?}");
}

/// Rules by user or by what else a packet does not show hang on what is not known here.
#[test]
fn what_cannot_be_told_is_named_where_nothing_leaves() {
    let rules = "meta skuid 999 accept\ntcp dport 443 accept";
    let warned = found("drop", rules, unsent());
    assert_eq!(levels(&warned), [Level::Warn], "{warned:#?}");
    let silent = HandshakeResult::Silent(std::time::Duration::from_secs(8));
    assert!(found("drop", rules, silent).is_empty());
}
