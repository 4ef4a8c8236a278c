//! The file in which paths are remembered.

use std::time::Duration;

use bentpipe_congestion::paths::{MAX_PATHS, PathKey, Paths};

pub(crate) fn paths(data: &[u8]) {
    let Ok(paths) = Paths::decode(data) else {
        return;
    };
    assert!(paths.len() <= MAX_PATHS);
    let again = Paths::decode(&paths.encode()).expect("what was read can be written");
    assert_eq!(again, paths);
    let key = PathKey::new("a", "192.0.2.0".parse().expect("an address"));
    for now in [0, 1_800_000_000, u64::MAX].map(Duration::from_secs) {
        let mut paths = paths.clone();
        if let Some(saved) = paths.choose(&key, now) {
            assert!(saved.rate.as_u64() > 0 && !saved.rtt.is_zero());
            paths.learn(key.clone(), &saved, now);
        }
        paths.expire(now);
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let line = |peer: &str, network: &str, seen: u64| {
        format!(
            "{{\"peer\":\"{peer}\",\"network\":\"{network}\",\"rate_bit_s\":10000000,\"rtt_us\":602000,\
             \"loss\":0.01,\"seen\":{seen}}}"
        )
    };
    let file = |lines: &[String]| {
        let lines = lines.join(",\n");
        format!("{{\"format\": \"bentpipe paths 1\", \"paths\": [\n{lines}\n]}}\n").into_bytes()
    };
    let key = "PhYUS0NRsfOXmI5qFAPXtNTIgs6ODuPSWbJLQwjS6mA=";
    vec![
        file(&[]),
        file(&[line("a", "192.0.2.0", 1_800_000_000)]),
        file(&[line(key, "192.0.2.0", 1), line("b", "2001:db8:1::", 2)]),
    ]
}
