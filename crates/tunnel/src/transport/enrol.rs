//! A client that has a one-time key names the key of its own (`PROTOCOL.md` §16). Who may do so is the shell's business.

use bentpipe_proto::tunnel::{Control, ENROL_KEY, EnrolCode};
use quinn_proto::Side;

use super::event::{Fault, TunnelEvent};
use super::tunnel::Tunnel;

impl Tunnel {
    /// Client: names the key that it will connect with; the answer is [`TunnelEvent::Enrolled`].
    pub fn enrol(&mut self, key: [u8; ENROL_KEY]) {
        self.send_control(&Control::Enrol { key });
    }

    /// Server: tells the client what came of its key; `at` are seconds since 1970.
    pub fn enrolled(&mut self, code: EnrolCode, at: u64) {
        self.send_control(&Control::Enrolled { code, at });
    }

    pub(super) fn on_enrol(&mut self, key: [u8; ENROL_KEY]) -> Result<(), Fault> {
        if self.side == Side::Client {
            return Err(Fault::Violation("a server that wants to enrol"));
        }
        self.events.push_back(TunnelEvent::Enrol(key));
        Ok(())
    }

    pub(super) fn on_enrolled(&mut self, code: EnrolCode, at: u64) -> Result<(), Fault> {
        if self.side == Side::Server {
            return Err(Fault::Violation("a client that enrols its server"));
        }
        self.events.push_back(TunnelEvent::Enrolled(code, at));
        Ok(())
    }
}
