//! Scenario files: what is read, what is refused and with which words, and the presets.

use std::time::Duration;

use crate::{LossModel, QueueLimit, Scenario};
use bentpipe_units::{BitRate, ByteCount, Ratio, Seed};

const GEO: &str = r#"
[scenario]
name = "geo"
seed = 1
[orbit]
model = "constant"
one_way_delay = "250 ms"
[forward]
standard = "cbr"
bit_rate = "10 Mbit/s"
[return]
standard = "cbr"
bit_rate = "10 Mbit/s"
"#;

fn read(extra: &str) -> Scenario {
    toml::from_str(&format!("{GEO}{extra}")).unwrap()
}

#[test]
fn a_minimal_file_is_the_geo_preset() {
    let scenario = read("");
    let preset = crate::preset("geo").unwrap();
    assert_eq!(scenario, toml::from_str(preset).unwrap());
    assert_eq!(scenario.general.seed, Seed::new(1));
    let link = scenario.link_config().unwrap();
    assert_eq!(link.forward_link, link.return_link);
    assert_eq!(link.forward_link.rate, BitRate::megabits_per_second(10));
    assert_eq!(link.forward_link.one_way_delay, Duration::from_millis(250));
    // One BDP: 10 Mbit/s × 500 ms.
    assert_eq!(
        link.forward_link.queue,
        QueueLimit::Bytes(ByteCount::new(625_000))
    );
    assert_eq!(link.forward_link.loss, LossModel::None);
}

#[test]
fn errors_hit_their_direction() {
    let one_percent = LossModel::Iid(Ratio::new(0.01).unwrap());
    for (direction, forward, back) in [
        ("direction = \"forward\"", one_percent, LossModel::None),
        ("direction = \"return\"", LossModel::None, one_percent),
        ("direction = \"both\"", one_percent, one_percent),
        ("", one_percent, one_percent),
    ] {
        let text = format!("[errors]\nmodel = \"iid\"\nrate = \"1 %\"\n{direction}\n");
        let link = read(&text).link_config().unwrap();
        assert_eq!(
            (link.forward_link.loss, link.return_link.loss),
            (forward, back),
            "{direction}"
        );
    }
}

#[test]
fn bursts_and_queues_are_read() {
    let scenario = read(
        "[errors]\nmodel = \"gilbert_elliott\"\nrate = 0.01\nmean_burst = 4.0\n[queue]\npackets = 25\n",
    );
    let pipe = scenario.link_config().unwrap().forward_link;
    assert_eq!(pipe.queue, QueueLimit::Packets(25));
    let LossModel::GilbertElliott(chain) = pipe.loss else {
        panic!("{:?}", pipe.loss)
    };
    assert_eq!(chain.p_bad_to_good, Ratio::new(0.25).unwrap());
    let none = read("[errors]\nmodel = \"none\"\n[queue]\nlimit = \"64 kB\"\n")
        .link_config()
        .unwrap();
    assert_eq!(
        none.return_link.queue,
        QueueLimit::Bytes(ByteCount::new(64_000))
    );
}

#[test]
fn unknown_and_misplaced_keys_are_refused() {
    for (extra, word) in [
        ("[queue]\nlimits = \"1 kB\"\n", "limits"),
        ("[colour]\n", "colour"),
        (
            "[errors]\nmodel = \"iid\"\nrate = \"1 %\"\nmean_burst = 2.0\n",
            "mean_burst",
        ),
        ("[errors]\nmodel = \"none\"\nrate = \"1 %\"\n", "rate"),
        ("[errors]\nmodel = \"iid\"\n", "rate"),
        (
            "[errors]\nmodel = \"bits\"\nrate = \"1e-5\"\nunit = \"ip\"\n",
            "unit",
        ),
        (
            "[errors]\nmodel = \"iid\"\nrate = \"1.5\"\n",
            "`1.5` is not a ratio",
        ),
        ("[errors]\nmodel = \"magic\"\n", "gilbert_elliott"),
    ] {
        let error = toml::from_str::<Scenario>(&format!("{GEO}{extra}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{extra}: {error}");
    }
}

#[test]
fn contradictions_name_their_table() {
    let zero = GEO.replacen("10 Mbit/s", "0 bit/s", 1);
    let zero = toml::from_str::<Scenario>(&zero)
        .unwrap()
        .link_config()
        .unwrap_err();
    assert!(
        zero.to_string().starts_with("[forward] bit_rate is zero"),
        "{zero}"
    );
    let two = read("[queue]\nlimit = \"1 kB\"\npackets = 1\n")
        .link_config()
        .unwrap_err();
    assert!(two.to_string().starts_with("[queue] has both"), "{two}");
    let burst = "[errors]\nmodel = \"gilbert_elliott\"\nrate = 0.9\nmean_burst = 1.0\n";
    let burst = read(burst).link_config().unwrap_err();
    assert!(
        burst
            .to_string()
            .starts_with("[errors] no chain loses 0.9 in bursts of 1 "),
        "{burst}"
    );
}

#[test]
fn a_short_link_still_has_a_queue() {
    let text = GEO.replace("250 ms", "0 ms");
    let link = toml::from_str::<Scenario>(&text)
        .unwrap()
        .link_config()
        .unwrap();
    assert_eq!(
        link.forward_link.queue,
        QueueLimit::Bytes(ByteCount::new(15_000))
    );
}
