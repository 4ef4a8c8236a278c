//! Asking for names as the C library does: both families at once over UDP, again after five seconds.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// `timeout` and `attempts` of resolv.conf, as they are if it says nothing.
const TIMEOUT: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 2;
const MOST_BYTES: usize = 4096;

/// Identifiers of the two queries. Nobody forges answers here, and each lookup has a socket of its own.
const QUERIES: [(u16, Rtype); 2] = [(1, Rtype::A), (2, Rtype::AAAA)];

/// Asks `resolver` for the address of `name`; IPv6 goes before IPv4.
pub(super) async fn lookup(resolver: SocketAddr, name: &str) -> Result<IpAddr> {
    let ask = async {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        socket.connect(resolver).await?;
        let mut answers: [Option<Vec<IpAddr>>; 2] = [None, None];
        for _ in 0..ATTEMPTS {
            for ((id, kind), answer) in QUERIES.into_iter().zip(&answers) {
                if answer.is_none() {
                    socket.send(&query(id, kind, name)?).await?;
                }
            }
            hear(&socket, &mut answers, Instant::now() + TIMEOUT).await?;
            if let [Some(v4), Some(v6)] = &answers {
                let first = v6.iter().chain(v4).next();
                return first.copied().context("it has no address");
            }
        }
        bail!("the resolver does not answer")
    };
    ask.await
        .with_context(|| format!("asking {resolver} for {name}"))
}

fn query(id: u16, kind: Rtype, name: &str) -> Result<Vec<u8>> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(id);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((Name::vec_from_str(name)?, kind))?;
    Ok(question.finish())
}

/// Fills `answers` until they are all there, or until `deadline`.
async fn hear(
    socket: &UdpSocket,
    answers: &mut [Option<Vec<IpAddr>>; 2],
    deadline: Instant,
) -> Result<()> {
    let mut buffer = [0; MOST_BYTES];
    while answers.iter().any(Option::is_none) {
        let Ok(length) = timeout_at(deadline, socket.recv(&mut buffer)).await else {
            return Ok(());
        };
        let message = Message::from_octets(&buffer[..length?])?;
        let header = message.header();
        let Some(place) = QUERIES.iter().position(|(id, _)| *id == header.id()) else {
            continue;
        };
        let rcode = header.rcode();
        ensure!(rcode == Rcode::NOERROR && !header.tc(), "it says {rcode}");
        answers[place] = Some(addresses(&message)?);
    }
    Ok(())
}

fn addresses(message: &Message<&[u8]>) -> Result<Vec<IpAddr>> {
    let records = message.answer()?;
    let v4 = records.limit_to::<A>();
    let v4 = v4.map(|record| Ok(IpAddr::V4(record?.data().addr())));
    let v6 = records.limit_to::<Aaaa>();
    let v6 = v6.map(|record| Ok(IpAddr::V6(record?.data().addr())));
    v4.chain(v6).collect()
}
