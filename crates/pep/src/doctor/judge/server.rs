//! What a server needs: its ports, and somebody to serve.

use super::network::list;
use super::{fail, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{Facts, IntakeFacts, ListenFacts, ListenState, ServerFacts};

/// Settings that have frames of bridges cross the rules of routers, for IPv4 and for IPv6.
const BRIDGED: [&str; 2] = [
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
];

pub(super) fn judge(facts: &Facts, server: &ServerFacts) -> Vec<Finding> {
    let mut findings: Vec<_> = server.listen.iter().map(listen).collect();
    findings.push(match (&server.damage, server.clients) {
        (Some([line, mend]), _) => fail("clients", line.clone(), Some(mend.clone())),
        (None, 0) => warn(
            "clients",
            "no [[client]] is listed",
            Some("run `bentpipe server add NAME`".into()),
        ),
        (None, count) => ok("clients", format!("{count} listed")),
    });
    let limited = server.packets_limited.as_ref();
    findings.extend(limited.map(|line| match server.packets {
        true => warn("packets", line.clone(), None),
        false => ok("packets", line.clone()),
    }));
    let intake = server.intake.iter();
    findings.extend(intake.flat_map(|intake| judge_intake(facts, intake)));
    findings
}

fn judge_intake(facts: &Facts, intake: &IntakeFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !intake.missing.is_empty() {
        let text = format!("not there: {}", list(&intake.missing));
        let mend = "name in `[sle] interfaces` what `ip link` shows".into();
        findings.push(warn("interfaces", text, Some(mend)));
    }
    let bridged = |name: &&str| facts.machine.setting(name) == Some(1);
    let bridged: Vec<_> = BRIDGED.into_iter().filter(bridged).collect();
    if !intake.bridges.is_empty() && !bridged.is_empty() {
        let text = format!(
            "{} on, and frames that bridges only hand on cross the rules of `[sle]` and get lost: {}",
            match bridged[..] {
                [one] => format!("{one} is"),
                _ => format!("{} are", bridged.join(" and ")),
            },
            list(&intake.bridges)
        );
        let mend = format!("`sysctl -w {}=0`", bridged.join("=0 "));
        findings.push(warn("interfaces", text, Some(mend)));
    }
    findings
}

/// Finding on an address to listen on.
pub(super) fn listen(listen: &ListenFacts) -> Finding {
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
