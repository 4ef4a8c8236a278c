//! `bentpipe emulate --selftest`: the emulator against closed forms, standards and published figures, as a table.
//!
//! What needs no clock runs in virtual time on the model itself and is exact on any machine. What does need one runs
//! with real sockets in namespaces, through the emulator as it is used; where the machine was too busy for that, or
//! lost packets itself, a row says INVALID instead of giving the machine's figure for the emulator's.
//!
//! ```text
//!  bench (Link in virtual time) ──► model, dvb, dama, opensand ────┐
//!                                                                   ├──► rows ──► table
//!  wire (namespaces, TUN, sockets) ──► propagation, rate, cpu, tcp ──┤
//!  strangers (ping, iperf3) ──► outside ─────────────────────────────┘
//! ```

mod bench;
mod dama;
mod dvb;
mod model;
mod opensand;
mod row;
mod wall;

use std::fmt;

use anyhow::{Result, bail, ensure};

use crate::Stop;
use row::{Row, RowVerdict};

/// Part of the self-test to run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The part that takes less than a minute.
    pub quick: bool,
    /// Only measurements whose title contains this, in any case.
    pub only: Option<String>,
}

impl Selection {
    fn wants(&self, title: &str) -> bool {
        let title = title.to_lowercase();
        let only = self.only.as_ref();
        only.is_none_or(|text| title.contains(&text.to_lowercase()))
    }
}

/// No row has the title that was asked for.
#[derive(Debug)]
pub struct NoSuchRow;

impl fmt::Display for NoSuchRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no row of the self-test has such a title")
    }
}

impl std::error::Error for NoSuchRow {}

/// Runs the self-test and says each row as soon as there is one.
///
/// # Errors
/// A row failed, the switch was thrown, something is missing that a row needs, or nothing is selected ([`NoSuchRow`]).
pub fn run(
    selection: &Selection,
    stop: &Stop,
    say: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    type Rows = fn(bool) -> Result<Vec<Row>>;
    let virtual_time: [(&str, Rows); 4] = [
        ("model: queue, rate, loss, determinism", model::rows),
        ("DVB-S2: MODCODs, PER, ACM edge", dvb::rows),
        ("DAMA", |_| dama::rows()),
        ("OpenSAND", |_| opensand::rows()),
    ];
    let mut table = Table::new(say)?;
    for (title, rows) in virtual_time {
        if selection.wants(title) {
            table.add(rows(selection.quick)?)?;
        }
    }
    wall::run(selection, stop, &mut |rows| table.add(rows))?;
    table.finish()
}

/// The table so far.
struct Table<'a> {
    say: &'a mut dyn FnMut(&str) -> Result<()>,
    counts: [usize; 3],
}

impl<'a> Table<'a> {
    fn new(say: &'a mut dyn FnMut(&str) -> Result<()>) -> Result<Self> {
        say(&Row::head())?;
        Ok(Self {
            say,
            counts: [0; 3],
        })
    }

    fn add(&mut self, rows: Vec<Row>) -> Result<()> {
        for row in rows {
            (self.say)(row.to_string().trim_end())?;
            let index = match row.verdict {
                RowVerdict::Pass => 0,
                RowVerdict::Fail => 1,
                RowVerdict::Invalid(_) => 2,
            };
            self.counts[index] += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let [pass, fail, invalid] = self.counts;
        ensure!(pass + fail + invalid > 0, NoSuchRow);
        (self.say)(&format!("{pass} passed, {fail} failed, {invalid} invalid"))?;
        if fail > 0 {
            bail!("{fail} rows of the self-test failed");
        }
        Ok(())
    }
}
