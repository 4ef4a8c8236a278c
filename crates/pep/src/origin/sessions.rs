//! Sessions of terminals that want objects, where hubs find them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_sealed::dssl::{HubFrame, ObjectId, ObjectWriter, OriginSession, SessionId};
use bentpipe_web::{Frame, ObjectBytes, PageBytes, Request};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::places::FetchPlaces;
use super::upstream::ClientEnds;
use crate::keys::PublicKey;

/// Time for which a hub may be ahead of its terminal.
const HOLD: Duration = Duration::from_secs(3);

/// Sessions at one time; further ones have no objects.
const MAX_SESSIONS: usize = 1024;

/// Session of one terminal.
pub(super) struct SealedSession {
    /// Key of the terminal, and of the hub that it has named.
    peers: (PublicKey, PublicKey),
    /// Ends of the terminal's connection.
    pub(super) ends: ClientEnds,
    machine: RefCell<OriginSession>,
    /// Number of the page, and the request for it.
    page: RefCell<(u32, Option<Request>)>,
    /// Paths of its objects that were announced and that nobody has fetched; requests would each be as long as the page's.
    targets: RefCell<HashMap<ObjectId, String>>,
    /// Numbers of objects that block what a browser shows.
    blocking: RefCell<HashSet<u64>>,
    hub: RefCell<SessionHub>,
    pub(super) places: FetchPlaces,
    /// Bytes that objects of the page may have.
    bytes: RefCell<PageBytes>,
}

/// Object that a hub has asked for.
pub(super) struct BegunObject {
    pub(super) request: Request,
    /// True if a browser shows nothing of what stands behind its link before it is there.
    pub(super) blocking: bool,
    pub(super) writer: ObjectWriter,
    /// Bytes of its page that it has.
    pub(super) bytes: ObjectBytes,
}

/// Hub of a session.
enum SessionHub {
    /// Hub that has not asked for K2 yet. Links of the page wait, as many as a page has; of pages before nobody asks any more.
    Awaited(Vec<(u64, String)>),
    Here(mpsc::Sender<HubFrame>),
    /// The hub is gone, or takes nothing.
    Lost,
}

/// Session whose hub has just been given up: links of it were dropped, because the hub takes nothing.
pub(super) struct HubLost;

impl SealedSession {
    fn new(machine: OriginSession, peers: (PublicKey, PublicKey), ends: ClientEnds) -> Self {
        Self {
            peers,
            ends,
            machine: RefCell::new(machine),
            page: RefCell::default(),
            targets: RefCell::default(),
            blocking: RefCell::default(),
            hub: RefCell::new(SessionHub::Awaited(Vec::new())),
            places: FetchPlaces::default(),
            bytes: RefCell::default(),
        }
    }

    /// A request begins, whose page may have objects.
    pub(super) fn begin_page(&self, page: u32, request: Request) {
        self.machine.borrow_mut().begin_page(page);
        self.page.replace((page, Some(request)));
        self.targets.borrow_mut().clear();
        self.blocking.borrow_mut().clear();
        self.bytes.replace(PageBytes::default());
        if let SessionHub::Awaited(early) = &mut *self.hub.borrow_mut() {
            early.clear();
        }
    }

    /// Notes objects of the page that block what a browser shows, and are about to be announced.
    pub(super) fn note_blocking(&self, numbers: impl Iterator<Item = u64>) {
        self.blocking.borrow_mut().extend(numbers);
    }

    /// Announces objects of the page to the hub.
    ///
    /// # Errors
    /// [`HubLost`]: none of the session's pages has objects any more.
    pub(super) fn announce(&self, promises: &[Frame]) -> Result<(), HubLost> {
        let links = promises.iter().filter_map(|promise| match promise {
            Frame::Promise { id, target } => {
                Some((*id, String::from_utf8_lossy(target).into_owned()))
            }
            _ => None,
        });
        match &mut *self.hub.borrow_mut() {
            SessionHub::Awaited(early) => {
                early.extend(links);
                return Ok(());
            }
            SessionHub::Here(_) => {}
            SessionHub::Lost => return Ok(()),
        }
        self.send_links(links.collect())
    }

