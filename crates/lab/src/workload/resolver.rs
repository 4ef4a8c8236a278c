//! The web's resolver: it knows the names of the hosts, and nothing else. UDP and TCP, at an address of its own.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bentpipe_sys::netns::NetNs;
use domain::base::iana::Rcode;
use domain::base::message_builder::{AnswerBuilder, PushError};
use domain::base::{Message, MessageBuilder, Name, Rtype, Serial, Ttl};
use domain::rdata::{A, Aaaa, Soa};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::hosts::Hosts;
use super::serving::{Serving, listen, receive};

/// The port of DNS.
pub const DNS_PORT: u16 = 53;

/// The zone of the hosts' names.
const ZONE: &str = "test";
/// Time that an answer holds unless a task says another: longer than any run takes, as popular names' do more often than not.
pub const USUAL_TTL: Duration = Duration::from_secs(3600);
/// Pause after a failed `accept` or `recv`.
const PAUSE: Duration = Duration::from_millis(10);
/// The largest query; stub resolvers' have less than a hundred bytes.
const MOST_BYTES: usize = 4096;

/// A running resolver; dropping it ends it.
#[derive(Debug)]
pub struct Resolver {
    _serving: Serving,
    known: Arc<Zone>,
}

#[derive(Debug)]
struct Zone {
    hosts: Hosts,
    ttl: Ttl,
    asked: Mutex<BTreeSet<String>>,
}

impl Resolver {
    /// Serves the names of `hosts` at `addresses` in `namespace`; answers hold for `ttl`, in whole seconds.
    ///
    /// # Errors
    /// A port is taken, or no thread or descriptor is left.
    pub fn start(
        namespace: &NetNs,
        addresses: &[IpAddr],
        hosts: &Hosts,
        ttl: Duration,
    ) -> Result<Self> {
        let known = Arc::new(Zone {
            hosts: hosts.clone(),
            ttl: Ttl::from_duration_lossy(ttl),
            asked: Mutex::default(),
        });
        let serve = || {
            for address in addresses {
                let address = SocketAddr::new(*address, DNS_PORT);
                let (udp, tcp) = (receive(namespace, address)?, listen(namespace, address)?);
                tokio::spawn(over_udp(udp, Arc::clone(&known)));
                tokio::spawn(over_tcp(tcp, Arc::clone(&known)));
            }
            Ok(())
        };
        Ok(Self {
            _serving: Serving::start("resolver", serve)?,
            known,
        })
    }

    /// All names that it has been asked for, in lower case.
    #[must_use]
    pub fn asked(&self) -> BTreeSet<String> {
        self.known.asked(|asked| asked.clone())
    }
}

