//! The live page: `[page] listen` shows how the daemon does, to people with a browser.
//!
//! ```text
//!             once a second: snapshot() ──► Latest, History
//!                                             │
//!  browser ── GET ──► web.rs ──► access.rs ──►├─ /            page.html, page.css, page.js, uPlot
//!                                             ├─ /status.json the report, as `bentpipe status --json` has it
//!                                             └─ /live.json   what the page draws: report, samples since `after`
//! ```
//!
//! However many look at it, the daemon takes one snapshot a second, and writes it as JSON once.

mod access;
mod latest;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_plot::{UPLOT, UPLOT_STYLE};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use tokio::time::{Instant as TokioInstant, MissedTickBehavior, interval_at};

use crate::config;
use crate::process::{self, RunError};
use crate::status::{History, Sample, StatusReport};
use crate::throttle::Throttle;
use crate::web::{Request, Response, Web, text};
use access::{Access, Admission};
use latest::Latest;

/// Time from one sample to the next.
const SECOND: Duration = Duration::from_secs(1);

/// Nothing but what this port serves is loaded, run or asked, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Style sheet of pages for people.
pub(crate) const STYLE: &str = include_str!("page.css");

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// Parts that hold no figure, by path: whoever asks gets them, a login form needs its style.
const PARTS: [(&str, &str, &str); 5] = [
    ("/page.css", "text/css", STYLE),
    ("/page.js", "text/javascript", include_str!("page.js")),
    ("/uplot.css", "text/css", UPLOT_STYLE),
    ("/uplot.js", "text/javascript", UPLOT),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// Server of the page; serves nothing where none is configured.
#[derive(Debug)]
pub(crate) struct PageServer {
    web: Web,
    access: Access,
    history: RefCell<History>,
    latest: RefCell<Option<Latest>>,
    /// Throttle of the line about wrong tokens.
    complaint: Throttle,
}

impl PageServer {
    /// Binds the address of `config`. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`RunError::Bind`] if the address cannot be had.
    pub(crate) fn bind(config: Option<&config::Page>) -> Result<Self, RunError> {
        let web = Web::bind(config.map(|page| &page.listen), "page")?;
        let loopback = config.is_none_or(|page| page.listen.ip().is_loopback());
        if let Some(address) = config.map(|page| *page.listen) {
            if !loopback {
                tracing::warn!(
                    "the page at {address} is not encrypted: whoever listens there sees its token and its figures"
                );
            }
            tracing::info!("page at http://{address}/");
        }
        Ok(Self {
            web,
            access: Access::new(loopback, config.and_then(|page| page.token.as_ref())),
            history: RefCell::default(),
            latest: RefCell::default(),
            complaint: Throttle::new(),
        })
    }

    /// Shows what `snapshot` gives, once a second; never ends.
    pub(crate) async fn serve(&self, snapshot: impl Fn() -> StatusReport) {
        if !self.web.is_bound() {
            return std::future::pending().await;
        }
        self.take(snapshot());
        let keep = async {
            // Half a second beside the moments at which the rates of `status` change: each of them is seen once.
            let begin = TokioInstant::from_std(process::now() + SECOND / 2);
            let mut tick = interval_at(begin, SECOND);
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                self.take(snapshot());
            }
        };
        tokio::join!(
            keep,
            self.web.serve(|request, peer| self.answer(request, peer))
        );
    }

    fn take(&self, report: StatusReport) {
        self.history.borrow_mut().add(Sample::of(&report));
        self.latest.replace(Some(Latest::new(report)));
    }

    fn answer(&self, request: &Request, peer: SocketAddr) -> Response {
        let mut response = self.route(request, peer);
        for (name, value) in HEADERS {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }

    fn route(&self, request: &Request, peer: SocketAddr) -> Response {
        let (path, query) = (request.uri().path(), request.uri().query());
        let verdict = self.access.judge(request.headers(), query);
        if verdict == Admission::WrongHost {
            let fault = "this page answers to localhost and loopback addresses only\n";
            return text(StatusCode::MISDIRECTED_REQUEST, fault);
        }
        if let Some((_, kind, part)) = PARTS.iter().find(|(name, ..)| *name == path) {
            return of_kind(kind, *part);
        }
        match verdict {
            Admission::Admitted => self.show(path, query),
            Admission::LoggedIn(cookie) => {
                let mut response = of_kind(HTML, include_str!("welcome.html"));
                let cookie = HeaderValue::from_str(&cookie).expect("hexadecimal digits");
                response.headers_mut().insert(SET_COOKIE, cookie);
                response
            }
            Admission::WrongToken => {
                self.complain(peer);
                let fault = "<p class=\"banner bad\">This token is not right.</p>";
                login(StatusCode::FORBIDDEN, fault)
            }
            Admission::Unknown | Admission::WrongHost => login(StatusCode::UNAUTHORIZED, ""),
        }
    }

    fn show(&self, path: &str, query: Option<&str>) -> Response {
        let latest = self.latest.borrow();
        match (path, latest.as_ref()) {
            ("/", _) => of_kind(HTML, include_str!("page.html")),
            ("/status.json", Some(latest)) => of_kind(JSON, latest.report()),
            ("/live.json", Some(latest)) => {
                let after = query.and_then(|query| query.strip_prefix("after=")?.parse().ok());
                let curves = self.history.borrow().curves_after(after);
                of_kind(JSON, latest.live(&curves))
            }
            _ => text(
                StatusCode::NOT_FOUND,
                "the page is at /, its figures at /status.json\n",
            ),
        }
    }

    /// Says, at most once a minute, that somebody tries tokens.
    fn complain(&self, peer: SocketAddr) {
        if self.complaint.is_due(process::now()) {
            tracing::warn!("{peer} has shown a wrong token to the page");
        }
    }
}

/// The form that asks for the token, below `fault`.
fn login(status: StatusCode, fault: &str) -> Response {
    let form = include_str!("login.html").replace("<!--FAULT-->", fault);
    let mut response = of_kind(HTML, form);
    *response.status_mut() = status;
    response
}

fn of_kind(kind: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = text(StatusCode::OK, body);
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
