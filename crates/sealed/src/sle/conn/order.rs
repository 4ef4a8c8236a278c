//! Order of the records that end directions: what this end has sent, and what the peer may still
//! send.

use crate::sle::Kind;

/// Ends that this end has sent, and steps that it has asked its LAN side for. Each happens once.
#[derive(Debug, Default)]
pub(super) struct Sent {
    fin: bool,
    done: bool,
    abort: bool,
    shut_asked: bool,
    lan_reset: bool,
}

impl Sent {
    pub(super) fn fin(&self) -> bool {
        self.fin
    }

    pub(super) fn done(&self) -> bool {
        self.done
    }

    pub(super) fn set_fin(&mut self) {
        self.fin = true;
    }

    pub(super) fn set_done(&mut self) {
        self.done = true;
    }

    pub(super) fn set_abort(&mut self) {
        self.abort = true;
    }

    /// Asks that the LAN is told of the end; false if that was asked before.
    pub(super) fn ask_shut(&mut self) -> bool {
        !std::mem::replace(&mut self.shut_asked, true)
    }

    /// Asks that the LAN side is reset; false if that was asked before.
    pub(super) fn reset_lan(&mut self) -> bool {
        !std::mem::replace(&mut self.lan_reset, true)
    }

    /// Says whether the LAN was asked to end, and DONE has not been sent for it.
    pub(super) fn may_confirm(&self) -> bool {
        self.shut_asked && !self.done
    }
}

/// Records that have come, as far as they limit those to come.
#[derive(Debug)]
pub(super) struct Order {
    awaits_reply: bool,
    fin: bool,
    done: bool,
    abort: bool,
}

impl Order {
    /// Order of what a server sends.
    pub(super) fn of_server() -> Self {
        Self {
            awaits_reply: true,
            ..Self::of_client()
        }
    }

    /// Order of what a client sends after OPEN.
    pub(super) fn of_client() -> Self {
        Self {
            awaits_reply: false,
            fin: false,
            done: false,
            abort: false,
        }
    }

    pub(super) fn fin(&self) -> bool {
        self.fin
    }

    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// Takes note of a record; false if it must not come here.
    pub(super) fn take(&mut self, kind: Kind, sent: &Sent) -> bool {
        if self.abort {
            return false;
        }
        match kind {
            Kind::Open => false,
            Kind::Reply => std::mem::replace(&mut self.awaits_reply, false),
            Kind::Data => !self.awaits_reply && !self.fin,
            Kind::Fin => !self.awaits_reply && !std::mem::replace(&mut self.fin, true),
            Kind::Done => {
                let due = sent.abort || sent.fin && !self.awaits_reply;
                due && !std::mem::replace(&mut self.done, true)
            }
            Kind::Abort => {
                self.abort = true;
                true
            }
        }
    }
}