impl Zone {
    fn asked<T>(&self, look: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        look(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The answer to a query; none to what is none.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let query = Message::from_octets(query).ok()?;
        if query.header().qr() {
            return None;
        }
        let question = query.sole_question().ok()?;
        let name = question.qname().to_string().to_ascii_lowercase();
        let address = self.hosts.address(&name);
        self.asked(|asked| asked.insert(name.clone()));
        let rcode = match address {
            Some(_) => Rcode::NOERROR,
            None if name.ends_with(&format!(".{ZONE}")) => Rcode::NXDOMAIN,
            None => Rcode::REFUSED,
        };
        let mut answer = MessageBuilder::new_vec().start_answer(&query, rcode).ok()?;
        answer.header_mut().set_aa(rcode != Rcode::REFUSED);
        answer.header_mut().set_ra(true);
        let owner = question.qname();
        let found = match (question.qtype(), address) {
            (Rtype::A, Some(IpAddr::V4(v4))) => Some(answer.push((owner, self.ttl, A::from(v4)))),
            (Rtype::AAAA, Some(IpAddr::V6(v6))) => {
                Some(answer.push((owner, self.ttl, Aaaa::from(v6))))
            }
            _ => None,
        };
        let nothing = found.is_none() && rcode != Rcode::REFUSED;
        found.transpose().ok()?;
        let nothing_for = nothing.then_some(self.ttl);
        finish(answer, nothing_for, query.opt().is_some()).ok()
    }
}

/// Ends an answer; where there is nothing it says for how long (RFC 2308).
fn finish(
    answer: AnswerBuilder<Vec<u8>>,
    nothing_for: Option<Ttl>,
    extended: bool,
) -> Result<Vec<u8>, PushError> {
    let mut authority = answer.authority();
    if let Some(ttl) = nothing_for {
        let zone = Name::vec_from_str(ZONE).map_err(|_| PushError::ShortBuf)?;
        let soa = Soa::new(&zone, &zone, Serial::from(1), ttl, ttl, ttl, ttl);
        authority.push((&zone, ttl, soa))?;
    }
    let mut additional = authority.additional();
    if extended {
        additional.opt(|_| Ok(()))?;
    }
    Ok(additional.finish())
}

async fn over_udp(socket: UdpSocket, known: Arc<Zone>) {
    let mut buffer = [0; MOST_BYTES];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, from)) => {
                if let Some(answer) = known.answer(&buffer[..length]) {
                    // Who has gone away needs no answer.
                    let _ = socket.send_to(&answer, from).await;
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn over_tcp(listener: TcpListener, known: Arc<Zone>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(converse(stream, Arc::clone(&known)))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Answers one query after another (RFC 7766), until the other end has had enough.
async fn converse(mut stream: TcpStream, known: Arc<Zone>) -> std::io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        let Some(answer) = known.answer(&query) else {
            return Ok(());
        };
        // An answer has some hundred bytes at most.
        let length = u16::try_from(answer.len()).unwrap_or_default();
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        stream.write_all(&framed).await?;
    }
}

#[cfg(test)]
mod tests {
    use domain::base::Question;

    use super::*;

    /// Reply to a question, and the addresses, where there are some.
    fn said(name: &str, kind: Rtype) -> (Rcode, bool, Vec<IpAddr>, usize) {
        let known = Zone {
            ttl: Ttl::from_duration_lossy(USUAL_TTL),
            hosts: Hosts::of_topology(2),
            asked: Mutex::default(),
        };
        let mut query = MessageBuilder::new_vec().question();
        query.header_mut().set_id(77);
        let name = Name::vec_from_str(name).unwrap();
        query.push(Question::new_in(name, kind)).unwrap();
        let mut query = query.additional();
        query.opt(|_| Ok(())).unwrap();
        let answer = known.answer(&query.finish()).unwrap();
        let answer = Message::from_octets(answer).unwrap();
        assert_eq!(answer.header().id(), 77);
        assert!(answer.header().qr() && answer.opt().is_some());
        let records = answer.answer().unwrap();
        let v4 = records.limit_to::<A>();
        let v4 = v4.map(|record| IpAddr::V4(record.unwrap().data().addr()));
        let v6 = records.limit_to::<Aaaa>();
        let v6 = v6.map(|record| IpAddr::V6(record.unwrap().data().addr()));
        let authority = answer.authority().unwrap();
        let nothing = authority.limit_to::<Soa<_>>().count();
        let header = answer.header();
        (header.rcode(), header.aa(), v4.chain(v6).collect(), nothing)
    }

    #[test]
    fn hosts_have_their_addresses_and_no_others() {
        let hosts = Hosts::of_topology(2);
        let [first, second] = [0, 1].map(|place| hosts.get(place).unwrap().1);
        let found = |address| (Rcode::NOERROR, true, vec![address], 0);
        let nothing = |rcode| (rcode, true, Vec::new(), 1);
        assert_eq!(said("host-0.test", Rtype::A), found(first));
        assert_eq!(said("HOST-1.Test", Rtype::AAAA), found(second));
        // A name without such records, and none at all (RFC 2308); of others it knows nothing.
        assert_eq!(said("host-0.test", Rtype::AAAA), nothing(Rcode::NOERROR));
        assert_eq!(said("host-0.test", Rtype::HTTPS), nothing(Rcode::NOERROR));
        assert_eq!(said("host-2.test", Rtype::A), nothing(Rcode::NXDOMAIN));
        let refused = (Rcode::REFUSED, false, Vec::new(), 0);
        assert_eq!(said("example.com", Rtype::A), refused);
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        let known = Zone {
            ttl: Ttl::from_duration_lossy(USUAL_TTL),
            hosts: Hosts::of_topology(2),
            asked: Mutex::default(),
        };
        let mut answer = MessageBuilder::new_vec();
        answer.header_mut().set_qr(true);
        for wrong in [&[][..], &[0; 12], &[0xff; 40], &answer.finish()] {
            assert_eq!(known.answer(wrong), None);
        }
    }
}