    /// Sends `links` of the page to the hub, which is here.
    fn send_links(&self, links: Vec<(u64, String)>) -> Result<(), HubLost> {
        let page = self.page.borrow().0;
        let frames = self.machine.borrow_mut().announce(page, links.clone());
        let own = links.into_iter();
        let own = own.filter_map(|(index, target)| Some((ObjectId::new(page, index)?, target)));
        self.targets.borrow_mut().extend(own);
        let mut frames = frames.unwrap_or_default().into_iter();
        frames.try_for_each(|frame| self.say(frame))
    }

    fn say(&self, frame: HubFrame) -> Result<(), HubLost> {
        let mut hub = self.hub.borrow_mut();
        let SessionHub::Here(sender) = &*hub else {
            return Ok(());
        };
        // Links have to be complete: a hub that takes none loses the session.
        let said = sender.try_send(frame);
        said.map_err(|_| {
            *hub = SessionHub::Lost;
            HubLost
        })
    }

    /// Gives K2 to the hub with this key, whose frames `sender` takes, and the links that wait; false: it may not have it.
    ///
    /// # Errors
    /// [`HubLost`]: it takes nothing.
    fn attach(&self, key: PublicKey, sender: &mpsc::Sender<HubFrame>) -> Result<bool, HubLost> {
        // Links of it have been dropped: what is not complete is not to begin again.
        if matches!(*self.hub.borrow(), SessionHub::Lost) {
            return Ok(false);
        }
        let given = self.machine.borrow_mut().key_for(&key.to_bytes());
        let Ok(given) = given else {
            return Ok(false);
        };
        let before = self.hub.replace(SessionHub::Here(sender.clone()));
        self.say(given)?;
        if let SessionHub::Awaited(early) = before {
            self.send_links(early)?;
        }
        Ok(true)
    }

