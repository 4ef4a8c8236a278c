//! Objects that a page will have its browser ask for, read from its tags while it comes.
//!
//! What only some browsers fetch is left out: a candidate of `srcset` that depends on the width, images that wait until they are
//! in sight, what stands in `template` or `noscript`. A link too few costs a round trip, one too many bytes of the link.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use crate::tags::{Heard, MAX_ATTRIBUTES, TagFilter};
use crate::target::resolve;
use crate::{Request, Scheme};

/// Reader of one page.
pub struct Links {
    tags: TagFilter,
    tokenizer: Tokenizer<Sink>,
    queue: BufferQueue,
}

/// What has been read of the page.
struct Markup {
    scheme: Scheme,
    host: String,
    /// Path that links begin at; `None`: they lead to another host.
    base: Option<String>,
    base_given: bool,
    found: Vec<String>,
    /// Templates that are open.
    templates: usize,
    /// An open `picture`: true once a source of it was taken.
    picture: Option<bool>,
    heard: Heard,
}

struct Sink(RefCell<Markup>);

impl Links {
    /// Reader of the page that `request` asks for.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let page = Markup {
            scheme: request.scheme(),
            host: request.host().to_owned(),
            base: Some(request.target().to_owned()),
            base_given: false,
            found: Vec::new(),
            templates: 0,
            picture: None,
            heard: Heard::default(),
        };
        let sink = Sink(RefCell::new(page));
        Self {
            tags: TagFilter::new(MAX_ATTRIBUTES),
            tokenizer: Tokenizer::new(sink, TokenizerOpts::default()),
            queue: BufferQueue::default(),
        }
    }

    /// Reads more of the page, and gives the paths that it links to there, in its order; the same one perhaps again.
    pub fn read(&mut self, html: &[u8]) -> Vec<String> {
        let mut text = String::with_capacity(html.len());
        for &byte in html {
            let doubtful = self.tags.is_doubtful(byte);
            if doubtful {
                self.feed(&mut text);
            }
            if self.tags.passes(byte) {
                // Whatever the page's encoding, tags and paths are ASCII, or are left out.
                text.push(if byte.is_ascii() {
                    byte.into()
                } else {
                    '\u{fffd}'
                });
            }
            if doubtful {
                let came_out = self.feed(&mut text);
                self.tags.judge(came_out);
            } else if byte == b'>' {
                self.feed(&mut text);
            }
        }
        self.feed(&mut text);
        std::mem::take(&mut self.tokenizer.sink.0.borrow_mut().found)
    }

    /// Gives `text` to the tokenizer; true if text has come out.
    fn feed(&mut self, text: &mut String) -> bool {
        self.queue.push_back(StrTendril::from_slice(text));
        text.clear();
        let _ = self.tokenizer.feed(&self.queue);
        let heard = self.tokenizer.sink.0.borrow_mut().heard.take();
        let came_out = heard.text;
        self.tags.hear(heard);
        came_out
    }
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.0.borrow_mut();
        let tag = match token {
            Token::TagToken(tag) => tag,
            other => {
                page.heard.note(&other);
                return TokenSinkResult::Continue;
            }
        };
        debug_assert!(tag.attrs.len() <= MAX_ATTRIBUTES, "a tag passed the filter");
        if tag.kind == TagKind::EndTag {
            page.end(&tag.name);
            return TokenSinkResult::Continue;
        }
        page.begin(&tag);
        let result = match &*tag.name {
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            "style" | "xmp" | "iframe" | "noembed" | "noframes" | "noscript" => {
                TokenSinkResult::RawData(RawKind::Rawtext)
            }
            "textarea" | "title" => TokenSinkResult::RawData(RawKind::Rcdata),
            "plaintext" => TokenSinkResult::Plaintext,
            _ => return TokenSinkResult::Continue,
        };
        page.heard.raw = Some(tag.name);
        result
    }
}

impl Markup {
    fn end(&mut self, name: &str) {
        self.heard.raw = None;
        match name {
            "template" => self.templates = self.templates.saturating_sub(1),
            "picture" => self.picture = None,
            _ => {}
        }
    }

