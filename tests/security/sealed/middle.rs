//! A middle box on the way of outer connections: it takes them as an operator's splitting PEP does, and does to preface and
//! records what it is told.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bentpipe_testbed::peer::set_linger_zero;

/// Time for which a side is listened to before the box looks whether the connection is over.
const TURN: Duration = Duration::from_millis(20);
/// Length of the preface, and of the field that begins a record (`PROTOCOL.md` §18.2).
const PREFACE: usize = 16;
const LENGTH: usize = 2;
/// Value of that field in a record without a body: FIN or DONE.
const EMPTY: [u8; 2] = [0, 17];

/// What a middle box does to connections.
#[derive(Clone, Default)]
pub(super) struct Plan {
    /// To what the client sends.
    pub(super) up: Way,
    /// To what the server sends.
    pub(super) down: Way,
}

/// What happens in one direction.
#[derive(Clone, Default)]
pub(super) struct Way {
    pub(super) cut: Cut,
    pub(super) change: Option<Change>,
}

/// Size of the pieces in which bytes are sent on.
#[derive(Clone, Copy, Default)]
pub(super) enum Cut {
    #[default]
    AsTheyCome,
    Pieces(usize),
    /// All that comes within this time in one piece.
    Merged(Duration),
}

/// What is done to each unit.
pub(super) type Change = Arc<dyn Fn(&Unit<'_>) -> Act + Send + Sync>;

/// A preface or a record, whole.
pub(super) struct Unit<'a> {
    pub(super) name: Name,
    pub(super) bytes: &'a [u8],
}

/// Name of a unit in its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Preface,
    /// The record of this number, from 0, if it has a body.
    Record(usize),
    /// So many records without a body came before this one, which has none.
    Empty(usize),
}

/// What becomes of a unit.
pub(super) enum Act {
    Pass,
    /// These bytes are sent instead.
    Send(Vec<u8>),
    /// These bytes are sent, and then the connection ends.
    End(Vec<u8>, End),
}

/// Way in which a connection ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The receiver gets FIN; the other direction goes on.
    Half,
    /// Both sides get FIN.
    Both,
    /// Both sides get RST.
    Reset,
}

/// What the sides of a connection have sent, unit by unit, before anything was done to it.
#[derive(Clone, Default)]
pub(super) struct Recorded {
    pub(super) up: Vec<Vec<u8>>,
    pub(super) down: Vec<Vec<u8>>,
}

/// A middle box, until the test's process ends.
pub(super) struct Middle {
    plan: Arc<Mutex<Plan>>,
    recorded: Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Middle {
    /// Takes connections of `listener` on to `server`.
    pub(super) fn start(listener: TcpListener, server: SocketAddr) -> Self {
        let middle = Self {
            plan: Arc::default(),
            recorded: Arc::default(),
        };
        let (plan, recorded) = (middle.plan.clone(), middle.recorded.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                    continue;
                };
                let (plan, record) = (locked(&plan).clone(), Arc::default());
                locked(&recorded).push(Arc::clone(&record));
                thread::spawn(move || carry(&client, &server, plan, &record));
            }
        });
        middle
    }

    /// Connections that begin from now on are treated so.
    pub(super) fn treat(&self, plan: Plan) {
        *locked(&self.plan) = plan;
    }

    /// Number of connections so far.
    pub(super) fn count(&self) -> usize {
        locked(&self.recorded).len()
    }

    /// The last connection, as far as it has come.
    pub(super) fn last(&self) -> Option<Recorded> {
        let recorded = locked(&self.recorded);
        recorded.last().map(|one| locked(one).clone())
    }
}

