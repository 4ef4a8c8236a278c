//! A relay by frames of a page's stream (`PROTOCOL.md` §19.5): what crosses keeps the ends that TLS has, which a flow does not know.
//!
//! ```text
//!  browser or origin ══ TLS ── read ──► DATA, END, FAILED ──► pipe of a flow
//!                       TLS ◄── write ◄──────────────────────◄ pipe
//! ```

use bentpipe_web::{Closing, Frame, FrameReader, MAX_DATA, PAGE};
use bytes::Bytes;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf,
    WriteHalf, split,
};

use crate::relay::over_tcp::is_cut;

/// End of a relay by frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// In order, both ways.
    InOrder,
    /// By FIN without close_notify: to be handed on as that.
    Cut,
    /// By a reset.
    Reset,
}

/// Relays between `stream` and `pipe`, of which `frames` has read some already, until both directions have ended.
pub(crate) async fn relay_framed(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    frames: FrameReader,
    (from_peer, to_peer): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
) -> Parting {
    let (from, to) = split(stream);
    match tokio::try_join!(send(from, to_peer), receive(to, frames, from_peer)) {
        Ok(((), ())) => Parting::InOrder,
        Err(parting) => parting,
    }
}

/// Sends what `from` says, to its end.
async fn send(
    mut from: impl AsyncRead + Unpin,
    mut to_peer: WriteHalf<DuplexStream>,
) -> Result<(), Parting> {
    let (mut read, mut bytes) = (vec![0; MAX_DATA], Vec::new());
    loop {
        let end = |close| Frame::End { id: PAGE, close };
        let frame = match from.read(&mut read).await {
            Ok(0) => end(Closing::InOrder),
            Ok(count) => Frame::Data {
                id: PAGE,
                bytes: Bytes::copy_from_slice(&read[..count]),
            },
            Err(error) if is_cut(&error) => end(Closing::Cut),
            Err(_) => Frame::Failed { id: PAGE },
        };
        bytes.clear();
        frame.encode(&mut bytes);
        let sent = to_peer.write_all(&bytes).await;
        sent.map_err(|_| Parting::Reset)?;
        match frame {
            Frame::End { .. } => return to_peer.shutdown().await.map_err(|_| Parting::Reset),
            Frame::Failed { .. } => return Err(Parting::Reset),
            _ => {}
        }
    }
}

/// Gives `to` what the peer sends, to its end.
async fn receive(
    mut to: impl AsyncWrite + Unpin,
    mut frames: FrameReader,
    mut from_peer: ReadHalf<DuplexStream>,
) -> Result<(), Parting> {
    let mut bytes = vec![0; MAX_DATA];
    let reset = |_| Parting::Reset;
    loop {
        while let Some(frame) = frames.read().map_err(|_| Parting::Reset)? {
            match frame {
                Frame::Data { id: PAGE, bytes } => to.write_all(&bytes).await.map_err(reset)?,
                Frame::End {
                    id: PAGE,
                    close: Closing::InOrder,
                } => return to.shutdown().await.map_err(reset),
                Frame::End {
                    id: PAGE,
                    close: Closing::Cut,
                } => {
                    to.flush().await.map_err(reset)?;
                    return Err(Parting::Cut);
                }
                // A reset, or what no relay says.
                _ => return Err(Parting::Reset),
            }
        }
        to.flush().await.map_err(reset)?;
        match from_peer.read(&mut bytes).await {
            Ok(count @ 1..) => frames.push(&bytes[..count]),
            Ok(0) | Err(_) => return Err(Parting::Reset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// What comes of `frames` at a connection whose other end says nothing more.
    fn heard(frames: &[Frame]) -> (Vec<u8>, Parting) {
        let runtime = crate::process::runtime().expect("a runtime");
        let mut words = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut words));
        runtime.block_on(async {
            let ((mut stream, mut host), (pipe, mut peer)) = (duplex(4096), duplex(4096));
            peer.write_all(&words).await.unwrap();
            peer.shutdown().await.unwrap();
            host.shutdown().await.unwrap();
            let parting = relay_framed(&mut stream, FrameReader::default(), split(pipe)).await;
            drop(stream);
            let mut heard = Vec::new();
            host.read_to_end(&mut heard).await.unwrap();
            (heard, parting)
        })
    }

    #[test]
    fn ends_are_handed_on_as_they_were() {
        let data = Frame::Data {
            id: 0,
            bytes: Bytes::from_static(b"word"),
        };
        let end = |close| Frame::End { id: 0, close };
        let told = b"word".to_vec();
        for (last, parting) in [
            (Some(end(Closing::InOrder)), Parting::InOrder),
            (Some(end(Closing::Cut)), Parting::Cut),
            (Some(end(Closing::Open)), Parting::Reset),
            (Some(Frame::Failed { id: 0 }), Parting::Reset),
            (Some(Frame::Relay), Parting::Reset),
            (None, Parting::Reset),
        ] {
            let frames: Vec<_> = [Some(data.clone()), last.clone()]
                .into_iter()
                .flatten()
                .collect();
            assert_eq!(heard(&frames), (told.clone(), parting), "{last:?}");
        }
    }
}
