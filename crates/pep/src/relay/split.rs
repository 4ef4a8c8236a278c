//! Between two TCP sockets, with `transport = "plain"`: what [`super::Relay`] is for a flow of the tunnel.
//!
//! FIN crosses each way on its own; a reset crosses after the bytes before it. Both sockets must have been
//! [`super::prepare`]d. How much is on its way is the kernel's business: its buffers are the only ones.
//!
//! ```text
//!   near ──► lane ──► far        the side that asked, and the side that was connected to; a lane holds at most
//!   near ◄── lane ◄── far        one read
//! ```

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;

use bentpipe_proto::tunnel::{MAX_REPLY, Reply, ReplyCode};
use bytes::{Buf as _, Bytes};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::select;

use super::{Outcome, delivered};
use crate::status;

/// Bytes that one read takes at most; all splits of a thread share the room.
const SCRATCH: usize = 256 << 10;

/// Length and code of a REPLY, whatever follows them.
const LONGEST_REPLY: usize = MAX_REPLY + 8;

/// Room for reading, and counters, that the splits of one owner share.
#[derive(Debug)]
pub(crate) struct Splits {
    scratch: RefCell<Vec<u8>>,
    open: Cell<u64>,
    /// Splits that were begun.
    pub(crate) opened: Cell<u64>,
    /// Connections that were refused.
    pub(crate) refused: Cell<u64>,
    /// Bytes read from the near sides.
    pub(crate) near_in: Cell<u64>,
    /// Bytes read from the far sides.
    pub(crate) far_in: Cell<u64>,
}

impl Splits {
    /// Room and counters without a flow.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            scratch: RefCell::new(vec![0; SCRATCH]),
            open: Cell::default(),
            opened: Cell::default(),
            refused: Cell::default(),
            near_in: Cell::default(),
            far_in: Cell::default(),
        })
    }

    /// Counts one more open flow, until what this returns is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> OpenSplit {
        self.open.set(self.open.get() + 1);
        OpenSplit(self.clone())
    }

    /// Number of open flows.
    pub(crate) fn open(&self) -> u64 {
        self.open.get()
    }

    /// Room for reading.
    pub(crate) fn scratch(&self) -> &RefCell<Vec<u8>> {
        &self.scratch
    }

    /// Counts payload that was read before the lanes began.
    pub(crate) fn count(total: &Cell<u64>, bytes: &Bytes) {
        total.set(total.get() + bytes.len() as u64);
    }

    /// Flows that `status` tells of.
    pub(crate) fn flows(&self) -> status::Flows {
        status::Flows {
            active: self.open.get(),
            opened_total: self.opened.get(),
            refused_total: self.refused.get(),
            ..status::Flows::default()
        }
    }

    /// Volumes that `status` tells of, where the near side is the LAN.
    pub(crate) fn volumes(&self) -> status::Volumes {
        status::Volumes {
            lan_in: self.near_in.get(),
            lan_out: self.far_in.get(),
            wire_in: self.far_in.get(),
            wire_out: self.near_in.get(),
        }
    }
}

/// An open flow among the [`Splits`] of its owner.
#[derive(Debug)]
pub(crate) struct OpenSplit(Rc<Splits>);

impl Deref for OpenSplit {
    type Target = Splits;

    fn deref(&self) -> &Splits {
        &self.0
    }
}

impl Drop for OpenSplit {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
    }
}

/// The far side of a connection, as far as it has been dealt with.
#[derive(Debug)]
pub(crate) struct Far {
    /// The flow, which counts as open from here on.
    pub(crate) open: OpenSplit,
    /// Connected.
    pub(crate) socket: TcpStream,
    /// Bytes that have still to be written to it.
    pub(crate) owed: Bytes,
    /// Bytes that were read from it already.
    pub(crate) read: Bytes,
    /// Before anything else it says in a REPLY whether there is a connection.
    pub(crate) replies: bool,
}

