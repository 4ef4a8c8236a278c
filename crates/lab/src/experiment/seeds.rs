//! Tests of the experiments that `make seeds` runs, of which all are to hold.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{Claims, Comparable, Experiment, Extent, Filter};

/// Time that `make seeds` may take, in minutes.
const BUDGET: u64 = 60;

/// Variables of the Makefile with the two series of experiments that run beside each other, and how many runs of each are made at
/// a time.
const SERIES: [(&str, u32); 2] = [("SEEDS_THIN := ", 3), ("SEEDS_OTHERS := ", 1)];

/// Experiments of one of the [`SERIES`] of `make seeds`, in their order; in the size that the Makefile names, or in `size`.
fn series(name: &str, size: Option<Extent>) -> Vec<Experiment> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let mut lines = makefile.lines();
    let names = lines.find_map(|line| line.strip_prefix(name));
    let load = |name: &str| {
        let (name, named) = name.rsplit_once('-').unwrap();
        let mut sizes = [Extent::Full, Extent::Quick, Extent::Published].into_iter();
        let named = sizes.find(|size| size.name() == named).unwrap();
        let path = root.join("scenarios").join(format!("{name}.toml"));
        Experiment::load(&path, size.unwrap_or(named), &[]).unwrap()
    };
    names.unwrap().split_whitespace().map(load).collect()
}

/// Contenders, link and task of everything that is judged and may be more than 15 % away from what was published.
fn judged(claims: &Claims) -> Vec<(Vec<&str>, &str, &str)> {
    let figures = claims.published.iter();
    let figures = figures
        .filter(|one| one.comparable == Comparable::All)
        .map(|one| (vec![&*one.contender], &*one.scenario, &*one.task));
    let ratios = claims.published_ratios.iter().map(|one| {
        let pair = vec![&*one.contender, &*one.to];
        (pair, &*one.scenario, &*one.task)
    });
    let even = claims.published_pairs.iter().map(|one| {
        let pair = vec![&*one.contender, &*one.to];
        (pair, &*one.scenario, &*one.tasks[0])
    });
    let orders = claims.published_orders.iter().flat_map(|one| {
        let names: Vec<&str> = one.runs().map(|(contender, _)| contender).collect();
        let pairs = names.iter().enumerate().flat_map(|(place, first)| {
            let later = names[place + 1..].iter();
            later.map(|second| vec![*first, *second])
        });
        let pairs: Vec<_> = pairs.collect();
        let place = (&*one.scenario, &*one.task);
        pairs.into_iter().map(move |pair| (pair, place.0, place.1))
    });
    figures.chain(ratios).chain(even).chain(orders).collect()
}

/// Contenders and tasks that the ratios that rise need, at each place of the axis.
fn rising(experiment: &Experiment) -> Vec<(Vec<&str>, &str, &str)> {
    let links = experiment.axis.iter().flat_map(|axis| axis.at.keys());
    let at = |link| {
        let rises = experiment.claims.published_rises.iter();
        rises.map(move |one| (vec![&*one.contender, &*one.to], link, &*one.task))
    };
    links.flat_map(|link| at(link.as_str())).collect()
}

#[test]
fn the_seeds_take_an_hour_at_most() {
    for (name, at_a_time) in SERIES {
        let mut sum = Duration::ZERO;
        for experiment in series(name, None) {
            let time = experiment.estimate(&experiment.plan(&Filter::default())) / at_a_time;
            eprintln!("{}: {:.1} min", experiment.name, time.as_secs_f64() / 60.0);
            assert!(!time.is_zero(), "{}", experiment.name);
            sum += time;
        }
        let minutes = sum.as_secs().div_ceil(60);
        assert!(minutes <= BUDGET, "{name}{minutes} min, more than {BUDGET}");
    }
}

/// Contender, link and task of everything that experiments of `make seeds` run, in the size that the Makefile names or in `size`.
fn planned(size: Option<Extent>, experiments: &[&str]) -> BTreeSet<[String; 3]> {
    let all = SERIES.map(|(name, _)| series(name, size)).concat();
    let wanted = all
        .iter()
        .filter(|one| experiments.contains(&one.name.as_str()));
    let runs = wanted.flat_map(|one| one.plan(&Filter::default()));
    runs.map(|run| run.key.names().map(str::to_owned)).collect()
}

#[test]
fn every_finding_about_designs_of_the_papers_has_its_runs() {
    let designs = ["les", "dssl", "skycasters", "skycasters-rtt"];
    let wanted = planned(Some(Extent::Published), &designs);
    let runs = planned(None, &designs);
    let missing: Vec<_> = wanted
        .difference(&runs)
        // Whose figures stand beside all others, and of whom no finding is.
        .filter(|[contender, ..]| contender != "bentpipe")
        .collect();
    assert!(wanted.len() > 80 && missing.is_empty(), "{missing:?}");
}

#[test]
fn the_first_windows_are_judged_by_the_page_that_they_are_about() {
    let runs = planned(None, &["qpep-tuning"]);
    for window in [1, 25, 50] {
        let contender = format!("bentpipe-cubic:initial_window={window}");
        let run = [contender, "paper-geo".into(), "page".into()];
        assert!(runs.contains(&run), "{run:?}");
    }
}

#[test]
fn a_statement_of_its_own_is_a_finding_of_its_own_and_an_operators_pep_is_the_accelerator() {
    let all = SERIES.map(|(name, _)| series(name, Some(Extent::Full)));
    let all = all.concat();
    let orders = all.iter().flat_map(|one| &one.claims.published_orders);
    let (mut alike, mut providers) = (0, 0);
    for order in orders {
        let source = &order.source;
        // A contender that is elsewhere in a longer order would refute that two others are alike.
        if source.ends_with("perform alike") || source.ends_with("without significant advantage") {
            assert_eq!(order.order.len(), 1, "{source}");
            alike += 1;
        }
        if source.contains("provider's own PEP") {
            assert_eq!(order.order[0], ["accelerator"], "{source}");
            providers += 1;
        }
    }
    assert_eq!((alike, providers), (4, 2));
}

#[test]
fn whatever_may_differ_from_what_was_published_is_explained_in_a_sentence() {
    for experiment in SERIES
        .map(|(name, _)| series(name, Some(Extent::Full)))
        .concat()
    {
        let claims = &experiment.claims;
        let mut used = Vec::new();
        for (contenders, scenario, task) in [judged(claims), rising(&experiment)].concat() {
            let reason = claims.explanation(&contenders, scenario, task);
            let reason = reason.unwrap_or_else(|| {
                let name = &experiment.name;
                panic!("{name}: no [[explanation]] fits {contenders:?}, {scenario}, {task}")
            });
            used.push(reason);
        }
        for reason in &claims.explanations {
            let text = &reason.because;
            assert!(used.contains(&reason), "fits nothing: {text}");
            let sentence = text.ends_with('.') && !text.contains(". ");
            assert!(sentence, "not one sentence: {text}");
        }
    }
}
