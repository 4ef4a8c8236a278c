//! `bentpipe emulate --selftest`: the emulator against closed forms, standards and published figures, as a table.
//!
//! What needs no clock runs in virtual time on the model itself and is exact on any machine. What does need one runs
//! with real sockets in namespaces, through the emulator as it is used; where the machine was too busy for that, or
//! lost packets itself, a row says INVALID instead of giving the machine's figure for the emulator's.
//!
//! ```text
//!  bench (Link in virtual time) ──► model, dvb, dama, opensand ────┐
//!                                                                   ├──► rows ──► table
//!  wire (namespaces, TUN, sockets) ──► propagation, rate, cpu, tcp ──┘
//! ```

mod bench;
mod dama;
mod dvb;
mod model;
mod opensand;
mod row;
mod wall;

use anyhow::{Result, bail};

use crate::Stop;
use row::{Row, Verdict};

/// Runs the self-test and says each row as soon as there is one; `quick` is the part that takes less than a minute.
///
/// # Errors
/// A row failed, the switch was thrown, or something is missing that a row needs.
pub fn run(quick: bool, stop: &Stop, say: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let mut table = Table::new(say)?;
    table.add(model::rows(quick)?)?;
    table.add(dvb::rows(quick)?)?;
    table.add(dama::rows()?)?;
    table.add(opensand::rows()?)?;
    wall::run(quick, stop, &mut |rows| table.add(rows))?;
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
                Verdict::Pass => 0,
                Verdict::Fail => 1,
                Verdict::Invalid(_) => 2,
            };
            self.counts[index] += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let [pass, fail, invalid] = self.counts;
        (self.say)(&format!("{pass} passed, {fail} failed, {invalid} invalid"))?;
        if fail > 0 {
            bail!("{fail} rows of the self-test failed");
        }
        Ok(())
    }
}
