//! Files that are experiments, and faults in others.

use std::path::Path;

use super::*;
use crate::experiment::{Claims, PublishedValue, Quantity};

const GOOD: &str = "[experiment]\nname = \"e\"\nquestion = \"?\"\ncontenders = [\"bentpipe\"]\n\
    scenarios = [\"geo\"]\nrepeats = 1\n[task.get]\nkind = \"request\"\ncount = 1\n";

fn read_text(text: &str) -> Result<Experiment, ConfigError> {
    read(&Source::new(Path::new("e.toml"), text), Extent::Full, &[])
}

#[test]
fn faults_name_their_line_and_the_mend() {
    assert!(read_text(GOOD).is_ok());
    for (from, to, line, texts) in [
        (
            "\"bentpipe\"",
            "\"bentpip\"",
            4,
            ["bentpip", "bentpipe-bbr3"],
        ),
        ("\"bentpipe\"", "\"plain/vegas\"", 4, ["vegas", "cubic"]),
        (
            "\"bentpipe\"",
            "\"bentpipe\", \"bentpipe\"",
            4,
            ["bentpipe", "twice"],
        ),
        ("\"geo\"", "\"gio\"", 5, ["gio", "presets"]),
        ("\"geo\"", "\"m1\"", 5, ["m1", "several terminals"]),
        (
            "count = 1",
            "count = 1\n[contender.mine]\nbinary = \"/x\"",
            10,
            ["hysteria2", "gateway"],
        ),
        (
            "count = 1",
            "count = 1\n[contender.wireguard]\nterminal = [\"x\"]",
            10,
            ["wireguard", "another name"],
        ),
        (
            "count = 1",
            "count = 1\n[contender.mine]\nterminal = [\"x\"]\ntunnel = \"sctp/1\"",
            12,
            ["sctp/1", "udp/9000"],
        ),
        (
            "count = 1",
            "count = 1\n[contender.hysteria2-best]\nbinary = \"/x\"",
            10,
            ["`down`", "`up`"],
        ),
        (
            "count = 1",
            "count = 1\n[contender.qpep-best]\nbinary = \"/x\"\nup = \"1 Mbit/s\"",
            10,
            ["`up`", "hysteria2-best"],
        ),
        (
            "repeats = 1",
            "repeats = 1\naxis = \"loss\"",
            7,
            ["axis", "`at`"],
        ),
        ("count = 1", "count = 1\nat = 3", 7, ["`at`", "axis"]),
        ("count = 1", "count = 1\nat = \"3\"", 10, ["at", "3"]),
        (
            "\"geo\"]\nrepeats = 1",
            "\"mine\"]\nrepeats = 1\n[link.mine]\nbase = \"geo\"\nat = 1",
            7,
            ["`at`", "axis"],
        ),
        ("repeats = 1", "repeats = 0", 6, ["repeats", "1 to 1000"]),
        ("count = 1", "count = 0", 7, ["get", "1 to 10000"]),
        ("count = 1", "cuont = 1", 9, ["cuont", "count"]),
        (
            "\"request\"\ncount = 1",
            "\"handshake\"\ncount = 2\nto = \"contender\"",
            7,
            ["`count = 1`", "`repeats`"],
        ),
        (
            "\"request\"\ncount = 1",
            "\"handshake\"\ncount = 2\ntls = \"none\"",
            7,
            ["`get`", "1.2"],
        ),
        (
            "\"request\"\ncount = 1",
            "\"page\"\ncount = 1\nbrowser = \"chromium\"\nat_once = true",
            7,
            ["`at_once`", "scripted"],
        ),
        (
            "\"request\"\ncount = 1",
            "\"page\"\ncount = 4\nservers = 4",
            7,
            ["`servers`", "`objects`"],
        ),
        (
            "\"request\"\ncount = 1",
            "\"page\"\ncount = 5\nobjects = 1\nservers = 5",
            7,
            ["`servers`", "1 to 4"],
        ),
        (
            "\"request\"\ncount = 1",
            "\"page\"\ncount = 5\nobjects = 1\nin_session = 2",
            7,
            ["`count`", "`in_session`"],
        ),
        ("name = \"e\"", "name = \"../e\"", 2, ["name", "letters"]),
        (
            "count = 1",
            "count = 1\n[quick]\ntasks = [\"put\"]",
            11,
            ["put", "get"],
        ),
        (
            "repeats = 1",
            "repeats = 1\npatience = \"25 h\"",
            7,
            ["patience", "24 h"],
        ),
    ] {
        let error = read_text(&GOOD.replace(from, to)).expect_err(to);
        assert_eq!(error.line(), line, "{error}");
        assert!(
            texts.iter().all(|text| error.message().contains(text)),
            "{error}"
        );
    }
}

