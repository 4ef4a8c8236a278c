//! Answers that do not come in, and chains that nobody would follow to their ends.

use super::*;

/// As chains would have to be to keep who follows them busy for years.
#[test]
fn chains_that_branch_at_every_level_are_given_up() {
    let (base, _) = chain("drop", "");
    let level = |level: u32| {
        let jump = format!("\t\tjump level{}\n", level + 1);
        format!("\tchain level{level} {{\n{}\t}}\n\n", jump.repeat(10))
    };
    let levels: String = (1..15).map(level).collect();
    let listing = format!(
        "table inet filter {{\n{levels}\tchain level15 {{\n\t}}\n\n\tchain input {{\n\t\tjump level1\n\t}}\n}}\n"
    );
    let packet = FilteredPacket {
        protocol: ListenProtocol::Udp,
        to: [192, 0, 2, 1].into(),
        port: Some(4433),
        answer_from: None,
        device: None,
        mark: Some(0),
        may_be_translated: false,
        leaves: false,
    };
    let fate = fate::at(&base, &TableListing::read(&listing), &packet);
    assert!(matches!(fate, Fate::Unclear(_)), "{fate:?}");
}

#[test]
fn a_chain_that_drops_answers_is_named_where_nothing_comes_back() {
    let found = |policy: &str, rules: &str, reached: HandshakeResult| {
        let mut facts = healthy();
        facts.subjects = vec![subject(SideFacts::Client(client(reached)))];
        facts.network.inward_chains = Some(Ok(vec![chain(policy, rules)]));
        let all = judge(&facts).into_iter();
        let drops = all.filter(|one| one.text.contains("drops the answers of 192.0.2.1:4433"));
        drops.count()
    };
    let silent = || HandshakeResult::Silent(std::time::Duration::from_secs(8));
    assert_eq!(
        found(
            "drop",
            "tcp dport 22 accept\nct state new udp sport 4433 accept",
            silent()
        ),
        1
    );
    for accepted in [
        "ct state established,related accept",
        "ct state vmap { established : accept }",
        "udp sport 4433 accept",
    ] {
        assert_eq!(found("drop", accepted, silent()), 0, "{accepted}");
    }
    assert_eq!(found("accept", "", silent()), 0);
    let up = HandshakeResult::TunnelUp("up".into());
    assert_eq!(found("drop", "", up), 0);
}
