//! What is no plain GET, inside of TLS that is ended here: bytes to the server and back, as they come.

use std::cell::Cell;
use std::rc::Rc;

use bentpipe_web::{Frame, FrameReader, MAX_DATA, PAGE};
use bytes::Bytes;
use tokio::io::{duplex, split};
use tokio::task::spawn_local;

use super::PageRoad;
use super::browser::TrustedParts;
use crate::relay::{Outcome, PIPE, Parting, relay_framed, relay_in_process};

impl TrustedParts {
    /// Relays the rest of a browser's connection to its end.
    pub(crate) async fn relay(mut self, road: &impl PageRoad) -> Outcome {
        if !road.carries_trusted().await {
            // The tunnel's server is another now, and a browser in TLS has no other way.
            return Outcome::TunnelLost;
        }
        let (destination, source) = &self.place;
        let opened = road.open_page(destination, *source, self.opening()).await;
        let handle = match opened {
            Ok(handle) => handle,
            Err(outcome) => return outcome,
        };
        let (ours, theirs) = duplex(PIPE);
        let ended = Rc::new(Cell::new(Outcome::PeerReset));
        let relayed = ended.clone();
        spawn_local(async move { relayed.set(relay_in_process(handle, theirs).await) });
        match relay_framed(
            &mut self.speech.stream(),
            FrameReader::default(),
            split(ours),
        )
        .await
        {
            Parting::InOrder | Parting::Cut => {
                self.speech.cut();
                Outcome::Closed
            }
            Parting::Reset => {
                self.speech.delivered().await;
                ended.get()
            }
        }
    }
    /// Frames that a relay begins with.
    fn opening(&self) -> Bytes {
        let mut first = Vec::with_capacity(self.unread.len() + 64);
        let name = self.speech.name().unwrap_or_default();
        Frame::Tls(Bytes::copy_from_slice(name.as_bytes())).encode(&mut first);
        Frame::Relay.encode(&mut first);
        for piece in self.unread.chunks(MAX_DATA) {
            let bytes = self.unread.slice_ref(piece);
            Frame::Data { id: PAGE, bytes }.encode(&mut first);
        }
        first.into()
    }
}
