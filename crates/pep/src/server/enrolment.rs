//! Clients that join by a code: a one-time key lets one of them name the key of its own (`PROTOCOL.md` §16).
//!
//! ```text
//! server.toml: enrolment_key ─► Clients ─► begin_enrolment() ─ ENROL ─► Recorded::enrol() ─► enrolled.json, Clients
//! ```

use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::{CloseCode, ENROL_KEY, EnrolCode};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::sessions::Sessions;
use crate::keys::PublicKey;
use crate::process;
use bentpipe_tunnel::engine::ConnectionId;

/// Time that a client with an enrolment key has to name its own.
const PATIENCE: Duration = Duration::from_secs(10);

impl Sessions {
    /// A client has shown the enrolment key `key`: it may name its own, and nothing else.
    pub(super) fn begin_enrolment(self: &Rc<Self>, id: ConnectionId, key: PublicKey) {
        self.shared.registry.enter(key, self.index, id);
        self.enrolling.borrow_mut().insert(id, key);
        self.shard.change(id, |connection| {
            connection.tunnel.set_max_flows(0);
            connection.set_max_flows(0);
        });
        let this = self.clone();
        spawn_local(async move {
            sleep(PATIENCE).await;
            if this.enrolling.borrow().contains_key(&id) {
                this.close(id, CloseCode::Removed, "the time to join is over");
            }
        });
    }

    /// A client names the key that it will connect with.
    pub(super) fn on_enrol(&self, id: ConnectionId, key: [u8; ENROL_KEY]) {
        let enrolment = self.enrolling.borrow().get(&id).copied();
        let Some(enrolment) = enrolment else {
            return self.close(id, CloseCode::ProtocolViolation, "it has a key of its own");
        };
        let (code, at) = match (PublicKey::from_bytes(key), process::clock()) {
            (Some(key), Ok(now)) => {
                let clients = &self.shared.clients;
                clients.enrol(&enrolment, &key, now.as_secs())
            }
            (Some(_), Err(error)) => {
                tracing::error!(
                    "whether a join code has expired is not known, so none is taken: {error}"
                );
                // The client tries again by itself.
                (EnrolCode::Internal, 0)
            }
            (None, _) => (EnrolCode::KeyTaken, 0),
        };
        let client = self.shared.clients.enrolment_name(&enrolment);
        match code {
            EnrolCode::Ok => tracing::info!(client, "joined"),
            // What could not be recorded has a line already, which says why.
            EnrolCode::Internal => {}
            EnrolCode::Used | EnrolCode::Expired | EnrolCode::KeyTaken => {
                // Whoever has the code may try as often as he likes.
                let notices = &self.shared.notices;
                notices.tell_of_client(&client, &format!("cannot join: {code:?}"), |name| {
                    format!("{name} cannot join: {}", explain(code, at, name))
                });
            }
        }
        self.shard
            .change(id, |connection| connection.tunnel.enrolled(code, at));
    }
}

/// Explains to the operator why the client `name` may not join; `at` is when its code became void, in seconds since 1970.
fn explain(code: EnrolCode, at: u64, name: &str) -> String {
    let at = process::date(at);
    let renew = format!(
        "`bentpipe server remove {name}`, then `bentpipe server add {name}` give it a new code"
    );
    match code {
        EnrolCode::Used => format!(
            "its code was used on {at} for another key; if that was not this client, somebody else has its place: {renew}"
        ),
        EnrolCode::Expired => format!("its code has expired on {at}; {renew}"),
        EnrolCode::KeyTaken => {
            "its key is another client's, or none; have it make a new key, and join again"
                .to_owned()
        }
        EnrolCode::Internal | EnrolCode::Ok => "its key could not be recorded".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_the_cause_and_the_mend() {
        let said = |code| explain(code, 1_800_000_000, "ship-2");
        for code in [EnrolCode::Used, EnrolCode::Expired] {
            let line = said(code);
            for part in ["2027-01-15", "server remove ship-2", "server add ship-2"] {
                assert!(line.contains(part), "{line}");
            }
        }
        assert!(said(EnrolCode::Used).contains("for another key"));
        assert!(said(EnrolCode::Expired).contains("expired"));
        assert!(said(EnrolCode::KeyTaken).contains("a new key"));
    }
}
