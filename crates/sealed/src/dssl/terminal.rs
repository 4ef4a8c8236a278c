//! Terminal's part of one session: the order of its handshakes, whom it believes, and objects that
//! only it can open.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::origin::url;
use super::{Chunk, ObjectFault, ObjectId, ObjectOpener, Secrets, SessionId};

/// Time that a hub has to prove K2 before requests go without it, in the full mode.
const PATIENCE: Duration = Duration::from_secs(5);

/// Order of the handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One after the other; the hub has to have proved K2 before the first request.
    Full,
    /// The hub first, then the origin; K2 while the first request is under way.
    TwoPhase,
    /// All at one time.
    #[default]
    Quick,
}

/// Step that the terminal takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalStep {
    /// Opens the stream to the hub; with `true` the hub connects to the origin at once.
    OpenStream(bool),
    /// Opens the K1 connection.
    OpenK1,
    /// Tells the hub the session's name: it asks for K2.
    NameSession(SessionId),
    /// Sends requests from now on.
    Request,
}

/// State of the stream to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HubStream {
    Absent,
    Open,
    /// The hub asks for K2, since then.
    Asking(Instant),
    Proved,
    Lost,
}

/// State of the K1 connection.
enum K1 {
    Absent,
    Opening,
    Ready(Box<(Secrets, ObjectOpener)>),
}

/// One session of a terminal.
pub struct Terminal {
    mode: Mode,
    host: String,
    hub: HubStream,
    k1: K1,
    requesting: bool,
    dropped: u64,
}

impl Terminal {
    /// Session with the origin `host`, of which nothing has begun.
    #[must_use]
    pub fn new(mode: Mode, host: &str) -> Self {
        Self {
            mode,
            host: host.to_owned(),
            hub: HubStream::Absent,
            k1: K1::Absent,
            requesting: false,
            dropped: 0,
        }
    }

    /// First steps.
    pub fn begin(&mut self) -> Vec<TerminalStep> {
        match self.mode {
            Mode::Quick => {
                self.k1 = K1::Opening;
                vec![TerminalStep::OpenStream(true), TerminalStep::OpenK1]
            }
            Mode::TwoPhase | Mode::Full => vec![TerminalStep::OpenStream(false)],
        }
    }

    /// The stream to the hub is open.
    pub fn on_stream(&mut self, now: Instant) -> Vec<TerminalStep> {
        if self.hub == HubStream::Absent {
            self.hub = HubStream::Open;
        }
        self.proceed(now)
    }

    /// The origin's certificate is good, and the handshake has left these `secrets`.
    pub fn on_k1(&mut self, now: Instant, secrets: Secrets) -> Vec<TerminalStep> {
        let opener = ObjectOpener::new(&secrets);
        self.k1 = K1::Ready(Box::new((secrets, opener)));
        self.proceed(now)
    }

    /// The browser asks for something.
    pub fn on_request(&mut self, now: Instant) -> Vec<TerminalStep> {
        let asks = self.mode == Mode::TwoPhase && self.requesting;
        let steps = if asks { self.name(now) } else { None };
        steps.into_iter().collect()
    }

    /// The hub claims to have K2. Steps, and whether that is so: a hub that has not is left.
    pub fn on_proof(&mut self, now: Instant, proof: &[u8]) -> (Vec<TerminalStep>, bool) {
        let (HubStream::Asking(_), K1::Ready(ready)) = (self.hub, &self.k1) else {
            return (self.on_hub_lost(now), false);
        };
        let (secrets, _) = &**ready;
        if !secrets.links().proves(secrets.session(), proof) {
            return (self.on_hub_lost(now), false);
        }
        self.hub = HubStream::Proved;
        (self.proceed(now), true)
    }

    /// The hub is gone, or was never there: requests go without it.
    pub fn on_hub_lost(&mut self, now: Instant) -> Vec<TerminalStep> {
        self.hub = HubStream::Lost;
        self.proceed(now)
    }

    /// Name of the origin.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// True while the hub may still prove K2.
    #[must_use]
    pub fn awaits_proof(&self) -> bool {
        matches!(self.hub, HubStream::Open | HubStream::Asking(_))
    }

    /// Time at which [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.hub {
            HubStream::Asking(since) if !self.requesting => Some(since + PATIENCE),
            _ => None,
        }
    }

    /// Leaves a hub that has not proved K2 in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<TerminalStep> {
        match self.deadline() {
            Some(deadline) if now >= deadline => self.on_hub_lost(now),
            _ => Vec::new(),
        }
    }

    fn proceed(&mut self, now: Instant) -> Vec<TerminalStep> {
        let mut steps = Vec::new();
        match &self.k1 {
            // The stream was the first step of these modes; without one the page loads all the same.
            K1::Absent if self.hub != HubStream::Absent => {
                self.k1 = K1::Opening;
                steps.push(TerminalStep::OpenK1);
            }
            K1::Absent | K1::Opening => {}
            K1::Ready(_) => {
                if self.mode != Mode::TwoPhase {
                    steps.extend(self.name(now));
                }
                let waits = self.mode == Mode::Full
                    && !matches!(self.hub, HubStream::Proved | HubStream::Lost);
                if !waits && !std::mem::replace(&mut self.requesting, true) {
                    steps.push(TerminalStep::Request);
                }
            }
        }
        steps
    }

    /// Names the session to the hub, once.
    fn name(&mut self, now: Instant) -> Option<TerminalStep> {
        let (HubStream::Open, K1::Ready(ready)) = (self.hub, &self.k1) else {
            return None;
        };
        self.hub = HubStream::Asking(now);
        Some(TerminalStep::NameSession(ready.0.session()))
    }

    /// The hub promises an object. False: it may not.
    pub fn on_promise(&mut self, id: ObjectId, target: &str) -> bool {
        let url = url(&self.host, target);
        self.objects()
            .is_some_and(|objects| objects.expect(id, &url))
    }

    /// Opens a chunk that the hub has brought.
    ///
    /// # Errors
    /// [`ObjectFault`]: its object is dropped and counted.
    pub fn on_object(
        &mut self,
        id: ObjectId,
        chunk: Chunk,
        sealed: &[u8],
    ) -> Result<Bytes, ObjectFault> {
        let unexpected = Err(ObjectFault::Unexpected(id.get()));
        let opened = self
            .objects()
            .map_or(unexpected, |objects| objects.open(id, chunk, sealed));
        self.dropped += u64::from(opened.is_err());
        opened
    }

    /// An object does not come.
    pub fn on_failed(&mut self, id: ObjectId) {
        if let Some(objects) = self.objects() {
            objects.drop_object(id);
        }
    }

    /// Objects of pages before `page` are not waited for any more.
    pub fn begin_page(&mut self, page: u32) {
        if let Some(objects) = self.objects() {
            objects.forget_before(page);
        }
    }

    /// True while an object is promised that has not come whole.
    #[must_use]
    pub fn awaits_objects(&self) -> bool {
        matches!(&self.k1, K1::Ready(ready) if ready.1.is_waiting())
    }

    /// Objects that were dropped, because they were not what the origin has sealed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Objects of a hub that has proved K2.
    fn objects(&mut self) -> Option<&mut ObjectOpener> {
        match &mut self.k1 {
            K1::Ready(ready) if self.hub == HubStream::Proved => Some(&mut ready.1),
            _ => None,
        }
    }
}
