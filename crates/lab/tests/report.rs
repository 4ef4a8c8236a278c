//! The pages in a real browser: every figure is drawn, with every curve in its colour. Takes about two seconds per figure on an
//! idle machine, so it is one of the slow tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bentpipe_lab::experiment::RunKey;
use bentpipe_lab::report::report;
use bentpipe_lab::results::{Manifest, Outcome, Record, Store};
use bentpipe_units::Seed;
use serde_json::json;

const CONTENDERS: [&str; 3] = ["plain/cubic", "wireguard/cubic", "bentpipe"];
const SCENARIOS: [&str; 2] = ["cnes-geo", "leo"];
const TASKS: [(&str, f64); 3] = [("1-MB", 1e6), ("2-MB", 2e6), ("10-MB", 10e6)];
/// Of the figures, one for each contender, as in the page's script.
const CURVES: [[u8; 3]; 3] = [[0x00, 0x72, 0xb2], [0xd5, 0x5e, 0x00], [0x00, 0x9e, 0x73]];
/// Of the nearest and the farthest cell of a heat map.
const HEAT: [[u8; 3]; 2] = [[0xfe, 0xe8, 0x38], [0x00, 0x22, 0x4e]];

fn manifest() -> Manifest {
    let text: String = TASKS
        .iter()
        .map(|(name, bytes)| format!("[task.{name}]\nkind = \"transfer\"\nsize = \"{bytes} B\"\n"))
        .collect();
    let manifest = json!({
        "experiment": "example", "extent": "full", "seed": 1, "selection": [], "file": "example.toml", "text": text,
        "outline": {
            "question": "Is everything drawn?", "contenders": CONTENDERS, "scenarios": SCENARIOS,
            "tasks": TASKS.map(|(name, _)| name),
            "published": [{
                "contender": "plain/cubic", "scenario": "cnes-geo", "task": "10-MB", "seconds": 11.0, "source": "somebody",
            }],
            "axis": { "of": "rate in Mbit/s", "at": { "cnes-geo": 10, "leo": 20 } },
        },
        "bentpipe": { "version": "v", "sha256": "0", "revision": null },
        "machine": { "kernel": "k", "cpu": "c", "cpus": 2, "sysctls": {} },
        "contenders": {},
    });
    serde_json::from_value(manifest).unwrap()
}

/// Six runs of everybody with everything; the first contender is near the limit, the last ten times as far.
fn results(directory: &Path) {
    let mut store = Store::open(directory, &manifest()).unwrap();
    for (place, contender) in CONTENDERS.iter().enumerate() {
        for scenario in SCENARIOS {
            for (task, bytes) in TASKS {
                let limit = 0.5 + bytes * 8.0 / 10e6;
                for repeat in 1..=6u32 {
                    let far = [1.0, 3.0, 12.0][place] + 0.05 * f64::from(repeat);
                    let key = RunKey {
                        contender: (*contender).into(),
                        scenario: scenario.into(),
                        task: task.into(),
                        repeat,
                    };
                    let outcome = Outcome::Measured {
                        seconds: vec![limit * far],
                        bytes: bytes as u64,
                    };
                    store.add(record(key, outcome, limit)).unwrap();
                }
            }
        }
    }
}

fn record(key: RunKey, outcome: Outcome, limit: f64) -> Record {
    Record {
        limit_s: Some(limit),
        ..Record::new(key, Seed::new(1), outcome)
    }
}

/// What the browser shows of the page, as RGB; `None` if there is no browser.
fn screenshot(page: &Path, size: (u32, u32)) -> Option<Vec<[u8; 3]>> {
    let picture = page.with_extension("png");
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=2000",
    ]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.arg(format!("--window-size={},{}", size.0, size.1));
    browser.arg(format!("--screenshot={}", picture.display()));
    browser.arg(format!("file://{}", page.display()));
    let output = browser.output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let file =
        fs::File::open(&picture).unwrap_or_else(|error| panic!("no picture: {error}\n{said}"));
    let mut reader = png::Decoder::new(std::io::BufReader::new(file))
        .read_info()
        .unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let samples = info.color_type.samples();
    let pixels = bytes[..info.buffer_size()].chunks(samples);
    Some(pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}

/// How many pixels have this colour, nearly: edges are smoothed.
fn count(picture: &[[u8; 3]], colour: [u8; 3]) -> usize {
    let near = |pixel: &&[u8; 3]| pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 12);
    picture.iter().filter(near).count()
}

/// The page with nothing but one of its figures.
fn alone(page: &str, id: &str, place: &Path) -> PathBuf {
    let style = format!("<style>body > :not(#{id}) {{ display: none !important }}</style></head>");
    let path = place.join(format!("{id}.html"));
    fs::write(&path, page.replacen("</head>", &style, 1)).unwrap();
    path
}

#[test]
#[ignore = "slow: starts a browser for every figure"]
fn every_figure_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    results(place);
    let page = place.join("report.html");
    report(&[place.to_owned()], &page).unwrap();
    let whole =
        screenshot(&page, (1000, 7000)).expect("there is no `chromium`; apt-get install chromium");
    // Bars of the tables, and the cells of heat maps.
    for colour in [CURVES[0], HEAT[0], HEAT[1]] {
        assert!(count(&whole, colour) > 500, "{colour:?}");
    }
    let text = fs::read_to_string(&page).unwrap();
    // Shares of figures for each link and task, goodput for each link, each task over all links.
    let figures = SCENARIOS.len() * TASKS.len() + SCENARIOS.len() + TASKS.len();
    assert_eq!(text.matches("class=\"plot\"").count(), figures);
    for number in 0..figures {
        let id = format!("figure-{number}");
        let picture = screenshot(&alone(&text, &id, place), (1000, 500)).unwrap();
        for colour in CURVES {
            let found = count(&picture, colour);
            assert!(found > 60, "{id}: {found} pixels of {colour:?}");
        }
    }
    // What is looked for is what the script draws, and no table beside it.
    let undrawn = text.replacen("new uPlot(", "Object(", 1);
    let picture = screenshot(&alone(&undrawn, "figure-0", place), (1000, 500)).unwrap();
    assert_eq!(CURVES.map(|colour| count(&picture, colour)), [0; 3]);
}
