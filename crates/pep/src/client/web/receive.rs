//! Frames of one page's stream: its own to the browser, its objects' into the store.

use std::rc::Rc;
use std::time::Duration;

use bentpipe_web::{Frame, FrameReader, PAGE, PageId};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;

use super::Pages;

/// Time for which a browser may leave its page unread while objects that it may be waiting for are behind it.
const STALL: Duration = Duration::from_secs(1);

/// Way of one frame.
enum Onward {
    Done,
    /// The rest is not wanted, or the server breaks the protocol.
    Stop,
}

/// The stream of one page.
struct Stream {
    pages: Rc<Pages>,
    page: PageId,
    /// `None` once the page is whole.
    to_browser: Option<mpsc::Sender<Frame>>,
    /// Objects of the page are not waited for any more.
    abandoned: bool,
}

impl Pages {
    /// Takes in frames until the stream ends.
    pub(super) async fn receive(
        self: Rc<Self>,
        page: PageId,
        mut pipe: DuplexStream,
        to_browser: mpsc::Sender<Frame>,
    ) {
        let mut stream = Stream {
            pages: self.clone(),
            page,
            to_browser: Some(to_browser),
            abandoned: false,
        };
        let (mut frames, mut bytes) = (FrameReader::default(), vec![0; 16 * 1024]);
        'stream: loop {
            let read = tokio::select! {
                read = pipe.read(&mut bytes) => read,
                () = stream.unwanted() => break,
            };
            match read {
                Ok(read @ 1..) => frames.push(&bytes[..read]),
                Ok(0) | Err(_) => break,
            }
            loop {
                match frames.read() {
                    Ok(Some(frame)) => {
                        if let Onward::Stop = stream.take(frame).await {
                            break 'stream;
                        }
                    }
                    Ok(None) => break,
                    Err(fault) => {
                        tracing::warn!("page's stream ended: {fault}");
                        break 'stream;
                    }
                }
            }
        }
        self.end(page);
    }
}

impl Stream {
    /// Waits until the browser's connection has no use for the page any more; a page that is whole is of use for its objects.
    async fn unwanted(&self) {
        match &self.to_browser {
            Some(to_browser) => to_browser.closed().await,
            None => std::future::pending().await,
        }
    }

    async fn take(&mut self, frame: Frame) -> Onward {
        if frame.id() == Some(PAGE) {
            return self.pass_on(frame).await;
        }
        if self.pages.keep(self.page, frame) {
            return Onward::Done;
        }
        tracing::warn!("page's stream ended: the server promises what it may not");
        Onward::Stop
    }

    /// Gives the browser's connection a frame.
    async fn pass_on(&mut self, frame: Frame) -> Onward {
        let Some(to_browser) = self.to_browser.clone() else {
            tracing::warn!("page's stream ended: the page goes on behind its end");
            return Onward::Stop;
        };
        if matches!(frame, Frame::End { .. } | Frame::Failed { .. }) {
            self.to_browser = None;
        }
        let frame = match to_browser.send_timeout(frame, STALL).await {
            Ok(()) => return Onward::Done,
            Err(SendTimeoutError::Closed(_)) => return Onward::Stop,
            Err(SendTimeoutError::Timeout(frame)) => frame,
        };
        // The browser may be waiting for an object that is behind these bytes: it is to ask for it.
        if !std::mem::replace(&mut self.abandoned, true) {
            self.pages.end(self.page);
        }
        match to_browser.send(frame).await {
            Ok(()) => Onward::Done,
            Err(_) => Onward::Stop,
        }
    }
}
