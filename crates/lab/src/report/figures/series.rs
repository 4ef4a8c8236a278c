//! Sessions, by the number of the transaction: the mean of all times so far, and the load so far at the
//! client's end of the link.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::experiment::RunKey;
use crate::results::{Manifest, Record, Row, Status, Summary, means_by_place};

/// Quantity of a session after each of its transactions.
type Quantity = (&'static str, fn(&Record) -> Vec<f64>);

const QUANTITIES: [Quantity; 2] = [
    ("Mean of all times so far, in seconds", Record::means_so_far),
    (
        "Load so far at the client's end of the link, in bit/s",
        Record::loads,
    ),
];

/// Two figures per link and session, with their heading.
pub(super) fn figures(
    manifest: &Manifest,
    summary: &Summary,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let mut figures = Vec::new();
    for scenario in &manifest.outline.scenarios {
        for task in &manifest.outline.tasks {
            let here = |row: &&Row| row.scenario == *scenario && row.task == *task;
            for (title, of) in QUANTITIES {
                let rows = summary.rows.iter().filter(here);
                let curves = rows.filter_map(|row| {
                    let y = together(row, records, of)?;
                    Some((row.contender.as_str(), y))
                });
                let place = manifest.outline.titles.place(scenario, task);
                let found = figure(title, &curves.collect::<Vec<_>>());
                figures.extend(found.map(|one| (format!("{place}, by transaction"), one)));
            }
        }
    }
    figures
}

/// The mean over the valid runs of a row, after each transaction; none if they are no sessions.
fn together(
    row: &Row,
    records: &BTreeMap<RunKey, Record>,
    of: fn(&Record) -> Vec<f64>,
) -> Option<Vec<f64>> {
    let names = [&*row.contender, &*row.scenario, &*row.task];
    let own = records.values().filter(|record| {
        let counts = record.status() == Status::Valid && !record.transactions.is_empty();
        counts && record.key.names() == names
    });
    means_by_place(&own.map(of).collect::<Vec<_>>())
}

/// The figure of these curves; none if none has two places.
fn figure(title: &str, curves: &[(&str, Vec<f64>)]) -> Option<Value> {
    let length = curves.iter().map(|(_, y)| y.len()).max()?;
    let nothing = vec![Value::Null; length];
    let curve = |(name, y): &(&str, Vec<f64>)| json!({ "name": name, "y": y, "low": nothing, "high": nothing, "published": nothing });
    (length > 1).then(|| {
        json!({
            "kind": "lines",
            "title": title,
            "unit": "",
            "ratios": false,
            "x": (1..=length).collect::<Vec<_>>(),
            "curves": curves.iter().map(curve).collect::<Vec<_>>(),
            "limit": nothing,
        })
    })
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Seed;

    use super::*;
    use crate::results::{Outcome, Outline, Transaction};

    fn session(repeat: u32, seconds: [f64; 2]) -> Record {
        let key = RunKey {
            contender: "x".into(),
            scenario: "geo".into(),
            task: "talk".into(),
            repeat,
        };
        let transaction = |ended_s| Transaction {
            ended_s,
            client_bytes: 1000,
        };
        let measured = Outcome::Measured {
            seconds: seconds.to_vec(),
            bytes: 1,
        };
        Record {
            transactions: vec![transaction(1.0), transaction(4.0)],
            ..Record::new(key, Seed::new(1), measured)
        }
    }

    #[test]
    fn a_session_shows_the_mean_so_far_and_the_load_over_its_runs() {
        let mut manifest = Manifest::example("");
        manifest.outline = Outline {
            contenders: vec!["x".into(), "y".into()],
            scenarios: vec!["geo".into()],
            tasks: vec!["talk".into(), "get".into()],
            ..Outline::default()
        };
        let mut doubted = session(3, [9.0, 9.0]);
        doubted.doubts.push("late".into());
        let records = [session(1, [1.0, 3.0]), session(2, [2.0, 2.0]), doubted];
        let records: BTreeMap<_, _> = records
            .into_iter()
            .map(|record| (record.key.clone(), record))
            .collect();
        let summary = Summary::new(&manifest.outline, &records);
        let found = figures(&manifest, &summary, &records);
        let [(heading, mean), (_, load)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(heading, "geo, talk, by transaction");
        assert_eq!(mean["x"], json!([1, 2]));
        assert_eq!(mean["curves"][0]["y"], json!([1.5, 2.0]));
        assert_eq!(load["curves"][0]["y"], json!([8000.0, 4000.0]));
        assert_eq!(mean["curves"].as_array().map(Vec::len), Some(1));
    }
}
