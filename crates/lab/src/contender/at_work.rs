//! A contender at work, and what those who are between user and satellite report of what it carries.

use std::path::PathBuf;

use anyhow::Result;

use bentpipe_emulator::topology::{Process, Topology};

use super::bentpipe::Daemons;
use super::interception::Interception;
use super::repairs::Repairs;
use super::segments;
use super::split::Splitters;
use super::vpn::Vpn;

/// A contender at work; what it started ends when this is dropped, in this order.
#[derive(Debug, Default)]
pub struct AtWork {
    pub(super) splitters: Option<Splitters>,
    pub(super) daemons: Option<Daemons>,
    pub(super) processes: Vec<Process>,
    pub(super) interception: Option<Interception>,
    /// The program, where PEPs that relay segment by segment are at work.
    pub(super) segments: Option<PathBuf>,
    /// The VPN of the hosts that the others are under.
    pub(super) over: Option<Vpn>,
    /// Certificate of the CA, in PEM, that the user's browsers are to trust besides the web's.
    pub(super) local_authority: Option<String>,
}

/// Report of somebody between user and satellite on the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Name of who reports.
    pub by: &'static str,
    /// Bytes that passed through its hands, both ways.
    pub bytes: u64,
    /// Packets that were to pass through them and did not.
    pub past: u64,
    /// True if all of the content is to pass through them; if not, nothing of it: a PEP does not split a VPN's UDP.
    pub all: bool,
}

impl AtWork {
    /// Report of splitters, or of the rules that hand TCP to a program, on the content; `None` without either.
    ///
    /// # Errors
    /// Splitters or rules do not answer.
    pub fn carried(&self, topology: &Topology) -> Result<Option<Carried>> {
        let all = self.over.is_none_or(Vpn::is_tcp);
        if let Some(bentpipe) = &self.segments {
            segments::check_relayed(bentpipe, topology)?;
        }
        let own = |by, bytes| Carried {
            by,
            bytes,
            past: 0,
            all,
        };
        let carried = match (&self.splitters, &self.daemons, &self.interception) {
            (Some(splitters), None, _) => Some(own("the splitter", splitters.carried()?)),
            (_, Some(daemons), _) if self.over.is_some() => {
                Some(own("the PEP", daemons.carried()?))
            }
            (_, _, Some(interception)) => Some(Carried {
                all,
                ..interception.carried(topology)?
            }),
            _ => None,
        };
        Ok(carried)
    }

    /// Certificate of the CA, in PEM, that the user's browsers are to trust besides the web's own; `None` without one.
    #[must_use]
    pub fn local_authority(&self) -> Option<&str> {
        self.local_authority.as_deref()
    }

    /// Repairs that bentpipe's ends report; `None` where nobody is asked.
    ///
    /// # Errors
    /// The ends do not answer.
    pub fn repairs(&self) -> Result<Option<Repairs>> {
        self.daemons.as_ref().map(Daemons::repairs).transpose()
    }
}
