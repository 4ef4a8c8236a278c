//! Tests of the experiments that `make seeds` runs, of which all are to hold.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{Claims, Comparable, Experiment, Extent, Filter};

/// Time that `make seeds` may take, in minutes.
const BUDGET: u64 = 60;

/// Variables of the Makefile with the two series of experiments that run beside each other.
const SERIES: [&str; 2] = ["SEEDS_THIN := ", "SEEDS_OTHERS := "];

/// Experiments of one of the [`SERIES`] of `make seeds`, in their order.
fn series(name: &str, extent: Extent) -> Vec<Experiment> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let mut lines = makefile.lines();
    let names = lines.find_map(|line| line.strip_prefix(name));
    let names = names.unwrap().split_whitespace();
    let load = |name| {
        let path = root.join("scenarios").join(format!("{name}.toml"));
        Experiment::load(&path, extent, &[]).unwrap()
    };
    names.map(load).collect()
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
    let orders = claims.published_orders.iter().flat_map(|one| {
        let names: Vec<&str> = one.order.iter().flatten().map(String::as_str).collect();
        let pairs = names.iter().enumerate().flat_map(|(place, first)| {
            let later = names[place + 1..].iter();
            later.map(|second| vec![*first, *second])
        });
        let pairs: Vec<_> = pairs.collect();
        let place = (&*one.scenario, &*one.task);
        pairs.into_iter().map(move |pair| (pair, place.0, place.1))
    });
    figures.chain(ratios).chain(orders).collect()
}

#[test]
fn the_seeds_take_an_hour_at_most() {
    for name in SERIES {
        let mut sum = Duration::ZERO;
        for quick in series(name, Extent::Quick) {
            let time = quick.estimate(&quick.plan(&Filter::default()));
            eprintln!("{}: {:.1} min", quick.name, time.as_secs_f64() / 60.0);
            assert!(!time.is_zero(), "{}", quick.name);
            sum += time;
        }
        let minutes = sum.as_secs().div_ceil(60);
        assert!(minutes <= BUDGET, "{name}{minutes} min, more than {BUDGET}");
    }
}

#[test]
fn whatever_may_differ_from_what_was_published_is_explained_in_a_sentence() {
    for experiment in SERIES.map(|name| series(name, Extent::Full)).concat() {
        let claims = &experiment.claims;
        let mut used = Vec::new();
        for (contenders, scenario, task) in judged(claims) {
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
