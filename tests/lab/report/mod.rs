//! The pages in a real browser: every figure is drawn, with every curve in its colour, on a desk, on a phone and on paper, by day and
//! by night; and pages without curves, or too wide for a phone, are found out by the same checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bentpipe_lab::experiment::{Experiment, Extent, Filter, RunKey};
use bentpipe_lab::report::ResultsReport;
use bentpipe_lab::results::{Build, Manifest, Outcome, Record, Store, Timeline};
use bentpipe_testbed::chromium;
use bentpipe_units::Seed;
use serde::Deserialize;
use serde_json::{Value, json};

const CONTENDERS: [&str; 3] = ["plain/cubic", "wireguard/cubic", "bentpipe"];
const SCENARIOS: [&str; 2] = ["cnes-geo", "leo"];
const TASKS: [(&str, f64); 3] = [("1-MB", 1e6), ("2-MB", 2e6), ("10-MB", 10e6)];
/// Colours of the contenders' families in the style sheet, on light ground and on dark.
const CURVES: [[[u8; 3]; 3]; 2] = [
    [[0x76, 0x76, 0x76], [0xd5, 0x41, 0x0a], [0x00, 0x72, 0xb2]],
    [[0x9a, 0x9a, 0x9a], [0xff, 0x6a, 0x3c], [0x3f, 0xa0, 0xe0]],
];
/// Experiments of `make seeds`.
const SEEDS: [&str; 12] = [
    "skycasters",
    "skycasters-rtt",
    "les",
    "dssl",
    "cnes",
    "cnes-lan",
    "qpep-pages",
    "qpep-goodput",
    "qpep-snr",
    "qpep-tuning",
    "qpep-leo",
    "qpep-plr",
];
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

/// What the script says of a page.
#[derive(Deserialize)]
struct Seen {
    figures: Vec<Figure>,
    faults: Vec<String>,
    /// How many pixels the page and each table are wider than their room, at most: on the desk and on the phone.
    wider: [i64; 2],
    /// Claims in words that are seen on the desk and on the phone before anybody scrolls.
    lines: [usize; 2],
    /// Legends that lie outside of their figures, or show no name.
    legends: Vec<String>,
    /// Lowest contrast of a contender's colour with the ground, by day and by night.
    contrast: [f64; 2],
    /// Sheets of paper.
    sheets: usize,
}

#[derive(Deserialize)]
struct Figure {
    id: String,
    /// Where its plot is; none if nothing was drawn.
    plot: Option<Rectangle>,
}

