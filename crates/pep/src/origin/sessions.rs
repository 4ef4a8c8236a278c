//! Sessions of terminals that want objects, where hubs find them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_sealed::dssl::{HubFrame, ObjectId, ObjectWriter, OriginSession, SessionId};
use bentpipe_web::{Frame, MAX_AT_ONCE, ObjectBytes, PageBytes, Request};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::timeout;

use super::upstream::ClientEnds;
use crate::keys::PublicKey;

/// Time for which a hub may be ahead of its terminal.
const HOLD: Duration = Duration::from_secs(3);

/// Sessions at one time; further ones have no objects.
const MAX_SESSIONS: usize = 1024;

/// Records of links that wait for a hub.
const MAX_EARLY: usize = 64;

/// Session of one terminal.
pub(super) struct SealedSession {
    /// Key of the terminal, and of the hub that it has named.
    peers: (PublicKey, PublicKey),
    /// Ends of the terminal's connection.
    pub(super) ends: ClientEnds,
    machine: RefCell<OriginSession>,
    /// Request for the page.
    page: RefCell<Option<Request>>,
    /// Paths of its objects that were announced and that nobody has fetched; requests would each be as long as the page's.
    targets: RefCell<HashMap<ObjectId, String>>,
    hub: RefCell<SessionHub>,
    /// Places for fetches at one time.
    pub(super) fetching: Semaphore,
    /// Bytes that objects of the page may have.
    bytes: RefCell<PageBytes>,
}

/// Object that a hub has asked for.
pub(super) struct BegunObject {
    pub(super) request: Request,
    pub(super) writer: ObjectWriter,
    /// Bytes of its page that it has.
    pub(super) bytes: ObjectBytes,
}

/// Hub of a session.
enum SessionHub {
    /// Hub that has not asked for K2 yet; these frames wait.
    Awaited(Vec<HubFrame>),
    Here(mpsc::Sender<HubFrame>),
    /// The hub is gone, or takes nothing.
    Lost,
}

impl SealedSession {
    fn new(machine: OriginSession, peers: (PublicKey, PublicKey), ends: ClientEnds) -> Self {
        Self {
            peers,
            ends,
            machine: RefCell::new(machine),
            page: RefCell::default(),
            targets: RefCell::default(),
            hub: RefCell::new(SessionHub::Awaited(Vec::new())),
            fetching: Semaphore::new(MAX_AT_ONCE),
            bytes: RefCell::default(),
        }
    }

    /// A request begins, whose page may have objects.
    pub(super) fn begin_page(&self, page: u32, request: Request) {
        self.machine.borrow_mut().begin_page(page);
        self.page.replace(Some(request));
        self.targets.borrow_mut().clear();
        self.bytes.replace(PageBytes::default());
    }

    /// Announces objects of a page to the hub.
    pub(super) fn announce(&self, page: u32, promises: &[Frame]) {
        let targets = || {
            promises.iter().filter_map(|promise| match promise {
                Frame::Promise { id, target } => {
                    Some((*id, String::from_utf8_lossy(target).into_owned()))
                }
                _ => None,
            })
        };
        if matches!(*self.hub.borrow(), SessionHub::Lost) {
            return;
        }
        let frames = self.machine.borrow_mut().announce(page, targets());
        let own =
            targets().filter_map(|(index, target)| Some((ObjectId::new(page, index)?, target)));
        self.targets.borrow_mut().extend(own);
        for frame in frames.unwrap_or_default() {
            self.say(frame);
        }
    }

    fn say(&self, frame: HubFrame) {
        let mut hub = self.hub.borrow_mut();
        let said = match &mut *hub {
            SessionHub::Awaited(early) => {
                early.push(frame);
                early.len() <= MAX_EARLY
            }
            // Links have to be complete: a hub that takes none loses the session.
            SessionHub::Here(sender) => sender.try_send(frame).is_ok(),
            SessionHub::Lost => return,
        };
        if !said {
            *hub = SessionHub::Lost;
        }
    }

