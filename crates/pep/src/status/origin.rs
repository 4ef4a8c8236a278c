//! Figures of `status` about an origin of DSSL.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::format::{counted, line, quantity, size, span};

/// Connections and objects of an origin; totals since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginFigures {
    /// Web server behind the origin.
    #[serde(flatten)]
    pub web_server: OriginWebServer,
    /// Certificate that the origin shows.
    #[serde(flatten)]
    pub certificate: OriginCertificate,
    /// Connections now whose handshake is done.
    pub connections: u64,
    /// Connections of clients that speak DSSL.
    pub terminals_total: u64,
    /// Connections of servers that `hubs` lists.
    pub hubs_total: u64,
    /// Connections of all others.
    pub others_total: u64,
    /// Connections of clients now whose pages may have objects ahead.
    pub sessions: u64,
    /// Connections of clients whose pages could have objects ahead.
    pub sessions_total: u64,
    /// Objects that were sealed and sent whole.
    pub objects_total: u64,
    /// Bytes of objects that were sealed.
    pub objects_bytes_total: u64,
    /// Objects that were asked for and did not come whole: they may answer no other request, are too long, or the web server is silent.
    pub objects_failed_total: u64,
    /// Times that the web server could not be reached.
    pub unreached_total: u64,
    /// Peers that got less than they asked for, by cause.
    pub refused_total: OriginRefused,
}

/// Web server behind an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginWebServer {
    /// Address of the web server.
    #[serde(rename = "upstream", skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Reason why the web server is of no use now; absent while it answers.
    #[serde(rename = "web_server_fault", skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Seconds for which the web server has been of no use.
    #[serde(rename = "web_server_fault_s", skip_serializing_if = "Option::is_none")]
    pub fault_s: Option<u64>,
}

/// Certificate that an origin shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginCertificate {
    /// Seconds since the certificate was read.
    #[serde(rename = "certificate_age_s")]
    pub age_s: u64,
    /// Last day of the certificate, in UTC.
    #[serde(rename = "certificate_expires")]
    pub expires: String,
    /// Seconds until the certificate expires.
    #[serde(rename = "certificate_left_s")]
    pub left_s: u64,
    /// Reason why nobody believes the certificate; absent while it is good.
    #[serde(rename = "certificate_fault", skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Text about a certificate that is good, and expires within 14 days.
    #[serde(
        rename = "certificate_warning",
        skip_serializing_if = "Option::is_none"
    )]
    pub warning: Option<String>,
}

/// Peers of an origin that got less than they asked for, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginRefused {
    /// Connections of hosts that have had their share, or for which there was no place.
    pub crowded: u64,
    /// Connections that gave way to those of peers that had fewer.
    pub displaced: u64,
    /// Connections that did not come to the end of a handshake.
    pub handshake: u64,
    /// Servers that asked for keys and are not in `hubs`.
    pub unlisted_hubs: u64,
    /// Clients whose server is not in `hubs`: their pages came without objects.
    pub unlisted_servers: u64,
    /// Clients that are not in `clients`: their pages came without objects.
    pub unlisted_clients: u64,
    /// Pages that were read no further, because reading pages had taken the client's share of the processor, or that of all clients.
    pub unread: u64,
    /// Sessions whose hub took no links: their pages came without objects from then on.
    pub slow_hubs: u64,
    /// Requests of listed servers that were not for them, or that no hub makes.
    pub hubs: u64,
}

impl OriginFigures {
    /// Writes the lines of a report for people.
    pub(super) fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(upstream) = self.web_server.address {
            let fault = self.web_server_fault().map(|fault| format!(": {fault}"));
            let fault = fault.unwrap_or_default();
            line(f, "web server", &format!("http://{upstream}{fault}"))?;
        }
        let told = self.certificate.fault.as_ref();
        match told.or(self.certificate.warning.as_ref()) {
            Some(told) => line(f, "certificate", told)?,
            None => line(
                f,
                "certificate",
                &format!("until {}", self.certificate.expires),
            )?,
        }
        line(f, "connections", &self.to_string())?;
        line(f, "objects", &self.objects())?;
        let refused = self.refused_total.to_string();
        match refused.is_empty() {
            true => Ok(()),
            false => line(f, "refused", &refused),
        }
    }

    /// Reason why the web server is of no use, and for how long.
    fn web_server_fault(&self) -> Option<String> {
        let (fault, lasts) = (self.web_server.fault.as_ref()?, self.web_server.fault_s);
        Some(format!("{fault}, for {}", span(lasts.unwrap_or_default())))
    }

    /// Health in one line, after `listen`.
    ///
    /// # Errors
    /// The reason why pages do not come.
    pub(super) fn health(&self, listen: &str) -> Result<String, String> {
        if let Some(fault) = &self.certificate.fault {
            return Err(fault.clone());
        }
        if let (Some(upstream), Some(fault)) = (self.web_server.address, self.web_server_fault()) {
            return Err(format!("web server http://{upstream}: {fault}"));
        }
        let now = quantity(self.connections, "connection");
        let warning = self.certificate.warning.as_ref();
        let warning = warning.map(|text| format!("; {text}")).unwrap_or_default();
        Ok(format!("origin on {listen}, {now}{warning}"))
    }

    /// Text about sealed objects.
    pub(crate) fn objects(&self) -> String {
        let sealed = quantity(self.objects_total, "object");
        let (bytes, sessions) = (size(self.objects_bytes_total), self.sessions);
        let failed = counted(&[
            (self.objects_failed_total, "not whole"),
            (self.unreached_total, "times no web server"),
        ]);
        let failed = match failed.is_empty() {
            true => String::new(),
            false => format!("; {failed}"),
        };
        let of = quantity(self.sessions_total, "session");
        format!("{sealed} sealed ({bytes}) in {of}, {sessions} now{failed}")
    }
}

impl Display for OriginFigures {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (terminals, hubs) = (self.terminals_total, self.hubs_total);
        let (now, others) = (self.connections, self.others_total);
        write!(
            f,
            "{now} now; {terminals} of clients, {hubs} of hubs, {others} of others so far"
        )
    }
}

impl Display for OriginRefused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(&[
            (self.crowded, "for want of a place"),
            (self.displaced, "for others' sake"),
            (self.handshake, "without a handshake"),
            (self.unlisted_hubs, "hubs not in `hubs`"),
            (self.unlisted_servers, "clients of servers not in `hubs`"),
            (self.unlisted_clients, "clients not in `clients`"),
            (self.unread, "pages too long to read"),
            (self.slow_hubs, "sessions of hubs that took no links"),
            (self.hubs, "requests of hubs"),
        ]))
    }
}
