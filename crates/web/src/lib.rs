//! Pages whose objects are fetched ahead (`PROTOCOL.md` §19), without sockets and without a clock.
//!
//! ```text
//!  browser ── GET ──► request ══ REQUEST ══► origin's page ──► response ──► links ──► ahead
//!  browser ◄── store ◄══ PROMISE, HEAD, DATA, END, FAILED ═══════════════════════════ ahead ◄── origin's objects
//!             client                                                                 server
//! ```
//!
//! Bytes of origin and browser cross as they are: what is parsed here is a copy.

mod ahead;
mod answer_end;
mod body;
mod fields;
mod frame;
mod head_looks;
mod incoming;
mod links;
mod page_bytes;
mod request;
mod response;
mod scheme;
mod store;
mod tags;
mod target;
mod unpack;

pub use ahead::{Ahead, MAX_AT_ONCE, MAX_BLOCKING, MAX_OBJECT, MAX_OBJECTS, MAX_PAGE};
pub use answer_end::AnswerEnd;
pub use body::BodyReader;
pub use frame::{Closing, Frame, FrameError, FrameReader, MAX_DATA, MAX_FRAME, PAGE};
pub use head_looks::{HeadLook, HeadLooks};
pub use incoming::{Incoming, Part};
pub use links::{Link, Links};
pub use page_bytes::{ObjectBytes, PageBytes};
pub use request::{MAX_PIECES, MAX_REQUEST, Request, Verdict, judge};
pub use response::{Body, MAX_INTERIM, MAX_RESPONSE, MAX_RESPONSE_FIELDS, Malformed, Response};
pub use scheme::Scheme;
pub use store::{Answer, Asked, Figures, LIFE, MAX_STORED, PageId, Store};
