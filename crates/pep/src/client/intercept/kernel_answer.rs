//! Answers that the kernel gives hosts in the place of the client.

use bentpipe_proto::tunnel::ReplyCode;

/// Answer that the kernel gives in the place of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelAnswer {
    /// A reset (ECONNREFUSED), where the destination refused, or is not allowed.
    Reset,
    /// ICMP host-unreachable (EHOSTUNREACH), where the destination cannot be reached or did not answer. The kernel
    /// rate-limits these per host, and a process of this machine may see one only after its second SYN (1 s).
    HostUnreachable,
}

impl KernelAnswer {
    /// Answer to the next attempts, if the reason `code` of a refusal is one that lasts.
    pub(crate) fn lasting(code: ReplyCode) -> Option<Self> {
        match code {
            ReplyCode::Refused | ReplyCode::Denied => Some(Self::Reset),
            ReplyCode::NetworkUnreachable | ReplyCode::HostUnreachable | ReplyCode::TimedOut => {
                Some(Self::HostUnreachable)
            }
            ReplyCode::Ok
            | ReplyCode::NameNotFound
            | ReplyCode::FamilyUnsupported
            | ReplyCode::LimitReached
            | ReplyCode::Internal
            | ReplyCode::Draining => None,
        }
    }
}