    /// Gives K2 to the hub with this key, whose frames `sender` takes; false: it may not have it.
    fn attach(&self, key: PublicKey, sender: &mpsc::Sender<HubFrame>) -> bool {
        // Links of it have been dropped: what is not complete is not to begin again.
        if matches!(*self.hub.borrow(), SessionHub::Lost) {
            return false;
        }
        let given = self.machine.borrow_mut().key_for(&key.to_bytes());
        let Ok(given) = given else {
            return false;
        };
        let before = self.hub.replace(SessionHub::Here(sender.clone()));
        let early = match before {
            SessionHub::Awaited(early) => early,
            SessionHub::Here(_) | SessionHub::Lost => Vec::new(),
        };
        self.say(given);
        early.into_iter().for_each(|frame| self.say(frame));
        true
    }

    /// Begins an object; `None`: there is none, or it was fetched before.
    pub(super) fn begin(&self, id: ObjectId) -> Option<BegunObject> {
        let target = self.targets.borrow_mut().remove(&id)?;
        let request = self.page.borrow().as_ref()?.of_object(&target)?;
        let writer = self.machine.borrow_mut().fetch(id)?;
        let bytes = self.bytes.borrow().object();
        Some(BegunObject {
            request,
            writer,
            bytes,
        })
    }

    fn end(&self) {
        if let SessionHub::Here(sender) = self.hub.replace(SessionHub::Lost) {
            let id = self.machine.borrow().id();
            // A hub that takes nothing will see the end of its terminal's stream.
            let _ = sender.try_send(HubFrame::Refused(id, None));
        }
    }
}

/// Sessions by name.
#[derive(Default)]
pub(super) struct SealedSessions {
    known: RefCell<HashMap<SessionId, Rc<SealedSession>>>,
    changed: Notify,
}

/// Session that is known for as long as this lives.
pub(super) struct Entered<'a> {
    sessions: &'a SealedSessions,
    id: SessionId,
    pub(super) session: Rc<SealedSession>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.sessions.known.borrow_mut().remove(&self.id);
        self.session.end();
    }
}

impl SealedSessions {
    /// Sessions that there are.
    pub(super) fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// Ends sessions of which `stays` says no, by the keys of client and hub: their pages go on without objects.
    pub(super) fn retain(&self, stays: impl Fn(PublicKey, PublicKey) -> bool) {
        self.known.borrow_mut().retain(|_, session| {
            let (client, hub) = session.peers;
            let stays = stays(client, hub);
            if !stays {
                session.end();
            }
            stays
        });
    }

    /// Enters a session of these `peers`, client and hub, on a connection with these `ends`; `None`: there are too many.
    pub(super) fn enter(
        &self,
        machine: OriginSession,
        peers: (PublicKey, PublicKey),
        ends: ClientEnds,
    ) -> Option<Entered<'_>> {
        let id = machine.id();
        let session = Rc::new(SealedSession::new(machine, peers, ends));
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_SESSIONS {
            return None;
        }
        known.insert(id, session.clone());
        self.changed.notify_waiters();
        Some(Entered {
            sessions: self,
            id,
            session,
        })
    }

    /// Session that a hub asks for, once it is known, with K2 on its way; `None`: the hub gets nothing.
    pub(super) async fn attach(
        &self,
        id: SessionId,
        key: PublicKey,
        sender: &mpsc::Sender<HubFrame>,
    ) -> Option<Rc<SealedSession>> {
        let found = async {
            loop {
                let changed = self.changed.notified();
                let found = self.known.borrow().get(&id).cloned();
                match found {
                    Some(session) => return session,
                    None => changed.await,
                }
            }
        };
        let session = timeout(HOLD, found).await.ok()?;
        session.attach(key, sender).then_some(session)
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_sealed::dssl::Secrets;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_session_that_was_lost_does_not_begin_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await;
        let ends = ClientEnds::of(&tcp.unwrap()).unwrap();
        let hub = PublicKey::from_bytes([9; 32]).unwrap();
        let exporter = |_: &[u8], _: &[u8], out: &mut [u8]| -> Result<(), ()> {
            out.fill(7);
            Ok(())
        };
        let secrets = Secrets::export(&hub.to_bytes(), exporter).unwrap();
        let session = || {
            let machine = OriginSession::new(&secrets, hub.to_bytes(), "shop.example.com");
            SealedSession::new(machine, (hub, hub), ends)
        };
        let (sender, _frames) = mpsc::channel(4);
        assert!(session().attach(hub, &sender));
        // Links that nobody has taken were dropped.
        let lost = session();
        lost.hub.replace(SessionHub::Lost);
        assert!(!lost.attach(hub, &sender));
    }
}