#[derive(Deserialize)]
struct Rectangle {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// RGB, row by row.
struct Picture {
    pixels: Vec<[u8; 3]>,
    width: usize,
}

impl Picture {
    fn read(path: &Path) -> Self {
        let file = fs::File::open(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let decoder = png::Decoder::new(std::io::BufReader::new(file));
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let pixels = bytes[..info.buffer_size()].chunks(info.color_type.samples());
        Self {
            pixels: pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
            width: info.width as usize,
        }
    }

    fn part(&self, of: &Rectangle) -> Self {
        let [left, right] = [of.x, of.x + of.width].map(|x| x as usize);
        let rows = self.pixels.chunks(self.width);
        let rows = rows.skip(of.y as usize).take(of.height as usize);
        Self {
            pixels: rows.flat_map(|row| row[left..right].to_vec()).collect(),
            width: right - left,
        }
    }

    /// How many pixels have this colour, nearly: edges are smoothed.
    fn count(&self, colour: [u8; 3]) -> usize {
        let near = |pixel: &&[u8; 3]| pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 12);
        self.pixels.iter().filter(near).count()
    }
}

/// Has a browser look at the pages in `place`, all at once: it takes its time to start.
fn look(place: &Path, pages: &[PathBuf]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/report/shots.cjs");
    let mut node = Command::new("node");
    node.arg(script).arg(std::env::current_exe().unwrap());
    node.arg("/usr/bin/chromium").arg(place).args(pages);
    let output = node.env("HOME", place).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn seen(place: &Path, page: &str) -> Seen {
    let text = fs::read(place.join(format!("{page}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Whether a figure has a plot, and in it every curve's colour, by day and by night.
fn check(place: &Path, page: &str, figure: &Figure) -> Result<(), String> {
    let id = &figure.id;
    let plot = figure.plot.as_ref().ok_or(format!("{id} is not drawn"))?;
    for (time, curves) in ["", "-dark"].into_iter().zip(CURVES) {
        let picture = Picture::read(&place.join(format!("{page}-{id}{time}.png"))).part(plot);
        for colour in curves {
            let found = picture.count(colour);
            if found < 100 {
                return Err(format!(
                    "{id}{time}: {found} pixels of {colour:?} in its plot"
                ));
            }
        }
    }
    Ok(())
}

/// The page with the same figures, and nothing in their curves.
fn emptied(text: &str) -> String {
    let start = "<script id=\"data\" type=\"application/json\">";
    let (before, rest) = text.split_once(start).unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    let mut data: Value = serde_json::from_str(data).unwrap();
    let figures = data["figures"].as_array_mut().unwrap().iter_mut();
    for curve in figures.flat_map(|figure| figure["curves"].as_array_mut().unwrap()) {
        for column in curve.as_object_mut().unwrap().values_mut() {
            // All but the name.
            for value in column.as_array_mut().into_iter().flatten() {
                *value = Value::Null;
            }
        }
    }
    format!("{before}{start}{data}</script>{after}")
}

/// Results of an experiment's quick size, of which every run took its time by its contender's place in the file.
fn quick(name: &str, directory: &Path) {
    let experiment = Experiment::load(Path::new(name), Extent::Quick, &[]).unwrap();
    let build = Build {
        version: "v".into(),
        sha256: "0".into(),
        revision: None,
    };
    let manifest = Manifest::new(&experiment, vec![], build, vec![]);
    let mut store = Store::open(directory, &manifest).unwrap();
    let timeline = Timeline {
        t_s: (1..=64).map(f64::from).collect(),
        forward_bps: vec![9_876_543; 64],
        return_bps: vec![123_456; 64],
        rtt_ms: vec![612.3; 64],
    };
    let mut link = json!({});
    timeline.put_into(&mut link).unwrap();
    let runs = experiment.plan(&Filter::default()).into_iter();
    let records = runs.map(|run| {
        let far = 1.1 + 0.4 * run.contender as f64;
        let outcome = Outcome::Measured {
            seconds: vec![10.0 * far],
            bytes: 10_000_000,
        };
        Record {
            began: 1_780_000_000,
            link: Some(link.clone()),
            ..record(run.key, outcome, 10.0)
        }
    });
    store.add_all(records.collect()).unwrap();
}

#[test]
fn the_page_of_the_seed_papers_is_read_without_scrolling_aside() {
    if chromium("report").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let directories = SEEDS.map(|name| place.join(name));
    for (name, directory) in SEEDS.iter().zip(&directories) {
        quick(name, directory);
    }
    let page = place.join("seeds.html");
    let report = ResultsReport::read(&directories).unwrap();
    report.write_page(&page).unwrap();
    assert!(fs::metadata(&page).unwrap().len() < 3_000_000);
    let text = fs::read_to_string(&page).unwrap();
    let drawn = text
        .matches("aria-label=\"up to 9.88 Mbit/s in 64 s\"")
        .count();
    assert!(drawn > 100, "{drawn} runs have their course");
    look(place, &[page]);
    let seen = seen(place, "seeds");
    assert_eq!(seen.faults, [""; 0]);
    assert_eq!(seen.wider, [0, 0]);
    assert_eq!(seen.legends, [""; 0]);
    // Claims in words.
    let [desk, phone] = seen.lines;
    assert!(desk >= 8 && phone >= 8, "{desk} and {phone} lines");
    assert_eq!(text.matches("</td><td data-label=\"source\">").count(), 10);
    assert!(
        seen.contrast.iter().all(|ratio| *ratio >= 3.0),
        "{:?}",
        seen.contrast
    );
    // On paper: twelve experiments, of which a figure and a table take a sheet each at most.
    assert!((6..=16).contains(&seen.sheets), "{} sheets", seen.sheets);

    // Every figure is a file of its own too, which the browser takes for a picture, with every name in full.
    let (figures, text) = (place.join("figures"), place.join("findings.md"));
    let written = report.write_figures(&figures).unwrap();
    assert_eq!(fs::read_dir(&figures).unwrap().count(), written);
    for name in SEEDS {
        let svg = fs::read_to_string(figures.join(format!("{name}-1.svg"))).unwrap();
        assert!(
            svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"),
            "{name}"
        );
        assert!(svg.contains("<polygon") || svg.contains("<rect"), "{name}");
    }
    let bars = fs::read_to_string(figures.join("qpep-pages-1.svg")).unwrap();
    for name in [
        "plain/cubic",
        "openvpn-udp/cubic",
        "bentpipe",
        "physical limit",
    ] {
        assert!(bars.contains(name), "{name}");
    }
    report.write_markdown(&text).unwrap();
    let text = fs::read_to_string(text).unwrap();
    assert!(text.contains("| in order only |") && text.contains("## Pavur et al., QPEP (2020)"));
}

#[test]
fn every_figure_is_drawn_wherever_it_is_looked_at() {
    if chromium("report").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    results(place);
    let page = |name: &str| place.join(format!("{name}.html"));
    let read = ResultsReport::read(&[place.to_owned()]).unwrap();
    read.write_page(&page("report")).unwrap();
    let text = fs::read_to_string(page("report")).unwrap();
    fs::write(page("empty"), emptied(&text)).unwrap();
    let wide = "<style>td { white-space: nowrap; min-width: 9em; display: table-cell !important }</style></head>";
    fs::write(page("wide"), text.replacen("</head>", wide, 1)).unwrap();
    fs::write(page("nothing"), "<!DOCTYPE html>").unwrap();
    look(place, &["report", "empty", "wide", "nothing"].map(page));
    let maps = place.join("figures");
    read.write_figures(&maps).unwrap();
    let svg = fs::read_dir(&maps)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let heat = svg.filter(|svg| {
        HEAT.iter()
            .all(|[r, g, b]| svg.contains(&format!("#{r:02X}{g:02X}{b:02X}")))
    });
    assert_eq!(heat.count(), TASKS.len());

    let report = seen(place, "report");
    assert_eq!(report.faults, [""; 0]);
    // Shares of figures for each link and task, goodput for each link, each task over all links.
    let figures = SCENARIOS.len() * TASKS.len() + SCENARIOS.len() + TASKS.len();
    assert_eq!(report.figures.len(), figures);
    for figure in &report.figures {
        check(place, "report", figure).unwrap();
    }
    // The figure that is not folded.
    let whole = Picture::read(&place.join("report.png"));
    for colour in CURVES[0] {
        assert!(whole.count(colour) > 500, "{colour:?}");
    }
    // No wider than a desk or a phone, where everything is to be seen too.
    assert_eq!(report.wider, [0, 0]);
    let phone = Picture::read(&place.join("report-phone.png"));
    assert_eq!(phone.width, 390);
    for colour in CURVES[0].iter().chain(&HEAT) {
        assert!(phone.count(*colour) > 200, "{colour:?} on a phone");
    }
    let [paper, blank] = ["report", "nothing"].map(|name| {
        let bytes = fs::read(place.join(format!("{name}.pdf"))).unwrap();
        assert!(bytes.starts_with(b"%PDF"));
        bytes.len()
    });
    assert!(
        paper > 20 * blank,
        "{paper} bytes on paper, {blank} for nothing"
    );

    // The checks find out what they are for.
    let empty = seen(place, "empty");
    assert_eq!(empty.figures.len(), figures);
    for figure in &empty.figures {
        assert!(check(place, "empty", figure).is_err(), "{}", figure.id);
    }
    assert!(seen(place, "wide").wider[1] > 0);
}