impl Far {
    /// Waits for the far side's REPLY, if it has one to give; then the address that it connected from.
    pub(crate) async fn reply(&mut self) -> Result<Option<SocketAddr>, ReplyCode> {
        if !self.replies {
            return Ok(self.socket.local_addr().ok());
        }
        self.replies = false;
        let (reply, rest) = read_reply(&self.socket)
            .await
            .map_err(|_| ReplyCode::Internal)?;
        self.read = rest;
        match reply.code {
            ReplyCode::Ok => Ok(reply.bound),
            code => Err(code),
        }
    }
}

/// The REPLY at the start of `socket`, and what came with it.
async fn read_reply(socket: &TcpStream) -> io::Result<(Reply, Bytes)> {
    let mut bytes = Vec::with_capacity(LONGEST_REPLY);
    loop {
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        if let Some((reply, used)) = Reply::decode(&bytes).map_err(malformed)? {
            return Ok((reply, Bytes::from(bytes).slice(used..)));
        }
        read_some(socket, &mut bytes, LONGEST_REPLY).await?;
    }
}

/// Reads on, up to `most` bytes in all; the end of the stream is an error.
pub(crate) async fn read_some(
    socket: &TcpStream,
    bytes: &mut Vec<u8>,
    most: usize,
) -> io::Result<()> {
    loop {
        socket.readable().await?;
        let room = most.saturating_sub(bytes.len());
        let before = bytes.len();
        bytes.resize(before + room, 0);
        let read = socket.try_read(&mut bytes[before..]);
        bytes.truncate(before + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// One of the two ends.
struct End<'a> {
    socket: &'a TcpStream,
    who: Who,
    /// The end has sent FIN.
    ended: Cell<bool>,
    /// The end was lost while it was written to; what it said before may still have to be read.
    lost: Cell<bool>,
    count: &'a Cell<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Near,
    Far,
}

/// Reason why a split ends before both ends have sent FIN.
enum Broken {
    /// An end was reset, timed out or became unreachable, and all that it said has been passed on.
    By(Who),
    Refused(ReplyCode),
}

/// Two sockets with a relay between them.
pub(crate) struct Split {
    /// Of the side that asked.
    pub(crate) near: TcpStream,
    pub(crate) far: Far,
}

impl Split {
    /// Relays until both ends have sent FIN, or one was reset.
    pub(crate) async fn run(self) -> Outcome {
        let Self { near, far } = self;
        let Far {
            open: splits,
            socket: far,
            owed,
            read,
            replies,
        } = far;
        splits.opened.set(splits.opened.get() + 1);
        let end = |socket, who, count| End {
            socket,
            who,
            ended: Cell::new(false),
            lost: Cell::new(false),
            count,
        };
        let left = end(&near, Who::Near, &splits.near_in);
        let right = end(&far, Who::Far, &splits.far_in);
        let up = lane(&left, &right, owed, &splits.scratch);
        let down = async {
            let mut read = read;
            if replies {
                let (reply, rest) = read_reply(&far).await.map_err(|_| Broken::By(Who::Far))?;
                if reply.code != ReplyCode::Ok {
                    return Err(Broken::Refused(reply.code));
                }
                Splits::count(&splits.far_in, &rest);
                read = rest;
            }
            lane(&right, &left, read, &splits.scratch).await
        };
        let done = both(&left, &right, up, down).await;
        ended((near, far), done, &splits).await
    }
}

/// Ends both sockets as the relay has `done`: in order, or with a reset of the one that is left once it has all.
async fn ended(
    (near, far): (TcpStream, TcpStream),
    done: Result<(), Broken>,
    splits: &Splits,
) -> Outcome {
    match done {
        Ok(()) => {
            for socket in [&near, &far] {
                let _ = SockRef::from(socket).set_linger(None);
            }
            Outcome::Closed
        }
        Err(Broken::By(Who::Near)) => {
            drop(near);
            delivered(&far).await;
            Outcome::LanReset
        }
        Err(Broken::By(Who::Far)) => {
            drop(far);
            delivered(&near).await;
            Outcome::PeerReset
        }
        Err(Broken::Refused(code)) => {
            splits.refused.set(splits.refused.get() + 1);
            Outcome::Refused(code)
        }
    }
}

/// Both directions, until both have ended or one cannot.
async fn both(
    left: &End<'_>,
    right: &End<'_>,
    up: impl Future<Output = Result<(), Broken>>,
    down: impl Future<Output = Result<(), Broken>>,
) -> Result<(), Broken> {
    let (mut up, mut down) = (pin!(up), pin!(down));
    select! {
        done = &mut up => {
            done?;
            select! { done = down => done, () = hangup(left.socket) => Err(Broken::By(left.who)) }
        }
        done = &mut down => {
            done?;
            select! { done = up => done, () = hangup(right.socket) => Err(Broken::By(right.who)) }
        }
    }
}

/// Ready when an end is reset after its FIN, which nobody would see otherwise.
async fn hangup(socket: &TcpStream) {
    let _ = socket.ready(Interest::ERROR).await;
}

/// Writes all that is `owed`.
async fn pay(to: &TcpStream, owed: &mut Bytes) -> io::Result<()> {
    while !owed.is_empty() {
        to.writable().await?;
        match to.try_write(owed) {
            Ok(n) => owed.advance(n),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One direction, until its FIN has been passed on.
async fn lane(
    from: &End<'_>,
    to: &End<'_>,
    mut owed: Bytes,
    scratch: &RefCell<Vec<u8>>,
) -> Result<(), Broken> {
    loop {
        if pay(to.socket, &mut owed).await.is_err() {
            return lose(from, to).await;
        }
        if from.socket.readable().await.is_err() {
            return Err(Broken::By(from.who));
        }
        let mut scratch = scratch.borrow_mut();
        match from.socket.try_read(&mut scratch) {
            // A write has taken the error: this is no FIN.
            Ok(0) if from.lost.get() => return Err(Broken::By(from.who)),
            Ok(0) => break,
            Ok(n) => {
                from.count.set(from.count.get() + n as u64);
                let written = to.socket.try_write(&scratch[..n]);
                // Whatever is wrong with it the next attempt tells as well.
                owed = Bytes::copy_from_slice(&scratch[written.unwrap_or(0)..n]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Broken::By(from.who)),
        }
    }
    from.ended.set(true);
    match SockRef::from(to.socket).shutdown(Shutdown::Write) {
        Ok(()) => Ok(()),
        Err(_) => lose(from, to).await,
    }
}

/// `to` cannot be written to any more. Data that came before its reset is still in the socket: the other
/// direction ends the split when that has been read, unless its reader was lost as well.
async fn lose(from: &End<'_>, to: &End<'_>) -> Result<(), Broken> {
    if to.ended.get() || from.lost.get() {
        return Err(Broken::By(to.who));
    }
    to.lost.set(true);
    pending().await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// A host, and the socket of its connection at this end.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let host = TcpStream::connect(address).await.expect("a host");
        let (socket, _) = listener.accept().await.expect("its connection");
        super::super::prepare(&socket).expect("options");
        (host, socket)
    }

    /// Writes until nothing more is taken for a while, reads nothing and resets the connection.
    async fn fills_and_resets(host: TcpStream) {
        while let Ok(Ok(())) = timeout(Duration::from_millis(200), host.writable()).await {
            let _ = host.try_write(&[7; 65_536]);
        }
        let linger = SockRef::from(&host).set_linger(Some(Duration::ZERO));
        linger.expect("an option");
    }

    #[tokio::test]
    async fn a_split_ends_whose_hosts_are_both_reset_with_bytes_on_their_way() {
        let ((one, near), (other, far)) = (connected().await, connected().await);
        let splits = Splits::new();
        let far = Far {
            open: splits.begin(),
            socket: far,
            owed: Bytes::new(),
            read: Bytes::new(),
            replies: false,
        };
        assert_eq!(splits.open(), 1);
        let split = Split { near, far };
        let hosts = async { tokio::join!(fills_and_resets(one), fills_and_resets(other)) };
        let run = async { tokio::join!(split.run(), hosts).0 };
        let outcome = timeout(Duration::from_secs(20), run).await;
        let outcome = outcome.expect("an end");
        assert!(matches!(outcome, Outcome::LanReset | Outcome::PeerReset));
        assert_eq!(splits.open(), 0);
    }
}
