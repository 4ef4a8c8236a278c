//! Queries over TCP (RFC 7766): several on one connection, answered in any order.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::dns::Room;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Asker, Dns};

/// Connections at once; what comes beyond is closed.
const MAX_CONNECTIONS: usize = 256;

/// How long a connection may be silent (RFC 7766 §6.2.3), or not take its answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest query that is read, bytes.
const MAX_LENGTH: usize = 4096;

/// Queries of one connection whose answers were not taken yet.
const MAX_WAITING: usize = 64;

/// Serves what `listener` accepts.
pub(super) fn start(dns: &Rc<Dns>, listener: TcpListener) -> JoinHandle<()> {
    let dns = dns.clone();
    let open = Rc::new(Cell::new(0));
    crate::frontend::accept(listener, move |stream, _| {
        let (dns, open) = (dns.clone(), open.clone());
        async move {
            if open.get() < MAX_CONNECTIONS {
                open.set(open.get() + 1);
                let _ = serve(&dns, stream).await;
                open.set(open.get() - 1);
            }
        }
    })
}

async fn serve(dns: &Dns, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, write) = tokio::io::split(stream);
    let (answers, waiting) = mpsc::unbounded_channel();
    let (listened, told) = tokio::join!(listen(dns, read, answers), tell(write, waiting));
    listened.and(told)
}

/// Until the host has no more questions; answers to what it has asked still follow.
async fn listen(
    dns: &Dns,
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
        if let Some(answer) = dns.handle(asker, &message, Room::Stream) {
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
