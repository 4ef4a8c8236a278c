//! What a browser is told of an origin that TLS cannot be spoken with: a page that names the fault.

use bentpipe_plot::escape;
use bytes::Bytes;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;

/// Field of a response to a client whose host speaks no HTTP/1.1 (RFC 9209 §2.3): it does not answer for the host any more.
const NO_HTTP1: &str = "Proxy-Status: bentpipe; error=tls_alert_received; alert-message=\"no_application_protocol\"\r\n";

/// Head and body of the response.
pub(super) fn refused(name: &ServerName<'_>, fault: &rustls::Error) -> (Bytes, Bytes) {
    let name = escaped(&name.to_str());
    let no_protocol = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    if *fault == no_protocol {
        let body = format!(
            "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta http-equiv=refresh content=1>\n<title>{name}: HTTP/2 alone</title>\n\
             <h1>{name} speaks HTTP/2 alone</h1>\n\
             <p>The bentpipe server speaks HTTP/1.1 with hosts. This page is about to be loaded again, by your browser itself.</p>\n"
        );
        return response(NO_HTTP1, &body);
    }
    let fault = escaped(&fault.to_string());
    let body = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<title>{name}: no trust</title>\n\
         <h1>{name} cannot be trusted</h1>\n\
         <p>The bentpipe server speaks TLS with this host for you, and has not accepted it: <strong>{fault}</strong>.</p>\n\
         <p>Nothing was sent to it. If the host is right all the same, have the server trust its authority (<code>roots</code> of\n\
         <code>[web]</code>), or take it out of <code>names</code> of the client's <code>[web]</code>: then your browser judges it.</p>\n"
    );
    response("", &body)
}

/// Response of status 502 with these further `fields`.
fn response(fields: &str, body: &str) -> (Bytes, Bytes) {
    let head = format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\n{fields}Connection: close\r\n\r\n",
        body.len()
    );
    (head.into(), Bytes::copy_from_slice(body.as_bytes()))
}

/// `text` as HTML in one line: part of it may come from the origin's certificate.
fn escaped(text: &str) -> String {
    escape(&text.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_and_is_no_markup() {
        let name = ServerName::try_from("a.example").unwrap();
        let fault = rustls::Error::General("<script>x</script>\r\n&".into());
        let (head, body) = refused(&name, &fault);
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("a.example cannot be trusted"), "{text}");
        assert!(
            text.contains("&lt;script&gt;x&lt;/script&gt;  &amp;"),
            "{text}"
        );
        let length = format!("\r\nContent-Length: {}\r\n", body.len());
        let head = String::from_utf8(head.to_vec()).unwrap();
        assert!(
            head.starts_with("HTTP/1.1 502 ") && head.contains(&length),
            "{head}"
        );
    }
}
