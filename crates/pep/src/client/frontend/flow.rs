//! From a connection that a front end took in to a relayed flow.
//!
//! Optimistic: the application is told "connected" (an intercepted one has been, by the kernel), its
//! first bytes leave together with OPEN, and a refusal reaches it as a reset. Not optimistic: OPEN goes
//! alone and the application hears the server's own answer; one RTT slower, never wrong.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bentpipe_proto::proxy::{connect, socks5};
use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bentpipe_web::Scheme;
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::share::Shares;
use crate::client::carrier::{Carrier, Flow, FlowRelay, NotOpened, Said};
use crate::client::web::{Browser, Ending, Meeting, Parts};
use crate::relay::Outcome;

/// Way in which a front end's application is told the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// No words: TCP itself tells the application, or whoever holds the other end does.
    Silent,
    /// By a SOCKS5 reply.
    Socks5,
    /// By an HTTP status.
    Connect,
}

impl Answer {
    fn text(self, code: ReplyCode, bound: Option<SocketAddr>) -> Vec<u8> {
        match self {
            Self::Silent => Vec::new(),
            Self::Socks5 => socks5::reply(code, bound),
            Self::Connect => connect::reply(code),
        }
    }
}

impl Answer {
    /// Tells the application that it is connected.
    pub(super) async fn accept(
        self,
        socket: &mut TcpStream,
        bound: Option<SocketAddr>,
    ) -> io::Result<()> {
        socket.write_all(&self.text(ReplyCode::Ok, bound)).await
    }
}

/// Tells the application that it is not connected, and why.
pub(super) async fn tell(socket: TcpStream, answer: Answer, code: ReplyCode) -> Outcome {
    turn_away(socket, &answer.text(code, None)).await;
    Outcome::Refused(code)
}

/// A connection that a front end took in.
pub(super) struct Intake {
    /// Prepared for relaying ([`crate::relay::prepare`]).
    pub(super) socket: TcpStream,
    /// Destination that it wants.
    pub(super) destination: Destination,
    /// Address that asked.
    pub(super) source: Option<SocketAddr>,
    /// Bytes for the destination that were read already.
    pub(super) first: Bytes,
    /// Way in which the application is told.
    pub(super) answer: Answer,
    /// Bounds how many connections of one host wait to be opened; `None`: that was seen to.
    pub(super) shares: Option<Rc<Shares>>,
}

/// A flow that is open as far as its application is concerned.
pub(super) struct Opened {
    pub(super) flow: Flow,
    /// The address that the server connected from, if it was waited for.
    bound: Option<SocketAddr>,
}

/// Opens a flow for `intake` and relays it to its end.
pub(super) fn carry(carrier: &Carrier, intake: Intake) -> impl Future<Output = Outcome> {
    // Apart, so that what answering and opening need does not stay with the flow for its life.
    let browsing = Box::pin(browse(carrier, intake));
    async move {
        let intake = match browsing.await {
            Ok(intake) => intake,
            Err(outcome) => return outcome,
        };
        let waits = intake.shares.clone().zip(intake.source);
        let establishing = Box::pin(establish(carrier, intake));
        let established = match waits {
            Some((shares, source)) => Box::pin(shares.run(source.ip(), establishing)).await,
            None => Some(establishing.await),
        };
        match established {
            Some(Ok(relay)) => relay.run().await,
            Some(Err(outcome)) => outcome,
            None => Outcome::LanReset,
        }
    }
}

