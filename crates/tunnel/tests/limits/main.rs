//! How close to the physical limit the tunnel comes, and what it does to others: the whole system in virtual time.
//!
//! `make limits` runs the whole table and fails if a row is above its ceiling; without `--all` (as in `make test`) a
//! few rows run with a few seeds against bounds that hold today. Nothing here takes time from a clock.
//!
//! ```text
//!  table.rs ─ rows ─► run.rs, on all cores ─► experiment(controller, seed) ─► world ─► report.rs
//! ```

mod gates;
mod report;
mod row;
mod run;
mod scenario;
mod table;
mod transfer;
use std::process::ExitCode;

use bentpipe_congestion::Kind;

/// What the command line asks for.
struct Args {
    /// The whole table, against its goals.
    all: bool,
    /// Rows whose title contains one of these.
    filters: Vec<String>,
    /// Instead of each row's own number.
    seeds: Option<u64>,
    /// The first of them.
    from: u64,
    controllers: Vec<Kind>,
}

const USAGE: &str = "limits [--all] [--seeds N] [--from-seed N] [--controller NAME[,NAME]] [--filter TEXT[,TEXT]] [TEXT ...]";

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        all: false,
        filters: Vec::new(),
        seeds: None,
        from: 1,
        controllers: vec![Kind::Satellite],
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--all" => args.all = true,
            "--seeds" => args.seeds = Some(number(&value()?)?),
            "--from-seed" => args.from = number(&value()?)?,
            "--controller" => {
                let names = value()?;
                let kinds = names.split(',').map(str::parse::<Kind>);
                args.controllers = kinds
                    .collect::<Result<_, _>>()
                    .map_err(|error| error.to_string())?;
            }
            "--filter" => args.filters.extend(value()?.split(',').map(str::to_owned)),
            // What cargo passes to every test target.
            "--nocapture" | "--quiet" | "-q" => {}
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            text => args.filters.push(text.to_owned()),
        }
    }
    Ok(args)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    // `cargo test -- --ignored` wants slow tests of the other kind; `--list` wants names.
    if words
        .iter()
        .any(|word| word == "--ignored" || word == "--list")
    {
        return ExitCode::SUCCESS;
    }
    let args = match parse(words.into_iter()) {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("{problem}\nusage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    let wanted = |row: &row::Row| {
        let title = row.title();
        (args.all || row.check.is_some())
            && (args.filters.is_empty() || args.filters.iter().any(|text| title.contains(text)))
    };
    let rows: Vec<_> = table::rows().into_iter().filter(wanted).collect();
    let seeds = |row: &row::Row| match (args.seeds, &row.check) {
        (Some(seeds), _) => seeds,
        (None, Some((seeds, _))) if !args.all => *seeds,
        (None, _) => row.seeds,
    };
    let mut report = report::Report::new(args.all);
    run::run(
        &rows,
        &args.controllers,
        |row| args.from..args.from + seeds(row),
        |row, controller, samples| {
            report.add(row, controller, samples);
        },
    );
    report.finish()
}
