//! One object of a store.

use std::time::Instant;

use super::{AHEAD, PageId};
use crate::{Body, Request, Response};

/// Object that was promised, and what has come of it.
pub(super) struct Object {
    pub(super) page: PageId,
    pub(super) id: u64,
    pub(super) assumed: Request,
    /// Bytes of the object that have come, copied: pieces would hold all that came beside them.
    pub(super) bytes: Vec<u8>,
    /// Moment at which bytes of it have come last, or its promise.
    pub(super) moved: Instant,
    /// Moment at which its first bytes have come.
    pub(super) began: Option<Instant>,
    /// Since when it is whole, and whether the origin has closed.
    pub(super) whole: Option<(Instant, bool)>,
}

impl Object {
    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes of memory that it takes.
    pub(super) fn held(&self) -> u64 {
        (self.bytes.capacity() + self.assumed.held()) as u64
    }

    /// True unless `request`, which is made `now`, is for something newer.
    pub(super) fn is_young(&self, now: Instant, request: &Request) -> bool {
        let age = self
            .whole
            .map(|(since, _)| now.saturating_duration_since(since));
        let most = request.max_age();
        age.zip(most)
            .is_none_or(|(age, most)| age <= most.saturating_add(AHEAD))
    }

    /// True as far as is known: nobody waits for the rest of what is not for him.
    pub(super) fn answers(&self, request: &Request) -> bool {
        if self.bytes.is_empty() {
            return self.whole.is_none();
        }
        let response = self.response();
        response.is_some_and(|response| response.answers(&self.assumed, request))
    }

    /// Head, if it is one and all of it has come.
    fn response(&self) -> Option<Response> {
        let parsed = Response::parse(&self.bytes).ok().flatten();
        parsed.map(|(response, _)| response)
    }

    pub(super) fn says_its_length(&self) -> bool {
        let body = self.response().map(|response| response.body());
        matches!(body, Some(Body::Length(_)))
    }
}
