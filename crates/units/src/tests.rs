//! The quantities as they stand in a TOML file: what is read, what is written, what the refusal says.

use serde::{Deserialize, Serialize};

use crate::{BitRate, ByteCount, Ratio, Seed, TimeSpan};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct File {
    rate: BitRate,
    limit: ByteCount,
    one_way_delay: TimeSpan,
    loss: Ratio,
    seed: Seed,
}

const TEXT: &str = r#"
rate = "10 Mbit/s"
limit = "64 MiB"
one_way_delay = "250 ms"
loss = "1 %"
seed = 7
"#;

#[test]
fn a_file_is_read() {
    let file: File = toml::from_str(TEXT).unwrap();
    assert_eq!(file.rate, BitRate::megabits_per_second(10));
    assert_eq!(file.limit, ByteCount::new(64 << 20));
    assert_eq!(file.one_way_delay.get().as_millis(), 250);
    assert_eq!(file.loss, Ratio::new(0.01).unwrap());
    assert_eq!(file.seed, Seed::new(7));
    let number: File = toml::from_str(&TEXT.replace("\"1 %\"", "0.01")).unwrap();
    assert_eq!(number, file);
}

#[test]
fn refusals_say_what_to_write() {
    for (good, bad, message) in [
        (
            "\"10 Mbit/s\"",
            "\"10 Mbps\"",
            "`10 Mbps` is not a rate; write it as in \"10 Mbit/s\"",
        ),
        (
            "\"64 MiB\"",
            "64",
            "invalid type: integer `64`, expected a size as in \"64 MiB\"",
        ),
        (
            "\"250 ms\"",
            "\"250\"",
            "`250` is not a time span; write it as in \"250 ms\"",
        ),
        ("\"1 %\"", "1.5", "expected a ratio as in \"1 %\" or 0.01"),
    ] {
        let error = toml::from_str::<File>(&TEXT.replace(good, bad))
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
    }
}
