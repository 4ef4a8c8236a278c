//! Probes of a run, as lines of JSON: what is read becomes curves that are JSON again, a point per line each.
//!
//! The module is compiled here: the rest of the lab, with its web server and TLS, would be of no use.

use std::hint::black_box;

use serde_json::Value;

#[path = "../../crates/emulator/src/plot/columns.rs"]
mod columns;
#[path = "../../crates/emulator/src/plot/panel.rs"]
mod panel;

use columns::Columns;

pub(crate) fn plot(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut columns = Columns::default();
    for line in text.lines() {
        // What is no probe is told, and what came before it stays.
        if columns.add(line).is_err() {
            break;
        }
    }
    let written = serde_json::to_string(&columns.curves()).expect("curves can be written");
    for total in columns.totals() {
        let (terminal, way, rate) = (total.terminal, total.direction, total.goodput);
        black_box((terminal, way, rate, total.delivered, total.dropped));
    }
    let read: Value = serde_json::from_str(&written).expect("what was written can be read");
    let terminals = read.as_array().expect("a list");
    assert_eq!(terminals.is_empty(), columns.is_empty());
    for terminal in terminals {
        let points = list(terminal, "t").len();
        for panel in list(terminal, "panels") {
            for curve in list(panel, "curves") {
                assert_eq!(list(curve, "y").len(), points);
            }
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("a list")
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let way = r#"{"cn_db":13.5,"modcod":21,"capacity_bps":1000000,"one_way_delay_ms":250.0,"queue_bytes":3000,"delivered_bytes":9000,"dropped":{"queue_full":1,"codel":0}}"#;
    let line = |t: f64, name: &str| {
        format!("{{\"t_s\":{t},\"terminal\":\"{name}\",\"forward\":{way},\"return\":{way}}}\n")
    };
    let events = "{\"t_s\":0.2,\"event\":\"requested\",\"terminal\":0,\"rbdc\":\"5 Mbit/s\"}\n\
        {\"t_s\":0.3,\"event\":\"granted\",\"terminal\":0,\"bit_rate\":\"4 Mbit/s\"}\n";
    vec![
        (line(0.1, "ship") + &line(0.2, "ship")).into_bytes(),
        (line(0.1, "ship") + events + &line(0.4, "shore") + &line(0.5, "ship")).into_bytes(),
    ]
}
