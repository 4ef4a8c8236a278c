//! Tags of a page: whether every browser fetches what one of them names, and how soon it is wanted.

use html5ever::tokenizer::Tag;

/// Types of scripts that browsers run, but modules (MIME Sniffing Standard, JavaScript MIME type).
const SCRIPTS: [&str; 16] = [
    "application/ecmascript",
    "application/javascript",
    "application/x-ecmascript",
    "application/x-javascript",
    "text/ecmascript",
    "text/javascript",
    "text/javascript1.0",
    "text/javascript1.1",
    "text/javascript1.2",
    "text/javascript1.3",
    "text/javascript1.4",
    "text/javascript1.5",
    "text/jscript",
    "text/livescript",
    "text/x-ecmascript",
    "text/x-javascript",
];

/// Value of an attribute.
pub(crate) fn value<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    let attribute = tag.attrs.iter().find(|one| &*one.name.local == name);
    attribute.map(|one| &*one.value)
}

/// True for a `link` to something that is fetched with the page.
pub(crate) fn is_fetched(tag: &Tag) -> bool {
    let relations = value(tag, "rel").unwrap_or_default().to_ascii_lowercase();
    let relations: Vec<_> = relations.split_ascii_whitespace().collect();
    let is = |name: &str| relations.contains(&name);
    if is("stylesheet") {
        return !is("alternate") && value(tag, "disabled").is_none() && is_css(tag);
    }
    if is("preload") {
        // Browsers fetch nothing of which they are not told what it is.
        let said = value(tag, "as").is_some_and(|kind| !kind.is_empty());
        return said && value(tag, "media").is_none() && value(tag, "imagesrcset").is_none();
    }
    is("icon") || is("modulepreload")
}

/// True for a `link` that is fetched and is a style sheet of the screen, or is preloaded for one.
pub(crate) fn is_sheet(tag: &Tag) -> bool {
    let relations = value(tag, "rel").unwrap_or_default();
    let mut relations = relations.split_ascii_whitespace();
    let prints = value(tag, "media").is_some_and(|media| media.eq_ignore_ascii_case("print"));
    let ahead = value(tag, "as").is_some_and(|kind| kind.eq_ignore_ascii_case("style"));
    !prints && (ahead || relations.any(|one| one.eq_ignore_ascii_case("stylesheet")))
}

/// True for a `link` to a style sheet in a language that browsers know.
fn is_css(tag: &Tag) -> bool {
    let kind = value(tag, "type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.is_empty() || kind.eq_ignore_ascii_case("text/css")
}

/// True for a `script` that browsers run, and so fetch: others are data, or wait for a program of the page, as those of consent managers do
/// (HTML Standard, section 4.12.1).
pub(crate) fn is_script(tag: &Tag) -> bool {
    let kind = value(tag, "type").unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    let known = kind.is_empty() || kind == "module" || SCRIPTS.contains(&kind.as_str());
    known && value(tag, "nomodule").is_none()
}

/// True for a `script` that runs before what stands behind it is read.
pub(crate) fn is_waited_for(tag: &Tag) -> bool {
    let later = ["async", "defer"].map(|name| value(tag, name).is_some());
    let module = value(tag, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("module"));
    !module && later == [false; 2]
}

/// Candidate of a `srcset` for a screen with one pixel per pixel.
pub(crate) enum Candidate<'a> {
    Is(&'a str),
    /// No `srcset`: `src` is the link.
    None,
    /// The width decides.
    Depends,
}

/// Candidate of `srcset` that every browser takes.
pub(crate) fn one_to_one(srcset: &str) -> Candidate<'_> {
    let (mut found, mut rest) = (Candidate::None, srcset);
    while let Some((link, size, behind)) = next_candidate(rest) {
        match size {
            // Of several the first one counts.
            "" | "1x" if matches!(found, Candidate::None) => found = Candidate::Is(link),
            _ if size.is_empty() || size.ends_with('x') => {}
            _ => return Candidate::Depends,
        }
        rest = behind;
    }
    found
}

/// First candidate of `srcset`, its size, and what stands behind it (HTML Standard, section 4.8.4.2.1): commas are of links, too.
fn next_candidate(srcset: &str) -> Option<(&str, &str, &str)> {
    let blank = |c: char| c.is_ascii_whitespace();
    let rest = srcset.trim_start_matches(|c| blank(c) || c == ',');
    let (link, behind) = rest.split_at(rest.find(blank).unwrap_or(rest.len()));
    match link.trim_end_matches(',') {
        "" => None,
        alone if alone.len() < link.len() => Some((alone, "", behind)),
        _ => {
            let (size, behind) = behind.split_at(behind.find(',').unwrap_or(behind.len()));
            Some((link, size.trim_matches(blank), behind))
        }
    }
}
