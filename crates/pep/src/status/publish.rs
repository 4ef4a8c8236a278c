//! Published ports: what of the server leads to hosts behind a client, and why something does not.

use std::fmt::{self, Display};
use std::net::SocketAddr;

use bentpipe_proto::tunnel::PublishCode;
use serde::{Deserialize, Serialize};

use crate::config::PortProtocol;

/// A port of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishStatus {
    /// Of TCP or UDP.
    pub protocol: PortProtocol,
    /// The port.
    pub port: u16,
    /// The host behind the client that it leads to (client).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<SocketAddr>,
    /// State of the port.
    pub state: PublishState,
    /// Reason why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishState {
    /// No tunnel is up, or the server has not answered yet.
    #[default]
    Waiting,
    /// The port is open.
    Open,
    /// The port is not open, for a reason.
    Refused,
}

impl PublishStatus {
    /// A port of which the server has said `code`, if anything.
    #[must_use]
    pub fn new(
        protocol: PortProtocol,
        port: u16,
        to: Option<SocketAddr>,
        code: Option<PublishCode>,
    ) -> Self {
        let reason = code.and_then(|code| publish_refusal(protocol, port, code));
        let state = match code {
            None => PublishState::Waiting,
            Some(PublishCode::Ok) => PublishState::Open,
            Some(_) => PublishState::Refused,
        };
        Self {
            protocol,
            port,
            to,
            state,
            reason,
        }
    }
}

/// Reason and mend of a `code` that refuses to publish `port`; `None` of one that does not refuse.
pub(crate) fn publish_refusal(
    protocol: impl Display,
    port: u16,
    code: PublishCode,
) -> Option<String> {
    let text = match code {
        PublishCode::Ok => return None,
        PublishCode::NotPermitted => {
            return Some(format!(
                "not permitted; add publish = [\"{protocol}/{port}\"] to this client's [[client]] at the server"
            ));
        }
        PublishCode::InUse => "in use at the server, which tries again; choose another port",
        PublishCode::NoPrivilege => {
            "the server may not open it; give it CAP_NET_BIND_SERVICE or choose a port from 1024 on"
        }
        PublishCode::NoPackets => {
            "no packets cross for this IP version; the server needs CAP_NET_ADMIN and [packets]"
        }
        PublishCode::Unsupported => "the server's version does not publish it; update the server",
        PublishCode::Internal => "the server cannot; its log says why",
    };
    Some(text.to_owned())
}

impl Display for PublishStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.port)?;
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        let state = match self.state {
            PublishState::Waiting => "waiting for the server",
            PublishState::Open => "open",
            PublishState::Refused => "refused",
        };
        write!(f, ": {state}")?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
