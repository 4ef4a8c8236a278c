//! Everything that is done to an outer connection, and what is to come of it.

use std::sync::{Arc, Mutex, PoisonError};

use super::middle::{Act, Change, End, Name, Plan, Recorded, Unit, Way};

/// One thing that is done to one unit of a connection.
pub(super) struct Fault {
    side: Side,
    at: Name,
    harm: Harm,
    pub(super) expected: Expected,
}

/// Who has sent the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// What is done to the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// A bit is flipped.
    Flip(Spot),
    /// It does not arrive.
    Drop,
    /// One byte of it does not arrive.
    DropByte(Spot),
    /// It arrives twice.
    Repeat,
    /// It arrives behind the next one.
    Swap,
    /// That of another connection arrives in its place.
    Splice,
    /// Zeros arrive before it.
    Insert,
    /// So much of it arrives, and then the connection ends.
    Cut(Part, End),
}

/// A byte of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    First(usize),
    Middle,
    /// From the end, 1 is the last.
    Last(usize),
}

/// How much of a unit arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Half,
    Whole,
}

/// What is to come of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// The server refuses the connection for one of these causes, before it dials.
    NotDialled(&'static [&'static str]),
    /// The server never hears of the connection, and nobody is dialled.
    Unheard,
    /// The flow breaks at one end at least, and the application is reset.
    Broken,
    /// The applications may have had everything by then.
    Late,
}

impl Fault {
    /// Line that names the fault.
    pub(super) fn name(&self) -> String {
        let Self { side, at, harm, .. } = self;
        format!("{side:?}, {at:?}, {harm:?}")
    }

    /// True if it takes another connection that has been recorded.
    pub(super) fn is_splice(&self) -> bool {
        self.harm == Harm::Splice
    }

    /// What a middle box is to do; `spare` was recorded of another connection.
    pub(super) fn plan(&self, spare: &Recorded) -> Plan {
        let way = |side| Way {
            change: (self.side == side).then(|| self.change(spare)),
            ..Way::default()
        };
        Plan {
            up: way(Side::Client),
            down: way(Side::Server),
        }
    }

    fn change(&self, spare: &Recorded) -> Change {
        let (at, harm) = (self.at, self.harm);
        let spare = self.spare(spare);
        let late: Mutex<Option<Vec<u8>>> = Mutex::default();
        Arc::new(move |unit| {
            let mut late = late.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(late) = late.take() {
                return Act::Send([unit.bytes, &late].concat());
            }
            if unit.name != at {
                return Act::Pass;
            }
            if harm == Harm::Swap {
                *late = Some(unit.bytes.to_vec());
            }
            harm.done_to(unit, &spare)
        })
    }

    /// Unit of another connection that has the same place.
    fn spare(&self, spare: &Recorded) -> Vec<u8> {
        let units = match self.side {
            Side::Client => &spare.up,
            Side::Server => &spare.down,
        };
        let preface = usize::from(self.side == Side::Client);
        let mut empty = units.iter().filter(|unit| unit.len() == 19);
        let unit = match self.at {
            Name::Preface => units.first(),
            Name::Record(number) => units.get(number + preface),
            Name::Empty(number) => empty.nth(number),
        };
        unit.cloned().unwrap_or_default()
    }
}

impl Harm {
    fn done_to(self, unit: &Unit<'_>, spare: &[u8]) -> Act {
        let bytes = unit.bytes;
        match self {
            Self::Flip(spot) => {
                let mut bytes = bytes.to_vec();
                let mask = if spot == Spot::First(1) { 0x01 } else { 0x80 };
                bytes[spot.in_unit(unit)] ^= mask;
                Act::Send(bytes)
            }
            Self::DropByte(spot) => {
                let mut bytes = bytes.to_vec();
                bytes.remove(spot.in_unit(unit));
                Act::Send(bytes)
            }
            Self::Drop | Self::Swap => Act::Send(Vec::new()),
            Self::Repeat => Act::Send([bytes, bytes].concat()),
            Self::Splice => Act::Send(spare.to_vec()),
            Self::Insert => Act::Send([&[0; 40], bytes].concat()),
            Self::Cut(part, end) => {
                let length = match part {
                    Part::Nothing => 0,
                    Part::Half => bytes.len() / 2,
                    Part::Whole => bytes.len(),
                };
                Act::End(bytes[..length].to_vec(), end)
            }
        }
    }
}