/// Answers a browser as long as it loads pages, where some are fetched ahead; gives back what is to be a flow.
async fn browse(carrier: &Carrier, intake: Intake) -> Result<Intake, Outcome> {
    let pages = carrier.session().and_then(|it| Some((it, it.pages()?)));
    let Some((session, pages)) = pages else {
        return Ok(intake);
    };
    // Objects belong to a host: one that is not known has none.
    let known = intake.source.is_some() && carrier.is_optimistic(&intake.destination);
    let scheme = pages.scheme_of(&intake.destination);
    let Some(scheme) = scheme.filter(|_| known) else {
        return Ok(intake);
    };
    let _attended = carrier.attendance().enter();
    let (mut socket, answer) = (intake.socket, intake.answer);
    if answer.accept(&mut socket, None).await.is_err() {
        return Err(Outcome::LanReset);
    }
    let place = (intake.destination, intake.source);
    let met = match scheme {
        Scheme::Http => Meeting::Browser(Browser::new(socket, place, &intake.first)),
        Scheme::Https => pages.meet(&**session, socket, place, &intake.first).await,
    };
    let (socket, destination, first) = match met {
        Meeting::Over(outcome) => return Err(outcome),
        Meeting::Untouched(socket, destination, first) => (socket, destination, first),
        Meeting::Multiplexed(browser) => {
            return Err(browser.serve(pages, session.clone()).await);
        }
        Meeting::Browser(mut browser) => {
            if let Ending::Over(outcome) = pages.serve(&**session, &mut browser).await {
                return Err(outcome);
            }
            match browser.into_parts() {
                Parts::Clear(socket, destination, first) => (socket, destination, first),
                Parts::Trusted(parts) => return Err(pages.relay(parts, &**session).await),
            }
        }
    };
    Ok(Intake {
        socket,
        destination,
        source: intake.source,
        first,
        // The application has been told.
        answer: Answer::Silent,
        shares: intake.shares,
    })
}

/// Opens a flow and tells the application.
async fn establish(carrier: &Carrier, intake: Intake) -> Result<FlowRelay, Outcome> {
    let Intake {
        mut socket,
        destination,
        source,
        first,
        answer,
        shares: _,
    } = intake;
    let optimistic = carrier.is_optimistic(&destination);
    if optimistic && answer.accept(&mut socket, None).await.is_err() {
        return Err(Outcome::LanReset);
    }
    let opened = if optimistic {
        let said = Said::Soon(first, &socket);
        let flow = carrier.open(&destination, source, said).await;
        flow.map(|flow| Opened { flow, bound: None })
    } else {
        open_and_wait(carrier, &destination, source, first).await
    };
    match opened {
        Ok(opened) => {
            if !optimistic && answer.accept(&mut socket, opened.bound).await.is_err() {
                return Err(Outcome::LanReset);
            }
            Ok(opened.flow.relay(socket))
        }
        Err(failure) => {
            // Who was promised a connection can only be reset: by dropping the socket.
            let waiting = (!optimistic).then_some((socket, answer));
            Err(fail(waiting, failure).await)
        }
    }
}

/// Tells an application that is `waiting` for the answer why there is no flow.
async fn fail(waiting: Option<(TcpStream, Answer)>, failure: NotOpened) -> Outcome {
    let (code, outcome) = match failure {
        NotOpened::Application => return Outcome::LanReset,
        NotOpened::NoServer => (ReplyCode::TimedOut, Outcome::TunnelLost),
        NotOpened::Code(code) => (code, Outcome::Refused(code)),
    };
    if let Some((socket, answer)) = waiting {
        turn_away(socket, &answer.text(code, None)).await;
    }
    outcome
}

/// Opens a flow and waits for the server's answer.
pub(super) async fn open_and_wait(
    carrier: &Carrier,
    destination: &Destination,
    source: Option<SocketAddr>,
    first: Bytes,
) -> Result<Opened, NotOpened> {
    let said = Said::All(first);
    let mut flow = carrier.open(destination, source, said).await?;
    let bound = flow.reply().await.map_err(NotOpened::Code)?;
    Ok(Opened { flow, bound })
}

/// Says `text` and closes in order; an intercepted connection, which has no text, is reset.
async fn turn_away(mut socket: TcpStream, text: &[u8]) {
    if !text.is_empty() && socket.write_all(text).await.is_ok() {
        let _ = SockRef::from(&socket).set_linger(None);
        let _ = socket.shutdown().await;
    }
}