/// Carries one connection to its end.
fn carry(client: &TcpStream, server: &TcpStream, plan: Plan, record: &Mutex<Recorded>) {
    for side in [client, server] {
        let _ = side.set_nodelay(true);
        let _ = side.set_read_timeout(Some(TURN));
    }
    let over = AtomicBool::new(false);
    let Plan { up, down } = plan;
    thread::scope(|scope| {
        scope.spawn(|| {
            let heard = |unit: &[u8]| locked(record).up.push(unit.to_vec());
            Direction::new([client, server], up, true).carry(&over, heard);
        });
        scope.spawn(|| {
            let heard = |unit: &[u8]| locked(record).down.push(unit.to_vec());
            Direction::new([server, client], down, false).carry(&over, heard);
        });
    });
}

/// One direction of a connection.
struct Direction<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    way: Way,
    /// Bytes that have come and are no whole unit yet.
    held: Vec<u8>,
    preface_due: bool,
    records: usize,
    empty: usize,
    /// Nothing is sent any more.
    mute: bool,
}

impl<'a> Direction<'a> {
    fn new([from, to]: [&'a TcpStream; 2], way: Way, preface_due: bool) -> Self {
        Self {
            from,
            to,
            way,
            held: Vec::new(),
            preface_due,
            records: 0,
            empty: 0,
            mute: false,
        }
    }

    /// Carries it until it has ended, or the connection is `over`; `heard` gets each unit as it came.
    fn carry(mut self, over: &AtomicBool, heard: impl Fn(&[u8])) {
        let mut buffer = [0; 65_536];
        while !over.load(Ordering::SeqCst) {
            if let Cut::Merged(pause) = self.way.cut {
                thread::sleep(pause);
            }
            let ended = match self.from.read(&mut buffer) {
                // The other direction has an end of its own.
                Ok(0) => return self.finish(),
                Ok(count) => self.take(&buffer[..count], &heard),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => Err(End::Reset),
            };
            if let Err(end) = ended {
                if end == End::Reset {
                    let _ = [self.from, self.to].map(set_linger_zero);
                }
                over.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Takes bytes; an error is the end of the connection.
    fn take(&mut self, bytes: &[u8], heard: &impl Fn(&[u8])) -> Result<(), End> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::new();
        let mut end = None;
        while let Some((name, length)) = self.next() {
            let unit: Vec<u8> = self.held.drain(..length).collect();
            heard(&unit);
            let change = self.way.change.clone();
            let act = change.map_or(Act::Pass, |change| change(&Unit { name, bytes: &unit }));
            match act {
                Act::Pass => out.extend(unit),
                Act::Send(bytes) => out.extend(bytes),
                Act::End(bytes, how) => {
                    out.extend(bytes);
                    end = Some(how);
                    break;
                }
            }
        }
        self.send(&out).map_err(|_| End::Reset)?;
        match end {
            None => Ok(()),
            Some(End::Half) => {
                self.mute = true;
                let _ = self.to.shutdown(Shutdown::Write);
                Ok(())
            }
            Some(end) => Err(end),
        }
    }

    /// Name and length of the unit that begins what is held, if that is whole.
    fn next(&mut self) -> Option<(Name, usize)> {
        if self.preface_due {
            self.held.get(..PREFACE)?;
            self.preface_due = false;
            return Some((Name::Preface, PREFACE));
        }
        let field: [u8; LENGTH] = self.held.get(..LENGTH)?.try_into().ok()?;
        let length = LENGTH + usize::from(u16::from_be_bytes(field));
        self.held.get(..length)?;
        let number = self.records;
        self.records += 1;
        if field != EMPTY {
            return Some((Name::Record(number), length));
        }
        self.empty += 1;
        Some((Name::Empty(self.empty - 1), length))
    }

    /// The direction has ended in order.
    fn finish(mut self) {
        let rest = std::mem::take(&mut self.held);
        // Where the receiver has closed already, it needs no word of that.
        let _ = self.send(&rest);
        if !self.mute {
            let _ = self.to.shutdown(Shutdown::Write);
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.mute {
            return Ok(());
        }
        let mut to = self.to;
        match self.way.cut {
            Cut::Pieces(size) => bytes.chunks(size).try_for_each(|piece| to.write_all(piece)),
            Cut::AsTheyCome | Cut::Merged(_) => to.write_all(bytes),
        }
    }
}
