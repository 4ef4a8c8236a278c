//! An operator's PEP: TCP is answered at the terminal, crosses on a standing connection between terminal and gateway, and is
//! sent at the rate that the operator has sold.
//!
//! Its backbone is bentpipe's tunnel, told the link's rates. Only TCP goes through it; UDP, ESP and ICMP pass as they are. Both
//! LANs carry clear TCP, as with any such PEP; that the hop between is encrypted costs about 3 % of the bytes, which others save.
//!
//! ```text
//!  user ──TCP── client ══ link ══ server ──TCP── web
//!    └──────── UDP, ESP ─ link ─────────────────┘
//! ```

use std::path::Path;

use anyhow::Result;
use bentpipe_emulator::topology::Topology;

use super::{Daemons, Settings};

/// Starts both ends, which are told the rates of `topology`'s link; `local`: the terminal's own traffic is taken in, too.
pub(super) fn start(bentpipe: &Path, topology: &Topology, local: bool) -> Result<Daemons> {
    let settings = Settings {
        profile: Some("geo"),
        rates: Some(topology.nominal_rates()),
        tcp_alone: true,
        local,
        ..Settings::default()
    };
    Daemons::start(bentpipe, topology, &settings)
}
