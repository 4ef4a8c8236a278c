//! Names of hosts that a local CA may be made for.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rustls::pki_types::DnsName;

/// Names that one CA is for, at most: what a person lists, and reads again when it is installed.
pub const MAX_NAMES: usize = 64;

/// Longest name in DNS, bytes (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

/// Host name of a web server, in lower case and of two labels or more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustedName(String);

impl TrustedName {
    /// Name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TrustedName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        if text.contains('*') {
            return Err(format!(
                "`{shown}` stands for hosts that nobody has named; list each host by its own name"
            ));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(format!(
                "`{shown}` is an address, which browsers do not name when they connect; expected a host name such as \
                 \"intranet.example.com\""
            ));
        }
        let is_name = DnsName::try_from(text).is_ok() && text.len() <= MAX_NAME;
        if !is_name || text.ends_with('.') {
            return Err(format!(
                "`{shown}` is no host name; expected one such as \"intranet.example.com\""
            ));
        }
        if !text.contains('.') {
            return Err(format!(
                "`{shown}` has a single label, and a CA for it could sign for every name below it, as one for \"com\" could; \
                 expected a name such as \"intranet.example.com\""
            ));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for TrustedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_hosts_and_of_two_labels() {
        for (given, name) in [
            ("intranet.example.com", "intranet.example.com"),
            ("A.B", "a.b"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(given.parse::<TrustedName>().unwrap().as_str(), name);
        }
        let long = format!("{}.example", "a.".repeat(130));
        for (wrong, why) in [
            ("com", "single label"),
            ("localhost", "single label"),
            ("*.example.com", "by its own name"),
            ("192.0.2.1", "an address"),
            ("2001:db8::1", "an address"),
            ("a b.example", "no host name"),
            ("example.com.", "no host name"),
            ("https://example.com", "no host name"),
            ("", "no host name"),
            (&long, "no host name"),
        ] {
            let fault = wrong.parse::<TrustedName>().unwrap_err();
            assert!(fault.contains(why), "{wrong}: {fault}");
        }
    }
}
