//! From facts to findings: pure, one function for each thing that is looked at.

mod client;
mod far;
mod files;
mod inbound;
mod machine;
mod network;
mod origin;
mod pep;
mod server;

#[cfg(test)]
mod tests;

use super::facts::{ConfigFault, Content, Daemon, Examined, Facts, SideFacts, Trial};
use super::{Finding, Level};
use crate::config::Role;

/// All findings, the general part first.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let needs = MachineNeeds::of(facts);
    let mut findings = machine::judge(&facts.machine, &needs);
    findings.extend(network::judge(&facts.network, &needs));
    findings.extend(inbound::judge(facts));
    for subject in &facts.subjects {
        findings.extend(judge_subject(facts, subject));
    }
    findings.extend(unseen(facts));
    findings
}

/// Properties of the machine that the configurations call for.
#[derive(Clone, Copy, Debug, Default)]
struct MachineNeeds {
    /// A client takes interfaces in.
    client_table: bool,
    /// A server forwards.
    server_table: bool,
    /// A device carries packets.
    device: bool,
    /// An operator's PEP leads packets into its devices.
    pep: bool,
    /// A client takes in what its own machine sends.
    local: bool,
    /// True if other machines connect to a port of this one.
    open_port: bool,
    /// A server's clients expect what this machine reaches.
    internet: bool,
}

impl MachineNeeds {
    fn of(facts: &Facts) -> Self {
        let mut needs = Self::default();
        for content in facts.subjects.iter().flat_map(|one| &one.content) {
            match &content.side {
                SideFacts::Client(client) => {
                    needs.client_table |= client.intercepts.is_some();
                    needs.device |= client.needs_device;
                    needs.local |= client.local;
                }
                SideFacts::Server(server) => {
                    needs.server_table |= server.packets;
                    needs.device |= server.packets;
                    needs.internet = true;
                }
                SideFacts::Pep(_) => needs.pep = true,
                SideFacts::Origin(_) => {}
            }
            needs.open_port |= inbound::listens(&content.side).next().is_some();
        }
        needs
    }

    /// Severity of the lack of something that is `needed`.
    fn lack(needed: bool) -> Level {
        if needed { Level::Fail } else { Level::Warn }
    }
}

fn judge_subject(facts: &Facts, subject: &Examined) -> Vec<Finding> {
    let content = match &subject.content {
        Ok(content) => content,
        Err(ConfigFault::Wrong(text)) => return vec![fail("configuration", text.clone(), None)],
        Err(ConfigFault::Forbidden) => {
            let text = format!("{}: this user may not read it", subject.file.display());
            let mend = "run `bentpipe doctor` as root".into();
            return vec![warn("configuration", text, Some(mend))];
        }
    };
    let kind = if content.plain {
        ", without encryption"
    } else {
        ""
    };
    let text = format!(
        "{}: a valid {} configuration{kind}",
        subject.file.display(),
        content.role
    );
    let mut findings = vec![ok("configuration", text), daemon(subject, content)];
    findings.extend(files::judge(content));
    match &content.side {
        SideFacts::Client(client) => findings.extend(client::judge(facts, client)),
        SideFacts::Server(server) => findings.extend(server::judge(facts, server)),
        SideFacts::Pep(pep) => findings.extend(pep::judge(facts, pep)),
        SideFacts::Origin(origin) => findings.extend(origin::judge(origin)),
    }
    findings
}

fn daemon(subject: &Examined, content: &Content) -> Finding {
    let role = content.role;
    match &content.daemon {
        Daemon::Healthy(text) => ok("daemon", format!("healthy: {text}")),
        Daemon::Unhealthy(text) => {
            let mend = match role {
                Role::Client => "what is said of its server below may tell why",
                Role::Server | Role::Pep | Role::Origin => "see its log",
            };
            fail("daemon", format!("unhealthy: {text}"), Some(mend.into()))
        }
        Daemon::Absent => {
            let start = format!(
                "start it with `systemctl start bentpipe-{role}` or `bentpipe {role} --config {}`",
                subject.file.display()
            );
            warn("daemon", format!("no {role} runs"), Some(start))
        }
        Daemon::Unclear(text) => warn("daemon", text.clone(), None),
    }
}

/// Finding on what was not looked at for want of a privilege.
fn unseen(facts: &Facts) -> Option<Finding> {
    let (machine, network) = (&facts.machine, &facts.network);
    let mut unseen = Vec::new();
    if machine.client_table.is_none() || machine.server_table.is_none() {
        unseen.push("whether nftables takes the tables");
    }
    if machine.transparent_socket.is_none() {
        unseen.push("TPROXY");
    }
    if machine.owned_tables.is_none() {
        unseen.push("tables that outlive their owner");
    }
    if network.forward_chains.is_none() || network.firewalls.is_none() {
        unseen.push("firewalls");
    }
    if !machine.root && !network.port_53.is_empty() {
        unseen.push("other users' programs");
    }
    let text = format!("not looked at: {}", unseen.join(", "));
    let mend = "run `bentpipe doctor` as root".to_owned();
    (!unseen.is_empty()).then(|| warn("privileges", text, Some(mend)))
}

fn ok(area: &'static str, text: impl Into<String>) -> Finding {
    finding(Level::Ok, area, text, None)
}

fn warn(area: &'static str, text: impl Into<String>, mend: Option<String>) -> Finding {
    finding(Level::Warn, area, text, mend)
}

fn fail(area: &'static str, text: impl Into<String>, mend: Option<String>) -> Finding {
    finding(Level::Fail, area, text, mend)
}

fn finding(
    level: Level,
    area: &'static str,
    text: impl Into<String>,
    mend: Option<String>,
) -> Finding {
    // An error of the system or a tool may have several lines.
    let text = text.into();
    let lines: Vec<_> = text.split(['\n', '\r']).map(str::trim).collect();
    Finding {
        level,
        area,
        text: lines.join(" ").trim().to_owned(),
        mend,
    }
}

/// A finding about something that was tried, if it was.
fn tried(
    area: &'static str,
    trial: &Trial,
    works: &str,
    lack: Level,
    mend: impl FnOnce(&str) -> Option<String>,
) -> Option<Finding> {
    match trial.as_ref()? {
        Ok(()) => Some(ok(area, works)),
        Err(error) => Some(finding(lack, area, error.clone(), mend(error))),
    }
}
