//! Queries over TCP (RFC 7766): several on one connection, answered in any order.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::dns::Room;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Asker, Dns, Question};

/// Connections at once; what comes beyond is closed.
const MAX_CONNECTIONS: usize = 256;

/// Connections of one host among these.
const MAX_OF_HOST: usize = 32;

/// Time that a connection may be silent (RFC 7766 §6.2.3), or not take its answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest query that is read, bytes.
const MAX_LENGTH: usize = 4096;

/// Queries of one connection whose answers were not taken yet.
const MAX_WAITING: usize = 64;

/// Open connections of each host.
type Open = RefCell<HashMap<IpAddr, usize>>;

/// Serves what `listener` accepts; `intercepts`: connections were meant for other resolvers.
pub(super) fn start(dns: &Rc<Dns>, listener: TcpListener, intercepts: bool) -> JoinHandle<()> {
    let dns = dns.clone();
    let open = Rc::new(Open::default());
    crate::net::listen::accept(listener, move |stream, host| {
        let (dns, open) = (dns.clone(), open.clone());
        async move {
            let host = host.ip().to_canonical();
            if enter(&open, host) {
                let _ = serve(&dns, stream, host, intercepts).await;
                leave(&open, host);
            }
        }
    })
}

fn enter(open: &Open, host: IpAddr) -> bool {
    let mut open = open.borrow_mut();
    let all: usize = open.values().sum();
    let of_host = open.get(&host).copied().unwrap_or(0);
    let room = all < MAX_CONNECTIONS && of_host < MAX_OF_HOST;
    if room {
        open.insert(host, of_host + 1);
    }
    room
}

fn leave(open: &Open, host: IpAddr) {
    let mut open = open.borrow_mut();
    match open.get(&host).copied() {
        Some(more) if more > 1 => drop(open.insert(host, more - 1)),
        _ => drop(open.remove(&host)),
    }
}

async fn serve(dns: &Rc<Dns>, stream: TcpStream, host: IpAddr, intercepts: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let resolver = stream.local_addr().map(|local: SocketAddr| local.ip());
    let asked = Question {
        host,
        resolver: resolver.ok().filter(|_| intercepts),
    };
    let (read, write) = tokio::io::split(stream);
    let (answers, waiting) = mpsc::unbounded_channel();
    let (listened, told) = tokio::join!(listen(dns, asked, read, answers), tell(write, waiting));
    listened.and(told)
}

/// Until the host has no more questions; answers to what it has asked still follow.
async fn listen(
    dns: &Rc<Dns>,
    asked: Question,
    mut stream: ReadHalf<TcpStream>,
    answers: mpsc::UnboundedSender<Vec<u8>>,
) -> io::Result<()> {
    let mut message = Vec::new();
    // Each answer that is under way holds a clone.
    while answers.strong_count() <= MAX_WAITING {
        let Ok(length) = timeout(PATIENCE, stream.read_u16()).await else {
            break;
        };
        let Ok(length) = length.map(usize::from) else {
            break;
        };
        if length > MAX_LENGTH {
            break;
        }
        message.resize(length, 0);
        timeout(PATIENCE, stream.read_exact(&mut message)).await??;
        let asker = Asker::Tcp(answers.clone());
        if let Some(answer) = dns.handle(asker, asked, &message, Room::Stream) {
            let _ = answers.send(answer);
        }
    }
    Ok(())
}

async fn tell(
    mut stream: WriteHalf<TcpStream>,
    mut answers: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(answer) = answers.recv().await {
        let length = u16::try_from(answer.len()).unwrap_or(0);
        let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
        timeout(PATIENCE, stream.write_all(&framed)).await??;
    }
    stream.shutdown().await
}
