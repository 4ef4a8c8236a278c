//! Whether a daemon is healthy, in one line: for health checks of service managers and monitoring.

use super::format::{quantity, span};
use super::{Session, Side, StatusReport, TunnelState};

impl StatusReport {
    /// Reason why the daemon is healthy or not: a client is if its tunnel is up and answers, a server if it serves, an origin
    /// if its certificate is good and its web server answers, and all only with all that they need of the kernel.
    ///
    /// # Errors
    /// The reason why it is not healthy.
    pub fn health(&self) -> Result<String, String> {
        let mut own = self.kernel.iter().filter(|part| !part.of_others);
        if let Some((part, fault)) = own.find_map(|part| Some((&part.part, part.fault.as_ref()?))) {
            return Err(format!("{part}: {fault}"));
        }
        match &self.side {
            Side::Client(session) => tunnel(session, "its server"),
            Side::Pep(pep) => tunnel(&pep.session, "the other PEP"),
            Side::Origin { listen, origin } => {
                let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
                origin.health(&listen.join(", "))
            }
            Side::Server {
                listen, clients, ..
            } => {
                let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
                Ok(format!(
                    "server on {}, {} connected",
                    listen.join(", "),
                    quantity(clients.len() as u64, "client")
                ))
            }
        }
    }

    /// Reason why the tunnel of a client or PEP is not healthy; `None` if it is, or if there is none in this role.
    pub(crate) fn tunnel_fault(&self) -> Option<String> {
        match &self.side {
            Side::Client(session) => tunnel(session, "its server").err(),
            Side::Pep(pep) => tunnel(&pep.session, "the other PEP").err(),
            Side::Origin { .. } | Side::Server { .. } => None,
        }
    }
}

fn tunnel(session: &Session, other: &str) -> Result<String, String> {
    let tunnel = &session.tunnel;
    let peer = tunnel.peer.as_deref().unwrap_or(other);
    let lasts = span(tunnel.since_s);
    let error = tunnel.last_error.as_ref();
    let error = error.map(|error| error.lines().collect::<Vec<_>>().join(" "));
    match tunnel.state {
        TunnelState::Ready => Ok(format!("tunnel to {peer} ready for {lasts}")),
        TunnelState::Silent => {
            let cause = error.unwrap_or_else(|| match tunnel.is_heard_in_silence() {
                true => format!("{other} is heard, but what is sent to it is not answered"),
                false => format!("nothing is heard from {other}"),
            });
            Err(format!("tunnel to {peer} silent for {lasts}: {cause}"))
        }
        state => {
            let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
            Err(format!("tunnel to {peer} {state} for {lasts}{cause}"))
        }
    }
}
