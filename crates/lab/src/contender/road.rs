//! Road of a user's bytes under each contender: where TCP ends between host and origin, and where the bytes are encrypted.

use super::program::KnownProgram;
use super::split::Place;
use super::vpn::{Pep, Vpn};
use super::{Carrier, Contender};

/// Sections of the road: host to terminal, the satellite, gateway to origin.
const SECTIONS: usize = 3;

/// Characters that a section is drawn with.
const LENGTH: usize = 8;

/// Road of the user's bytes from the host to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Road {
    /// True of the terminal and of the gateway if TCP ends there.
    ends: [bool; SECTIONS - 1],
    /// True of each section that is encrypted.
    encrypted: [bool; SECTIONS],
}

const SATELLITE: [bool; SECTIONS] = [false, true, false];
const NOWHERE: [bool; SECTIONS] = [false; SECTIONS];
const EVERYWHERE: [bool; SECTIONS] = [true; SECTIONS];
const BOTH: [bool; 2] = [true; 2];
const NONE: [bool; 2] = [false; 2];
const TERMINAL: [bool; 2] = [true, false];

impl Road {
    /// Road under a contender; none of a program that the lab does not know.
    #[must_use]
    pub fn of(contender: &Contender) -> Option<Self> {
        let (ends, encrypted) = match &contender.carrier {
            Carrier::Plain => (NONE, NOWHERE),
            Carrier::Bentpipe(_) | Carrier::Segments | Carrier::Accelerator => (BOTH, SATELLITE),
            Carrier::Split(place) => (split(*place), NOWHERE),
            Carrier::Vpn(_, _, place) => (place.map_or(NONE, split), SATELLITE),
            Carrier::Hosts(vpn, pep) => (under(*vpn, pep.as_ref()), EVERYWHERE),
            Carrier::Program(program) => match program.known()? {
                KnownProgram::Pepsal => (TERMINAL, NOWHERE),
                KnownProgram::Hysteria2(_) | KnownProgram::Qpep(_) | KnownProgram::Masque => {
                    (BOTH, SATELLITE)
                }
            },
        };
        Some(Self { ends, encrypted })
    }

    /// The road in one line: `●` where TCP ends, `┼` where it passes, `═` where the bytes are encrypted, `─` where they are not.
    #[must_use]
    pub fn drawing(self) -> String {
        let mut text = String::from("●");
        let ends = self.ends.into_iter().chain([true]);
        for (end, encrypted) in ends.zip(self.encrypted) {
            text.push_str(&if encrypted { "═" } else { "─" }.repeat(LENGTH));
            text.push_str(if end { "●" } else { "┼" });
        }
        text
    }
}

/// Ends of TCP that a splitter makes of the user's TCP.
fn split(place: Place) -> [bool; 2] {
    match place {
        Place::Distributed | Place::Inside => BOTH,
        Place::Terminal => TERMINAL,
        Place::Gateway => [false, true],
        // The splitter has the VPN's own TCP, and the user's goes through inside.
        Place::Around => NONE,
    }
}

/// Ends that an operator's PEP makes of a VPN between the hosts.
fn under(vpn: Vpn, pep: Option<&Pep>) -> [bool; 2] {
    match pep {
        Some(Pep::Accelerator | Pep::Split) if vpn.is_tcp() => BOTH,
        Some(Pep::Segments) => BOTH,
        Some(Pep::Pepsal(_)) if vpn.is_tcp() => TERMINAL,
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_road_shows_where_tcp_ends_and_what_is_encrypted() {
        for (name, drawing) in [
            ("plain/cubic", "●────────┼────────┼────────●"),
            ("split/cubic", "●────────●────────●────────●"),
            ("split-gateway", "●────────┼────────●────────●"),
            ("wireguard/cubic", "●────────┼════════┼────────●"),
            ("bentpipe", "●────────●════════●────────●"),
            ("ipsec@hosts+accelerator", "●════════┼════════┼════════●"),
            ("sle@hosts+accelerator", "●════════●════════●════════●"),
            ("les@hosts+pep", "●════════●════════●════════●"),
            ("clear+pep", "●────────●════════●────────●"),
            ("pepsal", "●────────●────────┼────────●"),
            ("masque", "●────────●════════●────────●"),
        ] {
            let contender: Contender = name.parse().unwrap();
            let found = Road::of(&contender).map(Road::drawing);
            assert_eq!(found.as_deref(), Some(drawing), "{name}");
        }
    }
}
