//! Lines that are almost results: whatever is read can be written and read again, makes a summary, a table and a page; whatever
//! is not names its line.

use std::collections::BTreeMap;
use std::path::Path;

use bentpipe_units::Seed;

use super::store::parse;
use super::{Comparison, Manifest, Record, Summary, csv};
use crate::experiment::RunKey;
use crate::hostile::changed;

const ROUNDS: u64 = 3000;
const LINES: &str = concat!(
    r#"{"contender":"plain/cubic","scenario":"geo","task":"get","repeat":1,"seed":7,"version":"v","began":1,"took_s":2.5,"outcome":"measured","seconds":[1.5,2.25],"bytes":1000,"doubts":[],"limit_s":0.5,"crossed":null,"repairs":{"sent_bytes":50,"overhead":0.05,"recovered_bytes":40,"wasted_bytes":10},"link":null}"#,
    "\n",
    r#"{"contender":"bentpipe","scenario":"geo","task":"get","repeat":1,"seed":7,"version":"v","began":1,"took_s":2.5,"outcome":"unfinished","after_s":60.0,"doubts":["late"],"limit_s":null,"crossed":{"tunnel_packets":1,"tunnel_bytes":2,"clear_packets":0,"readable_packets":0,"clear":[]},"link":{"verdict":"VALID"}}"#,
    "\n",
    r#"{"contender":"x","scenario":"leo","task":"get","repeat":2,"seed":7,"version":"v","began":1,"took_s":0.5,"outcome":"failed","reason":"<b>","doubts":[],"limit_s":null,"crossed":null,"link":null}"#,
    "\n",
);

/// What means something in such a line.
const PIECES: [&str; 9] = [
    "\"", "{", "}\n", ",", "0", "-1", "1e999", "null", "measured",
];

#[test]
fn almost_results_are_shown_or_refused_with_a_line() {
    let [mut read, mut refused] = [0; 2];
    for round in 0..ROUNDS {
        match parse(
            &changed(LINES, Seed::new(round), 2, 12, &PIECES),
            Path::new("r.jsonl"),
        ) {
            Ok(records) => {
                read += 1;
                check(records);
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().starts_with("r.jsonl:"), "{error}");
            }
        }
    }
    assert!(
        read > ROUNDS / 20 && refused > ROUNDS / 20,
        "{read}, {refused}"
    );
}

fn check(records: BTreeMap<RunKey, Record>) {
    let lines = |records: &BTreeMap<RunKey, Record>| -> String {
        let lines = records.values().map(|record| {
            let line = serde_json::to_string(record).expect("what was read can be written");
            line + "\n"
        });
        lines.collect()
    };
    let written = lines(&records);
    let again = parse(&written, Path::new("again")).expect("what was written can be read");
    assert_eq!(lines(&again), written);
    csv::table(records.values()).expect("a table");
    let mut manifest = Manifest::example("e");
    let keys = || records.keys();
    manifest.outline.contenders = keys().map(|key| key.contender.clone()).collect();
    manifest.outline.scenarios = keys().map(|key| key.scenario.clone()).collect();
    manifest.outline.tasks = keys().map(|key| key.task.clone()).collect();
    assert!(
        !Summary::new(&manifest.outline, &records)
            .to_string()
            .is_empty()
    );
    let results = (manifest, records);
    assert!(!Comparison::new(&results, &results, 0.1).is_worse());
}
