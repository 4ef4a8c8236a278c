//! The ports that one session has asked for, and the tasks that keep them open.

use std::collections::BTreeMap;

use bentpipe_proto::tunnel::{Publish, PublishCode};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

use crate::config::PortProtocol;
use crate::status::PublishStatus;

/// Ports that one session has asked for.
#[derive(Default)]
pub(in crate::server) struct Ports {
    asked: BTreeMap<u64, Port>,
    /// The client has not answered for some time; what is open of connections stays.
    silent: watch::Sender<bool>,
    silence: Option<Task>,
}

struct Port {
    asked: Publish,
    /// Code that the client was told last.
    told: Option<PublishCode>,
    /// Keeps it open, for as long as the client answers; without one it is not permitted.
    task: Option<Task>,
}

/// A task that ends with this.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ports {
    /// Closes all of them.
    pub(in crate::server) fn clear(&mut self) {
        self.asked.clear();
    }

    /// The client asks for one; false if it has asked before.
    pub(in crate::server) fn insert(&mut self, asked: Publish) -> bool {
        let port = Port {
            asked,
            told: None,
            task: None,
        };
        let known = self.asked.contains_key(&asked.entry);
        if !known {
            self.asked.insert(asked.entry, port);
        }
        !known
    }

    /// All that were asked for.
    pub(in crate::server) fn asked(&self) -> Vec<Publish> {
        self.asked.values().map(|port| port.asked).collect()
    }

    /// Keeps a port open by a task of its own, which is told when the client is silent. One that is kept already stays.
    pub(in crate::server) fn keep<F>(
        &mut self,
        entry: u64,
        keep: impl FnOnce(watch::Receiver<bool>) -> F,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let silent = self.silent.subscribe();
        if let Some(port) = self.asked.get_mut(&entry)
            && port.task.is_none()
        {
            port.task = Some(Task(spawn_local(keep(silent))));
        }
    }

    /// Closes one.
    pub(in crate::server) fn close(&mut self, entry: u64) {
        if let Some(port) = self.asked.get_mut(&entry) {
            port.task = None;
        }
    }

    /// The client does not answer: `then` runs until it does again.
    pub(in crate::server) fn begin_silence(&mut self, then: impl Future<Output = ()> + 'static) {
        self.silence = Some(Task(spawn_local(then)));
    }

    /// The client answers again.
    pub(in crate::server) fn end_silence(&mut self) {
        self.silence = None;
        self.silent.send_replace(false);
    }

    /// The client has been silent for too long.
    pub(in crate::server) fn close_for_silence(&self) {
        self.silent.send_replace(true);
    }

    /// Notes what the client is told; false if it knows.
    pub(in crate::server) fn tell(&mut self, entry: u64, code: PublishCode) -> bool {
        let port = self.asked.get_mut(&entry);
        port.is_some_and(|port| port.told.replace(code) != Some(code))
    }

    /// For `status`.
    pub(in crate::server) fn report(&self) -> Vec<PublishStatus> {
        let status = |port: &Port| {
            let protocol = protocol_of(port.asked.protocol)?;
            Some(PublishStatus::new(
                protocol,
                port.asked.port,
                None,
                port.told,
            ))
        };
        self.asked.values().filter_map(status).collect()
    }
}

pub(in crate::server) fn protocol_of(number: u8) -> Option<PortProtocol> {
    [PortProtocol::Tcp, PortProtocol::Udp]
        .into_iter()
        .find(|known| known.number() == number)
}
