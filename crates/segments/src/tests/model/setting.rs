//! Settings of a run of the model, and its result.

use crate::{Bounds, Counts};

use super::script::{Micros, Script};
use super::tcp::State;

/// Path of packets in one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) delay: Micros,
    /// Chances in a thousand that a packet is lost, comes late, comes twice.
    pub(crate) lost: usize,
    pub(crate) late: usize,
    pub(crate) twice: usize,
}

/// Harm to a PEP or to the link between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Harm {
    None,
    /// No stream can ever be had.
    NoLink,
    /// The PEP beside this end (0: the initiator's) is killed and started again at this time.
    Restart(usize, Micros),
    /// All streams break off at this time.
    LinkDies(Micros),
}

/// Everything that is chosen before a run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) scripts: [Script; 2],
    /// LANs of both ends, and the long path of what passes.
    pub(crate) lans: [Hop; 2],
    pub(crate) long: Hop,
    /// Delay of the stream beyond that of packets, bytes that it holds, bytes that it takes at once.
    pub(crate) stream: (Micros, usize, usize),
    pub(crate) bounds: Bounds,
    /// Time after which each PEP notices that the stream has broken off.
    pub(crate) notices: [Micros; 2],
    pub(crate) harm: Harm,
    /// A PEP that was restarted resets what it does not know.
    pub(crate) renews: bool,
}

/// Outcome of a run.
#[derive(Debug)]
pub(crate) struct Report {
    /// State of all when nothing went on any more, though an end was not finished.
    pub(crate) hung: Option<String>,
    pub(crate) states: [State; 2],
    /// Ends in order that the ends have seen.
    pub(crate) fins: [bool; 2],
    /// Bytes that the ends have received in order.
    pub(crate) received: [u64; 2],
    pub(crate) counts: [Counts; 2],
}

/// Setting of a run, drawn from `choose`.
pub(crate) fn setting(choose: &mut dyn FnMut(usize) -> usize) -> Setting {
    let zones = choose(2) == 0;
    let waits = choose(4) == 0;
    let mut script = |waits| {
        let mss = [536, 1000, 1344, 1364][choose(4)];
        let total = match choose(8) {
            0 => 0,
            1..=5 => choose(6_000),
            _ => choose(80_000),
        };
        let slow = choose(4) == 0;
        Script {
            total: total as u64,
            writes: (100 + choose(8_000) as u64, choose(200_000) as u64),
            reads: if slow {
                (200 + choose(2_000) as u64, 200_000)
            } else {
                (100_000, 1_000)
            },
            room: [2_000, 8_000, 30_000, 65_000, 200_000][choose(5)],
            mss,
            scale: [None, Some(0), Some(2), Some(7)][choose(4)],
            waits,
            byte_probes: choose(2) == 0,
            aborts: (choose(20) == 0).then(|| choose(5_000) as u64),
            leaves: false,
            keeps_alive: false,
            salt: choose(1 << 30) as u64,
            initial: (choose(1 << 16) << 16 | choose(1 << 16)) as u32,
            zones,
        }
    };
    let mut scripts = [script(false), script(waits)];
    // An RST that is lost leaves a plain connection half open, too.
    let aborts = scripts.iter().any(|script| script.aborts.is_some());
    scripts
        .iter_mut()
        .for_each(|script| script.keeps_alive = aborts);
    let losses = [0, 0, 1, 10, 50, 150][choose(6)];
    let late = [0, 10, 100][choose(3)];
    let twice = [0, 20][choose(2)];
    let hop = |delay| Hop {
        delay,
        lost: losses,
        late,
        twice,
    };
    let lans = [hop(500), hop(3_000)];
    let long = hop(130_000);
    let at = choose(4_000_000) as u64;
    Setting {
        scripts,
        lans,
        long,
        stream: (
            choose(30_000) as u64,
            [3_000, 16_000, 100_000][choose(3)],
            [500, 20_000][choose(2)],
        ),
        bounds: Bounds {
            known: 4,
            relayed: 4,
            room: [4_000, 20_000, 100_000][choose(3)],
        },
        notices: [(); 2].map(|()| choose(8_000_000) as u64),
        harm: match choose(8) {
            0 => Harm::NoLink,
            1 => Harm::LinkDies(at),
            2 => Harm::Restart(0, at),
            3 => Harm::Restart(1, at),
            _ => Harm::None,
        },
        renews: choose(2) == 0,
    }
}
