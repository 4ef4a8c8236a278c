//! How close to the physical limit the tunnel comes, and what it does to others: the whole system in virtual time.
//!
//! `make limits` runs the whole table and fails if a row is above its ceiling; without `--all` (as in `make test`) a
//! few rows run with a few seeds against bounds that hold today. Nothing here takes time from a clock.
//!
//! ```text
//!  table.rs ─ rows ─► run.rs, on all cores ─► experiment(controller, seed) ─► world ─► report.rs
//! ```

#[cfg(feature = "ablation")]
mod ablation;
mod gates;
mod report;
mod row;
mod run;
mod scenario;
mod table;
mod transfer;
use std::process::ExitCode;

use bentpipe_congestion::Kind;
#[cfg(feature = "ablation")]
use bentpipe_congestion::ablation::Part;

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
    /// Parts of `satellite` to run the rows without, one after the other; and whether with all seeds at once.
    #[cfg(feature = "ablation")]
    without: Option<Vec<Part>>,
    #[cfg(feature = "ablation")]
    thorough: bool,
}

const USAGE: &str = "limits [--all] [--seeds N] [--from-seed N] [--controller NAME[,NAME]] [--filter TEXT[,TEXT]] [TEXT ...]\n  with the feature `ablation`: [--without PART[,PART]|each|none] [--thorough]";

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        all: false,
        filters: Vec::new(),
        seeds: None,
        from: 1,
        controllers: vec![Kind::Satellite],
        #[cfg(feature = "ablation")]
        without: None,
        #[cfg(feature = "ablation")]
        thorough: false,
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
            #[cfg(feature = "ablation")]
            "--without" => args.without = Some(parts(&value()?)?),
            #[cfg(feature = "ablation")]
            "--thorough" => args.thorough = true,
            // What cargo passes to every test target.
            "--nocapture" | "--quiet" | "-q" => {}
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            text => args.filters.push(text.to_owned()),
        }
    }
    Ok(args)
}

/// The parts that `names` has, or every one.
#[cfg(feature = "ablation")]
fn parts(names: &str) -> Result<Vec<Part>, String> {
    let all = Part::NAMES.into_iter();
    if names == "each" {
        return Ok(all.map(|(part, _)| part).collect());
    }
    if names == "none" {
        return Ok(Vec::new());
    }
    let find = |name: &str| {
        let mut all = all.clone();
        let found = all.find(|(_, known)| *known == name);
        found
            .map(|(part, _)| part)
            .ok_or_else(|| format!("no part is called {name}"))
    };
    names.split(',').map(find).collect()
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
    #[cfg(feature = "ablation")]
    if let Some(parts) = &args.without {
        let seeds = args.from..args.from + args.seeds.unwrap_or(3);
        ablation::run(&rows, &seeds, parts, args.thorough);
        return ExitCode::SUCCESS;
    }
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
