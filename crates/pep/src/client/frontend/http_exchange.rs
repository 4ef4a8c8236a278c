//! One request of plain HTTP and its response, between an application and an origin.
//!
//! A response reaches the application as it reaches this proxy, and so does its end: in order if the origin has ended in order, by a reset
//! if the origin, the tunnel or the server has broken off. For a body that only the end of the connection ends (RFC 9112 §6.3), a FIN
//! after half of it would say that this was all.

use std::io;

use bentpipe_proto::proxy::forward::{self, Framing, RequestHead, ResponseHead};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;

use super::http_body::{Body, BodySource, BrokenOff, write_all};

/// Answer that a request got.
pub(super) enum Answered {
    /// The next request may follow.
    Whole,
    /// Nothing can follow it, and the connection ends in order.
    Last,
    /// The answer broke off after a part of it, and the connection is to be reset.
    Cut,
    /// The origin was not reached, or gave no answer, and the application has heard nothing.
    Nothing,
}

/// Response as it came from an origin.
enum Response {
    /// All of it has come, as its head says; `keeps`: another one may follow.
    Whole { keeps: bool },
    /// The origin has ended it by ending the connection in order.
    Ended,
    /// A part of it has come.
    BrokenOff,
    /// Status 101, with what has come of the protocol that follows.
    Switched(Vec<u8>),
    /// None has come, or none that can be understood.
    Nothing,
}

/// Sends a request and its body, and brings the response; what the application has sent already is in `buffer`. An error says that the
/// application is gone.
pub(super) async fn exchange(
    application: &mut TcpStream,
    origin: &mut TcpStream,
    request: &RequestHead,
    buffer: &mut Vec<u8>,
) -> io::Result<Answered> {
    let (response, sent) = converse(application, origin, request, buffer).await?;
    Ok(match (response, sent) {
        (Response::Whole { keeps: true }, RequestSent::Whole) => Answered::Whole,
        // Whatever is left of the request's body would be taken for the next request.
        (Response::Whole { .. }, _) => Answered::Last,
        // A reset is told once: where it has met a write, reads end as if in order.
        (Response::Ended, RequestSent::Refused) | (Response::BrokenOff, _) => Answered::Cut,
        (Response::Ended, _) => Answered::Last,
        (Response::Nothing, _) => Answered::Nothing,
        (Response::Switched(rest), _) => {
            application.write_all(&rest).await?;
            origin.write_all(buffer).await?;
            buffer.clear();
            match copy_bidirectional(application, origin).await {
                Ok(_) => Answered::Last,
                Err(_) => Answered::Cut,
            }
        }
    })
}

/// Part of a request that an origin has been sent.
enum RequestSent {
    Whole,
    /// The origin has answered before.
    Part,
    /// The origin has reset the connection, or is lost.
    Refused,
}

/// Sends and receives at once: an origin that has not read everything may answer all the same.
async fn converse(
    application: &TcpStream,
    origin: &TcpStream,
    request: &RequestHead,
    buffer: &mut Vec<u8>,
) -> io::Result<(Response, RequestSent)> {
    let mut body = Body::new(request.body);
    let mut upload = Box::pin(async {
        let head = write_all(origin, &request.head).await;
        head.map_err(|_| BrokenOff::Sink)?;
        let from = BodySource {
            socket: application,
            awaited_by: None,
        };
        body.copy(buffer, from, origin).await
    });
    let mut download = Box::pin(respond(origin, application, request));
    let (response, sent) = tokio::select! {
        response = &mut download => (response?, None),
        sent = &mut upload => {
            if let Err(BrokenOff::Source(error)) = sent {
                return Err(error);
            }
            (download.await?, Some(sent))
        }
    };
    drop(upload);
    let sent = match sent {
        Some(Err(_)) => RequestSent::Refused,
        None if !body.is_done() => RequestSent::Part,
        _ => RequestSent::Whole,
    };
    Ok((response, sent))
}

/// Brings the response to `request`. An error says that the application is gone.
async fn respond(
    origin: &TcpStream,
    application: &TcpStream,
    request: &RequestHead,
) -> io::Result<Response> {
    let from = BodySource {
        socket: origin,
        awaited_by: Some(application),
    };
    let mut buffer = Vec::with_capacity(1024);
    let mut said = false;
    let head = loop {
        let head = match read_head(from, &mut buffer, request).await? {
            Some(head) => head,
            None if said => return Ok(Response::BrokenOff),
            None => return Ok(Response::Nothing),
        };
        write_all(application, &head.head).await?;
        said = true;
        if !head.is_interim() {
            break head;
        }
    };
    if head.status == 101 {
        return Ok(Response::Switched(buffer));
    }
    let mut body = Body::new(head.body);
    Ok(match body.copy(&mut buffer, from, application).await {
        Ok(()) if head.body == Framing::End => Response::Ended,
        Ok(()) => Response::Whole { keeps: head.keeps },
        // The application counts, or misses the last chunk, as it would without a proxy.
        Err(BrokenOff::Source(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Response::Ended
        }
        Err(_) => Response::BrokenOff,
    })
}

/// Reads the head of the next response; `None`: there is none, or it cannot be understood. An error says that the application is gone.
async fn read_head(
    from: BodySource<'_>,
    buffer: &mut Vec<u8>,
    request: &RequestHead,
) -> io::Result<Option<ResponseHead>> {
    loop {
        match forward::decode_response(buffer, request) {
            Ok(Some((head, used))) => {
                buffer.drain(..used);
                return Ok(Some(head));
            }
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        match from.read(buffer).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Err(error),
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}