impl Spot {
    fn in_unit(self, unit: &Unit<'_>) -> usize {
        match self {
            Self::First(place) => place,
            Self::Middle => unit.bytes.len() / 2,
            Self::Last(place) => unit.bytes.len() - place,
        }
    }
}

/// Parts of a record: both bytes of the length, the kind, the body, both ends of the tag.
const SPOTS: [Spot; 6] = [
    Spot::First(0),
    Spot::First(1),
    Spot::First(2),
    Spot::Middle,
    Spot::Last(16),
    Spot::Last(1),
];

const ENDS: [End; 3] = [End::Half, End::Both, End::Reset];

const REFUSED: Expected = Expected::NotDialled(&["record"]);
/// Where the length is wrong: what follows is waited for, or does not fit.
const MISFIT: Expected = Expected::NotDialled(&["record", "incomplete"]);
const INCOMPLETE: Expected = Expected::NotDialled(&["incomplete"]);

/// All of them.
pub(super) fn all() -> Vec<Fault> {
    let faults = [
        in_the_preface(),
        in_the_first_records(),
        in_payload(),
        at_the_ends(),
        cuts(),
    ];
    faults.into_iter().flatten().collect()
}

fn fault(side: Side, at: Name, harm: Harm, expected: Expected) -> Fault {
    Fault {
        side,
        at,
        harm,
        expected,
    }
}

fn in_the_preface() -> Vec<Fault> {
    let flipped: [(usize, &'static [&'static str]); 8] = [
        (0, &["preface"]),
        (1, &["preface"]),
        (2, &["epoch"]),
        (3, &["epoch"]),
        (4, &["association"]),
        (7, &["association"]),
        (8, &["record"]),
        (15, &["record"]),
    ];
    let mut faults: Vec<_> = flipped
        .into_iter()
        .map(|(place, causes)| (Harm::Flip(Spot::First(place)), Expected::NotDialled(causes)))
        .collect();
    faults.extend([
        (Harm::Drop, Expected::NotDialled(&["preface"])),
        (Harm::Insert, Expected::NotDialled(&["preface"])),
        (Harm::DropByte(Spot::Middle), MISFIT),
        (Harm::Repeat, MISFIT),
        (Harm::Splice, Expected::NotDialled(&["replayed"])),
    ]);
    let at = |(harm, expected)| fault(Side::Client, Name::Preface, harm, expected);
    faults.into_iter().map(at).collect()
}

/// OPEN and REPLY.
fn in_the_first_records() -> Vec<Fault> {
    let open = |harm, expected| fault(Side::Client, Name::Record(0), harm, expected);
    let reply = |harm| fault(Side::Server, Name::Record(0), harm, Expected::Broken);
    let mut faults: Vec<_> = SPOTS
        .into_iter()
        .map(|spot| match spot {
            Spot::First(1) => open(Harm::Flip(spot), MISFIT),
            _ => open(Harm::Flip(spot), REFUSED),
        })
        .collect();
    faults.extend([
        open(Harm::DropByte(Spot::Middle), MISFIT),
        open(Harm::Drop, REFUSED),
        open(Harm::Insert, REFUSED),
        open(Harm::Splice, REFUSED),
        // Record 0 is in order, and is no record 1.
        open(Harm::Repeat, Expected::Broken),
    ]);
    let spots = SPOTS.into_iter().filter(|spot| *spot != Spot::First(1));
    faults.extend(spots.map(|spot| reply(Harm::Flip(spot))));
    faults.extend([Harm::Repeat, Harm::Insert, Harm::Splice].map(reply));
    faults
}