    fn begin(&mut self, tag: &Tag) {
        if &*tag.name == "template" {
            self.templates += 1;
        }
        if self.templates > 0 {
            return;
        }
        match &*tag.name {
            "base" => self.rebase(tag),
            "img" => self.image(tag),
            "picture" => self.picture = Some(false),
            "source" => self.source(tag),
            "script" if value(tag, "nomodule").is_none() => self.find(value(tag, "src")),
            "input"
                if value(tag, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("image")) =>
            {
                self.find(value(tag, "src"));
            }
            "link" if is_fetched(tag) => self.find(value(tag, "href")),
            _ => {}
        }
    }

    fn find(&mut self, link: Option<&str>) {
        let base = self.base.as_deref();
        let target = link
            .zip(base)
            .and_then(|(link, base)| resolve((self.scheme, &self.host), base, link));
        self.found.extend(target);
    }

    /// The first `base` with an address counts.
    fn rebase(&mut self, tag: &Tag) {
        if let Some(link) = value(tag, "href").filter(|_| !self.base_given) {
            self.base_given = true;
            let base = self.base.take().unwrap_or_default();
            self.base = resolve((self.scheme, &self.host), &base, link);
        }
    }

    fn image(&mut self, tag: &Tag) {
        let later = value(tag, "loading").is_some_and(|when| when.eq_ignore_ascii_case("lazy"));
        if later || self.picture == Some(true) {
            return;
        }
        match value(tag, "srcset").map(one_to_one) {
            None => self.find(value(tag, "src")),
            Some(Candidate::Is(link)) => self.find(Some(link)),
            Some(Candidate::None) => self.find(value(tag, "src")),
            Some(Candidate::Depends) => {}
        }
    }

    /// A source of a picture, if every browser takes it; of other elements it is media, which come in parts.
    fn source(&mut self, tag: &Tag) {
        if self.picture != Some(false) || value(tag, "media").is_some() {
            return;
        }
        let known = [
            "image/png",
            "image/jpeg",
            "image/gif",
            "image/webp",
            "image/svg+xml",
        ];
        let kind = value(tag, "type");
        if kind.is_some_and(|kind| known.iter().all(|known| !kind.eq_ignore_ascii_case(known))) {
            return;
        }
        match value(tag, "srcset").map(one_to_one) {
            Some(Candidate::Is(link)) => {
                self.find(Some(link));
                self.picture = Some(true);
            }
            // One of them is taken, and not the image's own.
            Some(Candidate::Depends) => self.picture = Some(true),
            Some(Candidate::None) | None => {}
        }
    }
}

fn value<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    let attribute = tag.attrs.iter().find(|one| &*one.name.local == name);
    attribute.map(|one| &*one.value)
}

/// True for a `link` to something that is fetched with the page.
fn is_fetched(tag: &Tag) -> bool {
    let relations = value(tag, "rel").unwrap_or_default().to_ascii_lowercase();
    let relations: Vec<_> = relations.split_ascii_whitespace().collect();
    let is = |name: &str| relations.contains(&name);
    if is("stylesheet") {
        return !is("alternate") && value(tag, "disabled").is_none();
    }
    if is("preload") {
        return value(tag, "media").is_none() && value(tag, "imagesrcset").is_none();
    }
    is("icon") || is("modulepreload")
}

/// Candidate of a `srcset` for a screen with one pixel per pixel.
enum Candidate<'a> {
    Is(&'a str),
    /// There is none: `src` is it.
    None,
    /// The width decides.
    Depends,
}

fn one_to_one(srcset: &str) -> Candidate<'_> {
    let mut found = Candidate::None;
    for candidate in srcset.split(',') {
        let mut words = candidate.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(link), None | Some("1x")) => found = Candidate::Is(link),
            (Some(_), Some(size)) if size.ends_with('x') => {}
            (Some(_), Some(_)) => return Candidate::Depends,
            (None, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
