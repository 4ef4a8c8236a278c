//! What comes of ENROL: a client with a one-time key names its own (`PROTOCOL.md` §16).

use super::codes::codes;

/// Bytes of a public key in ENROL.
pub const ENROL_KEY: usize = 32;

codes! {
    /// Outcome of ENROL. An unknown code is read as [`EnrolCode::Internal`].
    pub enum EnrolCode, unknown = Internal {
        /// The key in ENROL is the client's from now on.
        Ok = 0,
        /// The enrolment key was used before, for another key.
        Used = 1,
        /// The enrolment key has expired.
        Expired = 2,
        /// Another client has the key in ENROL, or it is no key.
        KeyTaken = 3,
        /// The server could not record the key.
        Internal = 4,
    }
}
