//! Origin's part of one session: K2 for one hub, links before the bytes in which they stand, and
//! each object once.

use super::{
    HubFrame, Link, LinkKey, LinkSealer, ObjectId, ObjectSealer, ObjectWriter, Secrets, SessionId,
};

/// Reason why a hub gets no K2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// The terminal has named another hub.
    #[error("the terminal has named another hub")]
    OtherHub,
    /// K2 was given before.
    #[error("K2 was given before")]
    Given,
}

/// One K1 connection whose terminal wants objects.
pub struct OriginSession {
    session: SessionId,
    host: String,
    hub: [u8; 32],
    key: LinkKey,
    links: LinkSealer,
    objects: ObjectSealer,
    given: bool,
}

impl OriginSession {
    /// Session with these `secrets`, of a terminal that has named `hub`, for pages of `host`.
    #[must_use]
    pub fn new(secrets: &Secrets, hub: [u8; 32], host: &str) -> Self {
        let (session, key) = (secrets.session(), secrets.links().clone());
        Self {
            session,
            host: host.to_owned(),
            hub,
            links: LinkSealer::new(&key, session),
            key,
            objects: ObjectSealer::new(secrets),
            given: false,
        }
    }

    /// Name of the session.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.session
    }

    /// KEY for a hub that has proved to hold `hub`; once.
    ///
    /// # Errors
    /// [`KeyRefusal`]: the hub gets nothing of the session.
    pub fn key_for(&mut self, hub: &[u8; 32]) -> Result<HubFrame, KeyRefusal> {
        if *hub != self.hub {
            return Err(KeyRefusal::OtherHub);
        }
        if std::mem::replace(&mut self.given, true) {
            return Err(KeyRefusal::Given);
        }
        Ok(HubFrame::Key(self.session, self.key.clone()))
    }

    /// LINKS for the objects `targets` of a page, numbered from `first`; `None`: these numbers
    /// were used.
    pub fn announce(
        &mut self,
        page: u32,
        targets: impl IntoIterator<Item = (u64, String)>,
    ) -> Option<Vec<HubFrame>> {
        let mut links = Vec::new();
        for (index, target) in targets {
            let id = ObjectId::new(page, index)?;
            if !self.objects.announce(id, &url(&self.host, &target)) {
                return None;
            }
            links.push(Link {
                id,
                priority: 0,
                target,
            });
        }
        self.links.seal(&links)
    }

    /// Begins an object that a hub asks for. `None`: there is none, or it was asked for before.
    pub fn fetch(&mut self, id: ObjectId) -> Option<ObjectWriter> {
        self.objects.begin(id)
    }

    /// The page that answers the request with this number begins: objects of those before that
    /// nobody asked for are not given any more.
    pub fn begin_page(&mut self, page: u32) {
        self.objects.forget_before(page);
    }
}

/// URL that objects are bound to.
pub(super) fn url(host: &str, target: &str) -> String {
    format!("https://{host}{target}")
}
