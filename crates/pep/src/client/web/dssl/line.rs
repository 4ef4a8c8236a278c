//! A session's line to the hub: promises and sealed objects of it, opened into the store.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use bentpipe_sealed::dssl::{Chunk, ObjectFault, ObjectId, Terminal, TerminalStep};
use bentpipe_web::{Closing, Frame, FrameReader, PAGE, PageId, Response};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{Notify, mpsc};

use super::Pages;
use crate::process;

/// Hub's part of one session, as the client sees it.
pub(super) struct ObjectLine {
    terminal: RefCell<Terminal>,
    /// Page that objects are promised for, by the number of its request.
    page: Cell<Option<(u32, PageId)>>,
    /// Objects behind which the origin ends its connection.
    closing: RefCell<HashSet<ObjectId>>,
    changed: Notify,
    requesting: Cell<bool>,
    over: Cell<bool>,
}

/// The hub is not to be heard any more.
struct LineOver;

impl ObjectLine {
    /// Line of a session whose `stream` to the hub `attend` has; without a stream nobody ends what is begun on it, so it is over at once.
    pub(super) fn start(
        terminal: Terminal,
        stream: Option<DuplexStream>,
        attend: impl FnOnce(Rc<Self>, DuplexStream),
    ) -> Rc<Self> {
        let line = Rc::new(Self {
            terminal: RefCell::new(terminal),
            page: Cell::new(None),
            closing: RefCell::default(),
            changed: Notify::new(),
            requesting: Cell::new(false),
            over: Cell::new(stream.is_none()),
        });
        if let Some(stream) = stream {
            attend(line.clone(), stream);
        }
        line
    }

