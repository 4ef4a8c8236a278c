//! Of what a kernel or a program in user space can do alike, which there is.

use std::fmt;

/// Program or part of the kernel that processes a tunnel's packets, and its version.
#[derive(Debug, Clone)]
pub(super) enum TunnelBuild {
    Kernel(String),
    UserSpace(String),
}

impl fmt::Display for TunnelBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Kernel(version) | Self::UserSpace(version)) = self;
        f.write_str(version)
    }
}
