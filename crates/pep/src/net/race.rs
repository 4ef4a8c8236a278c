//! One query on its way to the resolvers: its attempts, and the first answer that counts.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use bentpipe_proto::dns::{MAX_MESSAGE, Outgoing, Query, UDP_SIZE, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::net::dial;
use crate::process;

/// Time that an exchange over TCP may take.
const TCP_PATIENCE: Duration = Duration::from_secs(3);

/// One query with its attempts.
pub(super) struct Race<'a> {
    query: &'a Query,
    mark: Option<u32>,
    edns: bool,
    asked: Vec<(SocketAddr, Outgoing, UdpSocket)>,
    /// Message of a resolver that has failed itself.
    failed: Option<Vec<u8>>,
}

/// Outcome of waiting.
pub(super) enum Outcome {
    Answer(Vec<u8>, SocketAddr),
    /// Ask this resolver again in another way.
    Again(SocketAddr),
    /// Ask another resolver.
    Next,
}

impl<'a> Race<'a> {
    pub(super) fn new(query: &'a Query, mark: Option<u32>) -> Self {
        Self {
            query,
            mark,
            edns: true,
            asked: Vec::new(),
            failed: None,
        }
    }

    /// True if no attempt is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// True if a resolver has said that it has failed itself.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Message of a resolver that has failed itself, if one has.
    pub(super) fn into_failure(self) -> Option<Vec<u8>> {
        self.failed
    }

    pub(super) async fn ask(&mut self, server: SocketAddr) {
        let random = process::random_u64();
        let [a, b, ..] = random.to_be_bytes();
        let id = u16::from_be_bytes([a, b]);
        let outgoing = Outgoing::new(self.query, id, process::random_u64(), self.edns);
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let sent = async {
            let socket = UdpSocket::bind(any).await?;
            mark_socket(&socket, self.mark)?;
            socket.connect(server).await?;
            socket.send(outgoing.as_bytes()).await?;
            Ok::<_, io::Error>(socket)
        };
        match sent.await {
            Ok(socket) => self.asked.push((server, outgoing, socket)),
            Err(error) => {
                process::tell_of_files(&error);
                tracing::debug!("cannot ask {server}: {error}");
            }
        }
    }

    /// Waits for the first that counts.
    pub(super) async fn outcome(&mut self) -> Outcome {
        if self.asked.is_empty() {
            return Outcome::Next;
        }
        let (index, verdict) = self.heard().await;
        let (server, outgoing, _) = self.asked.swap_remove(index);
        match verdict {
            Verdict::Answer(answer) => Outcome::Answer(answer, server),
            Verdict::Failed(answer) => {
                self.failed = Some(answer);
                Outcome::Next
            }
            Verdict::WithoutEdns if self.edns => {
                self.edns = false;
                Outcome::Again(server)
            }
            Verdict::Tcp => match over_tcp(server, self.mark, &outgoing).await {
                Some(Verdict::Answer(answer)) => Outcome::Answer(answer, server),
                Some(Verdict::Failed(answer)) => {
                    self.failed = Some(answer);
                    Outcome::Next
                }
                _ => Outcome::Next,
            },
            Verdict::WithoutEdns | Verdict::Drop => Outcome::Next,
        }
    }

    /// The first datagram of any attempt that is worth something; one whose socket has failed is worth [`Verdict::Drop`].
    async fn heard(&self) -> (usize, Verdict) {
        // One byte more than may come: what fills it is too long.
        let mut buffer = [0; UDP_SIZE as usize + 1];
        poll_fn(|cx| {
            for (index, (_, outgoing, socket)) in self.asked.iter().enumerate() {
                loop {
                    let mut read = ReadBuf::new(&mut buffer);
                    match socket.poll_recv(cx, &mut read) {
                        Poll::Pending => break,
                        // Nobody is there, or nobody can be reached.
                        Poll::Ready(Err(_)) => return Poll::Ready((index, Verdict::Drop)),
                        Poll::Ready(Ok(())) if read.filled().len() > usize::from(UDP_SIZE) => {}
                        Poll::Ready(Ok(())) => match outgoing.judge(read.filled(), false) {
                            Verdict::Drop => {}
                            verdict => return Poll::Ready((index, verdict)),
                        },
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(target_os = "linux")]
fn mark_socket(socket: &impl std::os::fd::AsFd, mark: Option<u32>) -> io::Result<()> {
    mark.map_or(Ok(()), |mark| bentpipe_sys::socket::set_mark(socket, mark))
}

#[cfg(not(target_os = "linux"))]
fn mark_socket(_socket: &UdpSocket, _mark: Option<u32>) -> io::Result<()> {
    Ok(())
}

async fn over_tcp(server: SocketAddr, mark: Option<u32>, outgoing: &Outgoing) -> Option<Verdict> {
    let exchange = async {
        let mut stream = dial::open(server, mark).await?;
        let message = outgoing.as_bytes();
        let length = u16::try_from(message.len()).unwrap_or(0);
        let framed = [&length.to_be_bytes(), message].concat();
        stream.write_all(&framed).await?;
        let length = usize::from(stream.read_u16().await?);
        let mut answer = vec![0; length.min(MAX_MESSAGE)];
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(outgoing.judge(&answer, true))
    };
    timeout(TCP_PATIENCE, exchange).await.ok()?.ok()
}