/// DATA: early and late.
fn in_payload() -> Vec<Fault> {
    let others = [
        Harm::Drop,
        Harm::DropByte(Spot::Middle),
        Harm::Repeat,
        Harm::Swap,
        Harm::Splice,
        Harm::Insert,
    ];
    let harms: Vec<_> = SPOTS.into_iter().map(Harm::Flip).chain(others).collect();
    let units = [
        (Side::Client, 1),
        (Side::Client, 2),
        (Side::Client, 25),
        (Side::Server, 2),
        (Side::Server, 25),
    ];
    units
        .into_iter()
        .flat_map(|(side, number)| {
            let at = move |harm: &Harm| fault(side, Name::Record(number), *harm, Expected::Broken);
            harms.iter().map(at)
        })
        .collect()
}

/// FIN and DONE: a client's FIN is its first record without a body, a server's its second.
fn at_the_ends() -> Vec<Fault> {
    let harms = [
        Harm::Flip(Spot::First(0)),
        Harm::Flip(Spot::First(1)),
        Harm::Flip(Spot::First(2)),
        Harm::Flip(Spot::Last(1)),
        Harm::DropByte(Spot::Last(1)),
        Harm::Insert,
        Harm::Repeat,
        Harm::Splice,
    ];
    let units = [
        (Side::Client, 0, Expected::Broken),
        (Side::Client, 1, Expected::Late),
        (Side::Server, 0, Expected::Broken),
        (Side::Server, 1, Expected::Broken),
    ];
    // One byte that lacks, or a second FIN, is no matter if nothing follows.
    let silent = |side, number, harm| {
        let open_end = matches!(harm, Harm::DropByte(_) | Harm::Repeat);
        open_end && (side, number) != (Side::Server, 0)
    };
    units
        .into_iter()
        .flat_map(|(side, number, expected)| {
            let harms = harms
                .into_iter()
                .filter(move |harm| !silent(side, number, *harm));
            harms.map(move |harm| fault(side, Name::Empty(number), harm, expected))
        })
        .collect()
}

/// Connections that end early.
fn cuts() -> Vec<Fault> {
    use Part::{Half, Nothing, Whole};
    let units = [
        (Side::Client, Name::Preface, Nothing, INCOMPLETE),
        (Side::Client, Name::Preface, Half, INCOMPLETE),
        (Side::Client, Name::Preface, Whole, INCOMPLETE),
        (Side::Client, Name::Record(0), Half, INCOMPLETE),
        (Side::Client, Name::Record(0), Whole, Expected::Broken),
        (Side::Client, Name::Record(5), Half, Expected::Broken),
        (Side::Client, Name::Record(5), Whole, Expected::Broken),
        (Side::Client, Name::Empty(0), Nothing, Expected::Broken),
        (Side::Client, Name::Empty(0), Half, Expected::Broken),
        // The answer may be there before the end is.
        (Side::Client, Name::Empty(0), Whole, Expected::Late),
        (Side::Client, Name::Empty(1), Nothing, Expected::Late),
        (Side::Server, Name::Record(0), Nothing, Expected::Broken),
        (Side::Server, Name::Record(0), Half, Expected::Broken),
        (Side::Server, Name::Record(0), Whole, Expected::Broken),
        (Side::Server, Name::Record(5), Half, Expected::Broken),
        (Side::Server, Name::Record(5), Whole, Expected::Broken),
        (Side::Server, Name::Empty(0), Nothing, Expected::Broken),
        (Side::Server, Name::Empty(1), Nothing, Expected::Broken),
        (Side::Server, Name::Empty(1), Half, Expected::Broken),
        (Side::Server, Name::Empty(1), Whole, Expected::Late),
    ];
    units
        .into_iter()
        .flat_map(|(side, at, part, expected)| {
            ENDS.map(|end| {
                // The kernel hands on a connection once it has said something, or ended.
                let unheard = (at, part, end) == (Name::Preface, Nothing, End::Reset);
                let expected = if unheard { Expected::Unheard } else { expected };
                fault(side, at, Harm::Cut(part, end), expected)
            })
        })
        .collect()
}
