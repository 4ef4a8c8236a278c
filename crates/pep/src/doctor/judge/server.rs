//! What a server needs: its ports, and somebody to serve.

use super::network::list;
use super::{fail, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{Facts, ListenFacts, ListenState, ServerFacts};

pub(super) fn judge(_: &Facts, server: &ServerFacts) -> Vec<Finding> {
    let mut findings: Vec<_> = server.listen.iter().map(listen).collect();
    findings.push(match server.clients {
        0 => warn(
            "clients",
            "no [[client]] is listed",
            Some("run `bentpipe server add NAME`".into()),
        ),
        count => ok("clients", format!("{count} listed")),
    });
    findings
}

fn listen(listen: &ListenFacts) -> Finding {
    let address = listen.address;
    match &listen.state {
        ListenState::Served => ok("listen", format!("{address}: the running server has it")),
        ListenState::Free => ok("listen", format!("{address}: can be bound")),
        ListenState::Held(holders) => {
            let who = match holders.is_empty() {
                true => "another process".to_owned(),
                false => list(holders),
            };
            let mend = "end that program, or change `listen`";
            fail(
                "listen",
                format!("{address}: held by {who}"),
                Some(mend.into()),
            )
        }
        ListenState::Cannot(error) => {
            let mend = "set `listen` to an address of this machine (`ip addr`), or \":4433\" for all of them; ports below 1024 \
                        need CAP_NET_BIND_SERVICE";
            fail("listen", format!("{address}: {error}"), Some(mend.into()))
        }
    }
}
