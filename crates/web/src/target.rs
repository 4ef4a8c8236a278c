//! Links of a page as paths of its own host: what a browser makes of them (URL Standard), as far as it is needed here.

use crate::Scheme;

/// Longest path of an object, bytes; a longer one is hardly an object's.
pub(crate) const MAX_TARGET: usize = 2048;

/// Path and query that a browser asks the page's own `host` for when a page of `scheme` at `base` links to `link`; `None`: it asks another
/// host, another scheme, or for something that is better left to it.
pub(crate) fn resolve((scheme, host): (Scheme, &str), base: &str, link: &str) -> Option<String> {
    let link = link.trim_matches(|c: char| c.is_ascii_whitespace());
    let link = link.split('#').next().unwrap_or_default();
    if link.is_empty() || !link.bytes().all(|c| c.is_ascii_graphic() && c != b'\\') {
        return None;
    }
    let own = (scheme, host);
    let path = match split(link) {
        Some((name, rest)) if name.eq_ignore_ascii_case(scheme.name()) => {
            within(own, rest.strip_prefix("//")?)?
        }
        Some(_) => return None,
        None => match link.strip_prefix("//") {
            Some(rest) => within(own, rest)?,
            None => joined(base, link),
        },
    };
    let path = without_dots(&path);
    // Browsers escape these, the last one in queries alone.
    let escaped = path.contains(['"', '<', '>', '`', '{', '}', '|', '^'])
        || path.find('?').is_some_and(|at| path[at..].contains('\''));
    (path.len() <= MAX_TARGET && !escaped).then_some(path)
}

/// Scheme that `link` names, and what follows its colon.
fn split(link: &str) -> Option<(&str, &str)> {
    let (name, rest) = link.split_once(':')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    (begins && name.chars().all(fits)).then_some((name, rest))
}

/// Path of `rest`, which begins with an authority, if that is `host`.
fn within((scheme, host): (Scheme, &str), rest: &str) -> Option<String> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !scheme
        .host_of(authority)
        .eq_ignore_ascii_case(scheme.host_of(host))
    {
        return None;
    }
    Some(if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    })
}

/// `link` in the place of what a browser takes from it, in the path `base`.
fn joined(base: &str, link: &str) -> String {
    let path = base.split('?').next().unwrap_or_default();
    if link.starts_with('/') {
        link.to_owned()
    } else if link.starts_with('?') {
        format!("{path}{link}")
    } else {
        let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
        format!("{folder}{link}")
    }
}

/// `path` without segments that are dots, its query as it is.
fn without_dots(path: &str) -> String {
    let (path, query) = match path.find('?') {
        Some(at) => path.split_at(at),
        None => (path, ""),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "." if last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_where_a_browser_goes() {
        let cases = [
            ("x.png", Some("/a/x.png")),
            ("./x.png", Some("/a/x.png")),
            ("../x.png", Some("/x.png")),
            ("../../../x.png", Some("/x.png")),
            ("/x/./y/../z", Some("/x/z")),
            ("/x/%2E%2e/z", Some("/z")),
            ("..", Some("/")),
            ("?q=1", Some("/a/b?q=1")),
            (" /x#frag\n", Some("/x")),
            ("/x?a=../b", Some("/x?a=../b")),
            ("/it's", Some("/it's")),
            ("/x?a='b'", None),
            ("//h/x", Some("/x")),
            ("//H:80/x", Some("/x")),
            ("http://h", Some("/")),
            ("http://h?x", Some("/?x")),
            ("HTTP://h/x", Some("/x")),
            ("//h:8080/x", None),
            ("//other/x", None),
            ("//h@other/x", None),
            ("https://h/x", None),
            ("http:x", None),
            ("data:image/png,x", None),
            ("javascript:x", None),
            ("a:b", None),
            ("x/a:b", Some("/a/x/a:b")),
            ("/ü", None),
            ("/a b", None),
            ("\\x", None),
            ("http:\\\\h\\x", None),
            ("/\\127.0.0.1/x", None),
            // Browsers take tabs and ends of lines out, and ask for another path than stands there.
            ("/\t/127.0.0.1/x", None),
            ("/x\ny", None),
            ("http://h@127.0.0.1/x", None),
            ("http://user:word@h/x", None),
            ("//127.0.0.1/x", None),
            ("//[::ffff:127.0.0.1]/x", None),
            ("///127.0.0.1/x", None),
            ("http:/127.0.0.1/x", None),
            ("//h:443/x", None),
            ("//h:22/x", None),
            ("//h./x", None),
            ("//h%2e/x", None),
            ("//h", Some("/")),
            ("#top", None),
            ("", None),
        ];
        for (link, path) in cases {
            let found = resolve((Scheme::Http, "h"), "/a/b?c", link);
            assert_eq!(found.as_deref(), path, "{link}");
        }
        for (scheme, host, link, path) in [
            (Scheme::Http, "h:80", "//h/x", Some("/x")),
            (Scheme::Http, "h:443", "//h/x", None),
            (Scheme::Https, "h", "//h:443/x", Some("/x")),
            (Scheme::Https, "h", "//h:80/x", None),
            (Scheme::Https, "h", "HTTPS://h/x", Some("/x")),
            (Scheme::Https, "h", "http://h/x", None),
        ] {
            let found = resolve((scheme, host), "/", link);
            assert_eq!(found.as_deref(), path, "{scheme:?} {host} {link}");
        }
        let long = "x".repeat(MAX_TARGET);
        assert_eq!(resolve((Scheme::Http, "h"), "/", &long), None);
    }
}