    pub(super) fn terminal(&self) -> &RefCell<Terminal> {
        &self.terminal
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// True once requests may go.
    pub(super) fn may_request(&self) -> bool {
        self.requesting.get()
    }

    /// True while objects may come.
    pub(super) fn is_alive(&self) -> bool {
        !self.over.get()
    }

    /// True while objects are promised that have not come: another page would end that.
    pub(super) fn is_busy(&self) -> bool {
        self.terminal.borrow().awaits_objects()
    }

    /// True while promises of a page may come.
    pub(super) fn expects(&self) -> bool {
        self.is_alive() && self.page.get().is_some()
    }

    /// Waits until no object comes any more.
    pub(super) async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_alive() {
                return;
            }
            changed.await;
        }
    }

    /// Takes steps of the machine that are this line's.
    pub(super) fn obey(&self, steps: &[TerminalStep]) {
        if steps.contains(&TerminalStep::Request) {
            self.requesting.set(true);
        }
        self.changed.notify_waiters();
    }

    /// Objects that are promised from now on are of `page`, which request `number` has asked for.
    pub(super) fn begin(&self, pages: &Pages, number: u32, page: PageId) {
        self.terminal.borrow_mut().begin_page(number);
        if let Some((_, before)) = self.page.replace(Some((number, page))) {
            pages.end(before);
        }
    }

    /// Hears the hub by `pipe`, and says the `words` of the connection to it, until either ends.
    pub(super) async fn attend(
        self: Rc<Self>,
        pages: Rc<Pages>,
        mut pipe: DuplexStream,
        mut words: mpsc::UnboundedReceiver<Frame>,
    ) {
        let (mut frames, mut bytes) = (FrameReader::default(), vec![0; 16 * 1024]);
        let mut by_hub = true;
        'line: loop {
            tokio::select! {
                read = pipe.read(&mut bytes) => match read {
                    Ok(read @ 1..) => frames.push(&bytes[..read]),
                    Ok(0) | Err(_) => break,
                },
                word = words.recv() => {
                    let mut said = Vec::new();
                    match word {
                        Some(word) => word.encode(&mut said),
                        // The connection has ended.
                        None => {
                            by_hub = false;
                            break;
                        }
                    }
                    if pipe.write_all(&said).await.is_err() {
                        break;
                    }
                }
            }
            loop {
                match frames.read() {
                    Ok(Some(frame)) => {
                        if let Err(LineOver) = self.hear(&pages, frame) {
                            break 'line;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => break 'line,
                }
            }
        }
        self.over.set(true);
        if by_hub && self.terminal.borrow().awaits_proof() {
            self.tell_keyless(&pages);
        }
        if let Some((_, page)) = self.page.take() {
            pages.end(page);
        }
        let steps = self.terminal.borrow_mut().on_hub_lost(process::now());
        self.obey(&steps);
    }

    /// Counts a session that the hub has ended without K2, and tells the log.
    fn tell_keyless(&self, pages: &Pages) {
        if let Some(dssl) = &pages.dssl {
            dssl.note_keyless(self.terminal.borrow().host());
        }
    }

    fn hear(&self, pages: &Pages, frame: Frame) -> Result<(), LineOver> {
        let number = |id: u64| u32::try_from(id).ok().and_then(ObjectId::from_number);
        match frame {
            Frame::Ready(proof) => {
                let (steps, proved) = self.terminal.borrow_mut().on_proof(process::now(), &proof);
                self.obey(&steps);
                if !proved {
                    drop_noted(pages, "has not proved its key");
                }
                proved.then_some(()).ok_or(LineOver)
            }
            Frame::Promise { id, target } => {
                let id = number(id).ok_or(LineOver)?;
                let target = std::str::from_utf8(&target).map_err(|_| LineOver)?;
                self.promise(pages, id, target)
            }
            Frame::Data { id, bytes } => {
                let id = number(id).ok_or(LineOver)?;
                let (chunk, sealed) = bytes.split_first_chunk::<4>().ok_or(LineOver)?;
                let chunk = Chunk::from_number(u32::from_be_bytes(*chunk));
                self.object(pages, id, chunk, sealed);
                Ok(())
            }
            Frame::Failed { id: PAGE } => Err(LineOver),
            Frame::Failed { id } => {
                let id = number(id).ok_or(LineOver)?;
                self.terminal.borrow_mut().on_failed(id);
                self.keep(pages, id, Frame::Failed { id: id.index() });
                Ok(())
            }
            _ => Err(LineOver),
        }
    }

    fn promise(&self, pages: &Pages, id: ObjectId, target: &str) -> Result<(), LineOver> {
        if !self.terminal.borrow_mut().on_promise(id, target) {
            drop_noted(pages, "promises what it may not");
            return Err(LineOver);
        }
        let promised = Frame::Promise {
            id: id.index(),
            target: Bytes::copy_from_slice(target.as_bytes()),
        };
        if !self.keep(pages, id, promised) {
            self.terminal.borrow_mut().on_failed(id);
        }
        Ok(())
    }

    fn object(&self, pages: &Pages, id: ObjectId, chunk: Chunk, sealed: &[u8]) {
        let opened = self.terminal.borrow_mut().on_object(id, chunk, sealed);
        let index = id.index();
        let bytes = match opened {
            Ok(bytes) => bytes,
            // What was dropped already, or is of a page before.
            Err(ObjectFault::Unexpected(_)) => return,
            Err(fault) => {
                drop_noted(
                    pages,
                    &format!("has brought what the origin has not sealed ({fault})"),
                );
                self.keep(pages, id, Frame::Failed { id: index });
                return;
            }
        };
        if chunk.is_first() {
            let closes = match Response::parse(&bytes) {
                Ok(Some((response, used))) if used == bytes.len() => response.closes(),
                _ => {
                    self.terminal.borrow_mut().on_failed(id);
                    self.keep(pages, id, Frame::Failed { id: index });
                    return;
                }
            };
            if closes {
                self.closing.borrow_mut().insert(id);
            }
            self.keep(pages, id, Frame::Head { id: index, bytes });
        } else if !bytes.is_empty() {
            self.keep(pages, id, Frame::Data { id: index, bytes });
        }
        if chunk.is_last() {
            let close = match self.closing.borrow_mut().remove(&id) {
                true => Closing::InOrder,
                false => Closing::Open,
            };
            self.keep(pages, id, Frame::End { id: index, close });
        }
    }

    /// Gives the store a frame about an object of the present page; false: it takes none.
    fn keep(&self, pages: &Pages, id: ObjectId, frame: Frame) -> bool {
        match self.page.get() {
            Some((number, page)) if number == id.page() => pages.keep(page, frame),
            _ => false,
        }
    }
}

fn drop_noted(pages: &Pages, why: &str) {
    if let Some(dssl) = &pages.dssl {
        dssl.note_dropped(why);
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_sealed::dssl::Mode;
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn a_session_whose_hub_gives_no_stream_expects_no_objects() {
        let start = |stream: Option<DuplexStream>| {
            let mut attended = false;
            let terminal = Terminal::new(Mode::Full, "a.example");
            let line = ObjectLine::start(terminal, stream, |_, _| attended = true);
            (line.is_alive(), attended)
        };
        assert_eq!(start(Some(duplex(64).0)), (true, true));
        assert_eq!(start(None), (false, false));
    }
}
