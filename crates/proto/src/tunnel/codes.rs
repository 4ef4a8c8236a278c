//! Numbers with names: one macro for the code registries, and the registries that belong to no single frame.
//!
//! [`AbortCode`] ends a flow, [`CloseCode`] ends the tunnel (`PROTOCOL.md` §8, §10). Codes only; the reactions to them
//! live in the relay and in the engine.

/// An enum of codes whose numbers are read (`from_code`) and written (`code`) without a second table to keep in step.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub enum $name:ident, unknown = $unknown:ident { $( $(#[$doc:meta])* $variant:ident = $code:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$doc])* $variant, )+ }

        impl $name {
            /// Every code, in the order of the registry.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> u64 {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The code of a number from the wire; unknown numbers become one code, named in the description of the type.
            #[must_use]
            pub const fn from_code(code: u64) -> Self {
                match code { $($code => Self::$variant,)+ _ => Self::$unknown }
            }
        }
    };
}
pub(super) use codes;

codes! {
    /// Reason why a flow ended before its time (FLOW_ABORT, RESET_STREAM, STOP_SENDING). An unknown code is read as
    /// [`AbortCode::Internal`].
    pub enum AbortCode, unknown = Internal {
        /// The TCP connection was reset by its host.
        Reset = 0,
        /// The TCP connection timed out.
        TimedOut = 1,
        /// The network reported the host unreachable.
        Unreachable = 2,
        /// The relay ran out of memory for the flow.
        MemoryLimit = 3,
        /// The relay is shutting down.
        Shutdown = 4,
        /// Anything else.
        Internal = 5,
        /// The receiver does not know the stream's kind.
        Unsupported = 6,
        /// The server's policy no longer permits the destination.
        Denied = 7,
    }
}

codes! {
    /// Reason why the tunnel was closed: the application error code of CONNECTION_CLOSE (RFC 9000 §19.19, type 0x1d).
    /// An unknown code is read as [`CloseCode::ProtocolViolation`].
    pub enum CloseCode, unknown = ProtocolViolation {
        /// Nothing is wrong; the peer is done.
        NoError = 0,
        /// A header, frame or stream that `PROTOCOL.md` forbids.
        ProtocolViolation = 1,
        /// More payload on a flow than its credit.
        CreditExceeded = 2,
        /// A newer instance connected with the same key.
        Replaced = 3,
        /// The server no longer lists the client's key.
        Removed = 4,
        /// The server speaks no version that the client offers.
        VersionUnsupported = 5,
        /// The peer's process is stopping.
        Shutdown = 6,
    }
}
