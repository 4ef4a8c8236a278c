//! The results as a tidy table: a row per figure, and one for each run that has none.

use ::csv::Writer;
use anyhow::{Context as _, Result};

use super::Record;

const COLUMNS: [&str; 19] = [
    "contender",
    "scenario",
    "task",
    "repeat",
    "status",
    "sample",
    "seconds",
    "limit_s",
    "ratio",
    "first_paint_s",
    "lost",
    "ended_s",
    "client_bytes",
    "recovered_bytes",
    "wasted_bytes",
    "repair_overhead",
    "began",
    "version",
    "remark",
];

/// The table's text.
pub(super) fn table<'a>(records: impl Iterator<Item = &'a Record>) -> Result<String> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for record in records {
        let samples: Vec<Option<f64>> = match record.seconds() {
            [] => vec![None],
            seconds => seconds.iter().copied().map(Some).collect(),
        };
        for (index, seconds) in samples.into_iter().enumerate() {
            writer.write_record(row(record, index, seconds))?;
        }
    }
    let bytes = writer.into_inner().context("cannot write the table")?;
    String::from_utf8(bytes).context("cannot write the table")
}

fn row(record: &Record, index: usize, seconds: Option<f64>) -> [String; 19] {
    let number = |value: Option<f64>| value.map(|value| format!("{value:.6}")).unwrap_or_default();
    let limit = record.limit(index);
    let ratio = seconds.zip(limit).map(|(seconds, limit)| seconds / limit);
    let repairs = record.repairs;
    let bytes = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let transaction = record.transactions.get(index);
    let [contender, scenario, task] = record.key.names().map(str::to_owned);
    [
        contender,
        scenario,
        task,
        record.key.repeat.to_string(),
        record.status().name().to_owned(),
        seconds.map(|_| (index + 1).to_string()).unwrap_or_default(),
        number(seconds),
        number(limit),
        number(ratio),
        number(record.first_paint_s.get(index).copied().flatten()),
        number(record.lost),
        number(transaction.map(|one| one.ended_s)),
        bytes(transaction.map(|one| one.client_bytes)),
        bytes(repairs.map(|repairs| repairs.recovered_bytes)),
        bytes(repairs.map(|repairs| repairs.wasted_bytes)),
        number(repairs.map(|repairs| repairs.overhead)),
        record.began.to_string(),
        record.version.clone(),
        record.remark(),
    ]
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Seed;

    use super::*;
    use crate::experiment::RunKey;
    use crate::results::Outcome;

    #[test]
    fn first_paints_stand_beside_their_own_pages() {
        let key = RunKey {
            contender: "x".into(),
            scenario: "geo".into(),
            task: "pages".into(),
            repeat: 1,
        };
        let loaded = Outcome::Measured {
            seconds: vec![4.0, 5.0, 6.0],
            bytes: 3000,
        };
        let record = Record {
            first_paint_s: vec![Some(1.0), None, Some(3.0)],
            ..Record::new(key, Seed::new(1), loaded)
        };
        let read: Record = serde_json::from_value(serde_json::to_value(&record).unwrap()).unwrap();
        assert_eq!(read, record);
        let text = table([&record].into_iter()).unwrap();
        let column = COLUMNS.iter().position(|name| *name == "first_paint_s");
        let paints = text
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(column.unwrap()).unwrap());
        assert_eq!(paints.collect::<Vec<_>>(), ["1.000000", "", "3.000000"]);
    }
}