#[test]
fn published_figures_belong_to_what_is_measured() {
    let figure = "[[published]]\ncontender = \"bentpipe\"\nscenario = \"geo\"\ntask = \"get\"\nseconds = 1.5\nstatistic = \"mean\"\nsource = \"S\"\n";
    let experiment = read_text(&format!("{GOOD}{figure}")).unwrap();
    let found = &experiment.claims.published[0];
    assert_eq!(
        (found.value, &*found.source),
        (PublishedValue::Seconds(1.5), "S")
    );
    let error = read_text(&format!("{GOOD}{}", figure.replace("\"geo\"", "\"leo\"")));
    assert_eq!(error.unwrap_err().line(), 12);
    for (from, to, expected) in [
        ("seconds = 1.5\n", "", "one of `seconds`"),
        (
            "seconds = 1.5",
            "seconds = 1.5\nfailed = \"1 of 5\"",
            "one of `seconds`",
        ),
        ("seconds = 1.5", "failed = \"1 of 5\"", "no `statistic`"),
        ("statistic = \"mean\"\n", "", "`statistic` is missing"),
        ("seconds = 1.5", "failed = \"6 of 5\"", "`2 of 5`"),
    ] {
        let error = read_text(&format!("{GOOD}{}", figure.replace(from, to))).expect_err(to);
        assert!(error.message().contains(expected), "{error}");
    }
    let failed = figure.replace("seconds = 1.5\nstatistic = \"mean\"", "failed = \"2 of 5\"");
    let experiment = read_text(&format!("{GOOD}{failed}")).unwrap();
    assert_eq!(experiment.claims.published[0].text(), "2 of 5 failed");
    let rate = figure.replace("seconds = 1.5", "bytes_per_s = 1000");
    assert!(read_text(&format!("{GOOD}{rate}")).is_ok());
    let handshake = GOOD.replace("\"request\"", "\"handshake\"");
    let error = read_text(&format!("{handshake}{rate}")).unwrap_err();
    assert!(
        error.line() == 7 && error.message().contains("no rate"),
        "{error}"
    );
}

#[test]
fn published_ratios_are_of_two_who_are_measured() {
    let ratio = "[[published_ratio]]\ncontender = \"bentpipe\"\nto = \"plain\"\nscenario = \"geo\"\ntask = \"get\"\n\
        ratio = 0.5\nstatistic = \"median\"\nsource = \"S\"\n";
    let good = GOOD.replace("[\"bentpipe\"]", "[\"bentpipe\", \"plain\"]");
    let experiment = read_text(&format!("{good}{ratio}")).unwrap();
    let found = &experiment.claims.published_ratios[0];
    assert_eq!((found.ratio, &*found.to), (0.5, "plain"));
    let error = read_text(&format!("{GOOD}{ratio}")).unwrap_err();
    assert_eq!(error.line(), 12, "{error}");
    // Nobody can start it yet, and still it may be compared with.
    let named = GOOD.replace("repeats = 1", "repeats = 1\nnot_built = [\"plain\"]");
    let experiment = read_text(&format!("{named}{ratio}")).unwrap();
    assert_eq!(experiment.claims.not_built, ["plain"]);
    let twice = good.replace("repeats = 1", "repeats = 1\nnot_built = [\"plain\"]");
    assert_eq!(read_text(&twice).unwrap_err().line(), 7);
}

#[test]
fn published_orders_name_contenders_once() {
    let order = "[[published_order]]\nscenario = \"geo\"\ntask = \"get\"\n\
        order = [\"bentpipe ~ split\", \"plain\"]\nstatistic = \"mean\"\nsource = \"S\"\n";
    let good = GOOD.replace("[\"bentpipe\"]", "[\"bentpipe\", \"plain\", \"split\"]");
    let experiment = read_text(&format!("{good}{order}")).unwrap();
    let found = &experiment.claims.published_orders[0];
    assert_eq!(found.text(), "bentpipe ~ split < plain");
    for (to, expected) in [("\"plan\"", "no `plan`"), ("\"split\"", "twice")] {
        let error = read_text(&format!("{good}{}", order.replace("\"plain\"", to)));
        let error = error.expect_err(to);
        assert!(
            error.line() == 13 && error.message().contains(expected),
            "{error}"
        );
    }
    let alone = order.replace("\"bentpipe ~ split\", ", "");
    assert!(read_text(&format!("{good}{alone}")).is_err());
}

