//! Needs of an origin: its addresses, a certificate that is good, its key, and a web server behind it.

use super::network::list;
use super::server::listen;
use super::{fail, ok, warn};
use crate::certified;
use crate::doctor::Finding;
use crate::doctor::facts::{CertificateFacts, HandshakeResult, OriginFacts};

/// Seconds before its end from which on a certificate is spoken of, as the origin itself has them.
const SOON: i64 = certified::SOON.cast_signed();

/// Mend of a certificate that is not good.
const RENEW: &str = "have it issued anew, put it in place, and `systemctl reload bentpipe-origin`";

pub(super) fn judge(origin: &OriginFacts) -> Vec<Finding> {
    let mut findings: Vec<_> = origin.listen.iter().map(listen).collect();
    findings.push(match &origin.certificate {
        Err(fault) => fail("certificate", fault.clone(), None),
        Ok(certificate) => judge_certificate(certificate),
    });
    findings.push(upstream(origin));
    findings.push(ok("hubs", format!("{} listed", origin.hubs)));
    findings
}

fn judge_certificate(certificate: &CertificateFacts) -> Finding {
    let CertificateFacts {
        file,
        names,
        begins,
        expires,
        seconds_to_begin,
        seconds_left,
    } = certificate;
    let file = file.display();
    let mend = || Some(RENEW.to_owned());
    if names.is_empty() {
        let text = format!("{file} is for no host name: browsers and terminals refuse it");
        return fail("certificate", text, mend());
    }
    let text = format!("{file} for {}", list(names));
    match (*seconds_to_begin, *seconds_left) {
        (_, ..=0) => fail(
            "certificate",
            format!("{text} has expired on {expires}"),
            mend(),
        ),
        (1.., _) => fail(
            "certificate",
            format!("{text} is not good before {begins}"),
            Some("set this machine's clock, or wait".into()),
        ),
        (_, ..SOON) => warn(
            "certificate",
            format!("{text} expires on {expires}"),
            mend(),
        ),
        _ => ok("certificate", format!("{text} is good until {expires}")),
    }
}

fn upstream(origin: &OriginFacts) -> Finding {
    let (address, reached) = &origin.upstream;
    match reached {
        HandshakeResult::Connected(time) => ok(
            "upstream",
            format!("{address} answers TCP after {} ms", time.as_millis()),
        ),
        other => {
            let why = match other {
                HandshakeResult::Unreachable(said) => said.clone(),
                _ => "nothing came back".to_owned(),
            };
            let mend = "start the web server, or correct `upstream` of `[origin]`";
            fail("upstream", format!("{address}: {why}"), Some(mend.into()))
        }
    }
}
