//! Hub's part of one session: K2 from the origin, links by it, and objects that it cannot open.

use std::collections::HashSet;

use bytes::Bytes;

use super::{Chunk, HubFrame, Link, LinkFault, LinkOpener, MAX_CHUNK, ObjectId, PROOF, SessionId};

/// Most bytes of objects that a hub carries for one page.
const MAX_PAGE: u64 = 17 << 20;

/// State of a hub's session.
enum HubState {
    /// K2 was asked for.
    Asked,
    Keyed(LinkOpener),
    Over,
}

/// News of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum HubNews {
    /// K2 is here: to be proved to the terminal.
    Ready([u8; PROOF]),
    /// Objects to promise to the terminal, and to fetch.
    Links(Vec<Link>),
    /// A chunk for the terminal.
    Object(ObjectId, Chunk, Bytes),
    /// An object does not come.
    Failed(ObjectId),
    /// The origin gives this hub nothing of the session.
    Refused,
}

/// Reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubDropped {
    /// The frame is about another session.
    #[error("a frame of another session")]
    Session,
    /// The frame has no place here: before KEY, twice, or what only a hub sends.
    #[error("a frame that has no place here")]
    Place,
    /// The links are not to be believed.
    #[error(transparent)]
    Links(#[from] LinkFault),
    /// The link's name was used before.
    #[error("a link whose number is not above those before")]
    Number,
    /// Nobody asked for the object, or it has ended.
    #[error("an object that was not asked for")]
    Object,
    /// The objects of a page are more than may be.
    #[error("more than {MAX_PAGE} bytes of one page's objects")]
    TooMuch,
}

/// One session at a hub.
pub struct HubSession {
    session: SessionId,
    state: HubState,
    /// Objects that were asked for and have not ended.
    fetched: HashSet<ObjectId>,
    last: u32,
    /// Page of the last link, and bytes of its objects.
    page: (u32, u64),
}

impl HubSession {
    /// Session whose K2 is asked for now.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            state: HubState::Asked,
            fetched: HashSet::new(),
            last: 0,
            page: (0, 0),
        }
    }

    /// Frame by which K2 is asked for.
    #[must_use]
    pub fn request(&self) -> HubFrame {
        HubFrame::KeyRequest(self.session)
    }

    /// Frame by which an object is asked for; each link that [`Self::on_frame`] gave is, once.
    #[must_use]
    pub fn fetch(&self, id: ObjectId) -> HubFrame {
        HubFrame::Fetch(self.session, id)
    }

    /// A frame of the origin has come.
    ///
    /// # Errors
    /// [`HubDropped`]: it is not to be used; after false links or none of the protocol's, nothing
    /// more of the session is.
    pub fn on_frame(&mut self, frame: HubFrame) -> Result<HubNews, HubDropped> {
        if frame.session() != self.session {
            return Err(HubDropped::Session);
        }
        match frame {
            HubFrame::Key(session, key) if matches!(self.state, HubState::Asked) => {
                self.state = HubState::Keyed(LinkOpener::new(&key, session));
                Ok(HubNews::Ready(key.proof(session)))
            }
            HubFrame::Links {
                counter, sealed, ..
            } => self.links(counter, &sealed),
            HubFrame::Object {
                id, chunk, sealed, ..
            } => self.object(id, chunk, sealed),
            HubFrame::Refused(_, Some(id)) => match self.fetched.remove(&id) {
                true => Ok(HubNews::Failed(id)),
                false => Err(HubDropped::Object),
            },
            HubFrame::Refused(_, None) => {
                self.state = HubState::Over;
                Ok(HubNews::Refused)
            }
            HubFrame::Key(..) | HubFrame::KeyRequest(_) | HubFrame::Fetch(..) => {
                Err(HubDropped::Place)
            }
        }
    }

    fn links(&mut self, counter: u32, sealed: &[u8]) -> Result<HubNews, HubDropped> {
        let HubState::Keyed(opener) = &mut self.state else {
            return Err(HubDropped::Place);
        };
        let mut links = match opener.open(counter, sealed) {
            Ok(links) => links,
            Err(fault) => {
                self.state = HubState::Over;
                return Err(fault.into());
            }
        };
        for link in &links {
            if link.id.get() <= self.last {
                self.state = HubState::Over;
                return Err(HubDropped::Number);
            }
            self.last = link.id.get();
            if link.id.page() != self.page.0 {
                self.page = (link.id.page(), 0);
                // Terminals have forgotten the objects of the page before.
                self.fetched.clear();
            }
            self.fetched.insert(link.id);
        }
        links.sort_by_key(|link| link.priority);
        Ok(HubNews::Links(links))
    }

    fn object(&mut self, id: ObjectId, chunk: Chunk, sealed: Bytes) -> Result<HubNews, HubDropped> {
        let keyed = matches!(self.state, HubState::Keyed(_));
        if !keyed || !self.fetched.contains(&id) || sealed.len() > MAX_CHUNK + 16 {
            return Err(HubDropped::Object);
        }
        self.page.1 += sealed.len() as u64;
        if self.page.1 > MAX_PAGE {
            self.state = HubState::Over;
            return Err(HubDropped::TooMuch);
        }
        if chunk.is_last() {
            self.fetched.remove(&id);
        }
        Ok(HubNews::Object(id, chunk, sealed))
    }

    /// True once nothing of the session is to be used any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, HubState::Over)
    }
}
