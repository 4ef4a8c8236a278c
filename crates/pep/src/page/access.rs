//! Who may read the page: whoever shows its token, or on a loopback address without one whoever names that address.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use hyper::HeaderMap;
use hyper::header::{COOKIE, HOST, HeaderName};
use hyper::http::uri::Authority;

use crate::config::PageToken;

/// Name of the cookie.
const NAME: &str = "bentpipe_page";

/// Text that the cookie's value is the code of, under the token as the key.
const PURPOSE: &[u8] = b"bentpipe page cookie";

/// Time that a browser keeps the cookie, in seconds: a year.
const KEEP_S: u32 = 31_536_000;

/// Rules of one page.
#[derive(Debug)]
pub(super) struct Access {
    /// True if it is served on a loopback address.
    loopback: bool,
    /// Value of the cookie that opens it; none where no token is wanted.
    cookie: Option<String>,
}

/// Decision on one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The page is shown.
    Admitted,
    /// The token is right; the `Set-Cookie` header to give.
    LoggedIn(String),
    /// A token is wanted.
    Unknown,
    /// The token is wrong.
    WrongToken,
    /// The request names another host: a page of somebody else's has had its name lead here (DNS rebinding).
    WrongHost,
}

impl Access {
    pub(super) fn new(loopback: bool, token: Option<&PageToken>) -> Self {
        let cookie = token.map(|token| cookie_of(token.as_str()));
        Self { loopback, cookie }
    }

    /// Decides on a request with these headers and this query.
    pub(super) fn judge(&self, headers: &HeaderMap, query: Option<&str>) -> Admission {
        if self.loopback && !names_loopback(headers) {
            return Admission::WrongHost;
        }
        let Some(right) = &self.cookie else {
            return Admission::Admitted;
        };
        // Compared as the code that is in the cookie: whatever the token's length, that takes the same time.
        let is_right =
            |shown: &str| verify_slices_are_equal(shown.as_bytes(), right.as_bytes()).is_ok();
        let parameters = || query.into_iter().flat_map(|query| query.split('&'));
        if let Some(token) = parameters().find_map(|one| one.strip_prefix("token=")) {
            return match is_right(&cookie_of(token)) {
                true => Admission::LoggedIn(format!(
                    "{NAME}={right}; Path=/; Max-Age={KEEP_S}; HttpOnly; SameSite=Strict"
                )),
                false => Admission::WrongToken,
            };
        }
        match cookies(headers).any(is_right) {
            true => Admission::Admitted,
            false => Admission::Unknown,
        }
    }
}

/// Value of the cookie of `token`: a code that does not tell it.
fn cookie_of(token: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    let code = hmac::sign(&key, PURPOSE);
    code.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Values of the page's cookies in a request.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = texts(headers, COOKIE);
    lists
        .flat_map(|list| list.split(';'))
        .filter_map(|one| one.trim().strip_prefix(NAME)?.strip_prefix('='))
}

/// True if a request has one `Host`, and that is `localhost` or a loopback address, at whatever port: the page may be
/// reached through a forwarded one.
fn names_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = texts(headers, HOST);
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
        let values = list
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value")));
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(name, value);
        }
        headers
    }

    fn access(loopback: bool, token: Option<&str>) -> Access {
        Access {
            loopback,
            cookie: token.map(cookie_of),
        }
    }

    #[test]
    fn a_loopback_page_answers_to_loopback_names_alone() {
        let page = access(true, None);
        for host in [
            "127.0.0.1:8404",
            "localhost",
            "LocalHost:1",
            "[::1]:8404",
            "127.9.9.9",
        ] {
            let headers = headers(&[(HOST, host)]);
            assert_eq!(page.judge(&headers, None), Admission::Admitted, "{host}");
        }
        for host in [
            "evil.example:8404",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:8404",
            "evil.example@127.0.0.1.x",
            "",
        ] {
            let headers = headers(&[(HOST, host)]);
            assert_eq!(page.judge(&headers, None), Admission::WrongHost, "{host}");
        }
        let two = headers(&[(HOST, "localhost"), (HOST, "evil.example")]);
        assert_eq!(page.judge(&two, None), Admission::WrongHost);
        assert_eq!(page.judge(&HeaderMap::new(), None), Admission::WrongHost);
    }

    #[test]
    fn a_token_opens_once_and_its_cookie_from_then_on() {
        let token = "0123456789abcdef";
        let page = access(false, Some(token));
        let none = headers(&[(HOST, "ship.example")]);
        assert_eq!(page.judge(&none, None), Admission::Unknown);
        for wrong in ["token=", "token=0123456789abcde", "token=0123456789abcdeg"] {
            assert_eq!(page.judge(&none, Some(wrong)), Admission::WrongToken);
        }
        let Admission::LoggedIn(set) = page.judge(&none, Some("x=1&token=0123456789abcdef")) else {
            panic!("the token is right");
        };
        assert!(!set.contains(token), "{set}");
        assert!(set.contains("; HttpOnly; SameSite=Strict"), "{set}");
        let (cookie, _) = set.split_once(';').expect("attributes");
        let with = headers(&[(COOKIE, &format!("a=b; {cookie}"))]);
        assert_eq!(page.judge(&with, None), Admission::Admitted);
        // The token itself is no cookie, and another page's cookie opens nothing.
        let bare = headers(&[(COOKIE, &format!("{NAME}={token}"))]);
        assert_eq!(page.judge(&bare, None), Admission::Unknown);
        let other = access(false, Some("another token here"));
        assert_eq!(other.judge(&with, None), Admission::Unknown);
        // On a loopback address both are asked for.
        let both = access(true, Some(token));
        let rebound = headers(&[(HOST, "evil.example"), (COOKIE, cookie)]);
        assert_eq!(both.judge(&rebound, None), Admission::WrongHost);
    }
}