const SESSION: &str = "[experiment]\nname = \"e\"\nquestion = \"?\"\ncontenders = [\"bentpipe\", \"plain\"]\n\
    scenarios = [\"geo\"]\nrepeats = 1\n[task.talk]\nkind = \"session\"\ncount = 3\n[task.cold]\nkind = \"session\"\n\
    count = 3\ncold = true\n[task.get]\nkind = \"request\"\ncount = 1\n";

/// Checks that `finding` is read, and what is wrong with it where one text stands in another's place.
fn expect_faults(text: &str, finding: &str, faults: &[(&str, &str, &str)]) -> Claims {
    let read = |finding: &str| read_text(&format!("{text}{finding}"));
    for (from, to, expected) in faults {
        assert!(finding.contains(from), "{from}");
        let error = read(&finding.replace(from, to)).expect_err(to);
        assert!(error.message().contains(expected), "{error}");
    }
    read(finding).unwrap().claims
}

#[test]
fn ratios_of_loads_are_means_of_sessions() {
    let ratio = "[[published_ratio]]\ncontender = \"bentpipe\"\nto = \"plain\"\nscenario = \"geo\"\ntask = \"talk\"\n\
        ratio = 1.4\nquantity = \"load\"\nstatistic = \"mean\"\nsource = \"S\"\n";
    let faults = [
        ("\"mean\"", "\"median\"", "a load is a mean"),
        ("\"talk\"", "\"get\"", "`get` is no `session`"),
        ("\"load\"", "\"lode\"", "load"),
    ];
    let claims = expect_faults(SESSION, ratio, &faults);
    assert_eq!(claims.published_ratios[0].quantity, Quantity::Load);
}

#[test]
fn orders_may_be_after_some_transactions_and_at_several_tasks() {
    let order = "[[published_order]]\nscenario = \"geo\"\ntask = \"talk\"\nafter = 1\n\
        order = [\"plain\", \"bentpipe in cold\"]\nstatistic = \"mean\"\nsource = \"S\"\n";
    let faults = [
        ("\"mean\"", "\"median\"", "of their means"),
        ("after = 1", "after = 0", "say 1 or more"),
        ("in cold", "in col", "no `col`"),
        ("bentpipe in", "bentpip in", "no `bentpip`"),
    ];
    let claims = expect_faults(SESSION, order, &faults);
    assert_eq!(claims.published_orders[0].after, Some(1));
    let at = |task| {
        claims
            .contenders("geo", task)
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert_eq!([at("talk"), at("cold")], [["plain"], ["bentpipe"]]);
}

#[test]
fn pairs_and_rises_are_of_two_who_are_measured() {
    let pairs = "[[published_pairs]]\ncontender = \"bentpipe\"\nto = \"plain\"\nscenario = \"geo\"\n\
        tasks = [\"talk\", \"get\"]\nsource = \"S\"\n";
    let faults = [
        ("\"plain\"", "\"plan\"", "no `plan`"),
        ("\"geo\"", "\"leo\"", "no `leo`"),
        ("\"get\"", "\"got\"", "no `got`"),
        ("\"talk\", \"get\"", "", "`tasks` is empty"),
    ];
    let claims = expect_faults(SESSION, pairs, &faults);
    assert_eq!(claims.published_pairs[0].tasks, ["talk", "get"]);
    // They are made of runs that others ask for.
    assert!(claims.contenders("geo", "talk").is_empty());
    let rise = "[[published_rise]]\ncontender = \"bentpipe\"\nto = \"plain\"\ntask = \"get\"\nstatistic = \"mean\"\n\
        source = \"S\"\n";
    let error = read_text(&format!("{SESSION}{rise}")).unwrap_err();
    assert!(error.message().contains("no axis of links"), "{error}");
    let swept = SESSION.replace("repeats = 1", "repeats = 1\naxis = \"x\"");
    let swept = swept.replace("\"geo\"", "\"near\"");
    let swept = swept.replacen("[task", "[link.near]\nbase = \"geo\"\nat = 1\n[task", 1);
    let faults = [
        ("\"plain\"", "\"plan\"", "no `plan`"),
        ("\"get\"", "\"got\"", "no `got`"),
    ];
    let claims = expect_faults(&swept, rise, &faults);
    let named = claims.contenders("near", "get");
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["bentpipe", "plain"]);
}