    /// Begins an object; `None`: there is none, or it was fetched before.
    pub(super) fn begin(&self, id: ObjectId) -> Option<BegunObject> {
        let target = self.targets.borrow_mut().remove(&id)?;
        let request = self.page.borrow().1.as_ref()?.of_object(&target)?;
        let writer = self.machine.borrow_mut().fetch(id)?;
        let bytes = self.bytes.borrow().object();
        Some(BegunObject {
            request,
            blocking: self.blocking.borrow().contains(&id.index()),
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
    ///
    /// # Errors
    /// [`HubLost`]: the hub takes nothing.
    pub(super) async fn attach(
        &self,
        id: SessionId,
        key: PublicKey,
        sender: &mpsc::Sender<HubFrame>,
    ) -> Result<Option<Rc<SealedSession>>, HubLost> {
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
        let Ok(session) = timeout(HOLD, found).await else {
            return Ok(None);
        };
        let attached = session.attach(key, sender)?;
        Ok(attached.then_some(session))
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_sealed::dssl::{HubNews, HubSession, Secrets};
    use bentpipe_web::{MAX_OBJECT, MAX_OBJECTS, Scheme, Verdict, judge};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn hub() -> PublicKey {
        PublicKey::from_bytes([9; 32]).unwrap()
    }

    async fn session() -> SealedSession {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await;
        let ends = ClientEnds::of(&tcp.unwrap()).unwrap();
        let exporter = |_: &[u8], _: &[u8], out: &mut [u8]| -> Result<(), ()> {
            out.fill(7);
            Ok(())
        };
        let secrets = Secrets::export(&hub().to_bytes(), exporter).unwrap();
        let machine = OriginSession::new(&secrets, hub().to_bytes(), "shop.example.com");
        SealedSession::new(machine, (hub(), hub()), ends)
    }

    fn page() -> Request {
        let head = b"GET / HTTP/1.1\r\nHost: shop.example.com\r\nAccept: text/html\r\n\r\n";
        match judge(Scheme::Https, head) {
            Verdict::Get(request, _) => request,
            other => panic!("{other:?}"),
        }
    }

    fn promise(page: u32, id: u64) -> Frame {
        let target = format!("/{page}/{id}").into();
        Frame::Promise { id, target }
    }

    #[tokio::test]
    async fn a_session_that_was_lost_does_not_begin_again() {
        let (sender, _frames) = mpsc::channel(4);
        assert!(matches!(session().await.attach(hub(), &sender), Ok(true)));
        // Links that nobody has taken were dropped.
        let lost = session().await;
        lost.hub.replace(SessionHub::Lost);
        assert!(matches!(lost.attach(hub(), &sender), Ok(false)));
    }

    #[tokio::test]
    async fn a_hub_that_comes_late_has_all_links_of_the_page_and_none_of_those_before() {
        let session = session().await;
        for page_number in 0..9 {
            session.begin_page(page_number, page());
            for id in 1..=MAX_OBJECTS {
                assert!(session.announce(&[promise(page_number, id)]).is_ok());
            }
        }
        let (sender, mut frames) = mpsc::channel(20);
        assert!(matches!(session.attach(hub(), &sender), Ok(true)));
        let mut at_hub = HubSession::new(session.machine.borrow().id());
        let mut links = Vec::new();
        while let Ok(frame) = frames.try_recv() {
            match at_hub.on_frame(frame).unwrap() {
                HubNews::Links(more) => links.extend(more),
                news => assert!(matches!(news, HubNews::Ready(_)), "{news:?}"),
            }
        }
        let targets: Vec<_> = links.iter().map(|link| link.target.clone()).collect();
        let all: Vec<_> = (1..=MAX_OBJECTS).map(|id| format!("/8/{id}")).collect();
        assert_eq!(targets, all);
        for link in links {
            assert!(session.begin(link.id).is_some(), "{}", link.target);
        }
    }

    #[tokio::test]
    async fn a_hub_that_takes_no_links_is_told_of_once() {
        let session = session().await;
        session.begin_page(0, page());
        let (sender, _frames) = mpsc::channel(2);
        assert!(matches!(session.attach(hub(), &sender), Ok(true)));
        let said: Vec<_> = (1..=4)
            .map(|id| session.announce(&[promise(0, id)]).is_ok())
            .collect();
        assert_eq!(said, [true, false, true, true]);
        assert!(matches!(*session.hub.borrow(), SessionHub::Lost));
    }

    #[tokio::test]
    async fn objects_that_fail_leave_their_bytes_to_others_of_their_page_alone() {
        let session = session().await;
        session.begin_page(0, page());
        let (sender, _frames) = mpsc::channel(99);
        assert!(matches!(session.attach(hub(), &sender), Ok(true)));
        let ids = |page_number, ids: std::ops::RangeInclusive<u64>| {
            let all: Vec<_> = ids.map(|id| promise(page_number, id)).collect();
            assert!(session.announce(&all).is_ok());
        };
        ids(0, 1..=20);
        let begin = |page_number, id| {
            session
                .begin(ObjectId::new(page_number, id).unwrap())
                .unwrap()
        };
        for id in 1..=19 {
            let mut failed = begin(0, id);
            assert!(
                failed.bytes.reserve(MAX_OBJECT) && failed.bytes.spend(10),
                "{id}"
            );
        }
        let old = begin(0, 20);
        session.begin_page(1, page());
        ids(1, 1..=5);
        let mut new: Vec<_> = (1..=5).map(|id| begin(1, id)).collect();
        drop(old);
        let fit: Vec<_> = new
            .iter_mut()
            .map(|one| one.bytes.reserve(MAX_OBJECT))
            .collect();
        assert_eq!(fit, [true, true, true, true, false]);
    }
}
