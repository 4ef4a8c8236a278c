//! `[page]`: where the live page is served, and the token that opens it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_config::{Placed, Source};
use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use super::{ConfigError, value};
use crate::keys;

/// Shortest and longest token, in characters.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=128;

/// `[page]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageTable {
    listen: Spanned<value::TextAddress>,
    token_file: Option<Spanned<PathBuf>>,
}

/// Address of the page, and the token that opens it.
#[derive(Clone, Debug)]
pub struct Page {
    /// TCP address; a loopback address unless there is a token.
    pub listen: Placed<SocketAddr>,
    /// Token that a browser has to show, if any.
    pub token: Option<PageToken>,
}

/// Secret that opens the page: 16 to 128 letters, digits, `-` and `_`, which a link holds as they are.
#[derive(Clone, PartialEq, Eq)]
pub struct PageToken(Zeroizing<String>);

impl PageToken {
    /// The characters.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageToken")
    }
}

/// The table with its token read; `None` without one.
pub(super) fn checked(
    source: &Source,
    written: Option<PageTable>,
) -> Result<Option<Page>, ConfigError> {
    let Some(PageTable { listen, token_file }) = written else {
        return Ok(None);
    };
    let span = listen.span();
    let address = listen.into_inner().0;
    let token = match token_file {
        Some(file) => {
            let path = source.resolve(file.get_ref());
            let token = token(&path).map_err(|fault| source.error(&file.span(), fault))?;
            Some(token)
        }
        None if address.ip().is_loopback() => None,
        None => {
            let fault = format!(
                "`listen` is {address}, which is no loopback address: others would read the page; add `token_file`, or \
                 listen on 127.0.0.1"
            );
            return Err(source.error(&span, fault));
        }
    };
    let listen = source.placed(Spanned::new(span, address));
    Ok(Some(Page { listen, token }))
}

fn token(path: &std::path::Path) -> Result<PageToken, String> {
    let name = path.display();
    let make = format!(
        "make one as the daemon's user: `runuser -u bentpipe -- sh -c 'umask 077; openssl rand -hex 16 > {name}'`"
    );
    let text = keys::secret(path, "token file", &make)?;
    let token = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !LENGTH.contains(&token.len()) || !token.chars().all(plain) {
        let (least, most) = LENGTH.into_inner();
        return Err(format!(
            "token file {name} holds no token of {least} to {most} letters, digits, `-` and `_`; {make}"
        ));
    }
    Ok(PageToken(Zeroizing::new(token.to_owned())))
}
