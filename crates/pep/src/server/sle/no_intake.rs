//! Without Linux no connection is taken in on its way.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use super::super::packets::Repairs;
use crate::config::SleIntake;

/// Nothing.
pub(in crate::server) struct IntakeRules(Infallible);

impl IntakeRules {
    pub(super) fn install(
        _intake: &SleIntake,
        _listeners: &[SocketAddr],
        _own: &[u16],
    ) -> io::Result<Self> {
        Err(io::Error::other("only Linux has TPROXY"))
    }

    pub(in crate::server) const fn remove_leftover() {}

    pub(in crate::server) fn repairs(&self) -> Option<Repairs> {
        match self.0 {}
    }
}
