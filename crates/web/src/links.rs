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

use crate::tags::{Candidate, is_fetched, is_script, is_sheet, is_waited_for, one_to_one, value};
use crate::target::resolve;
use crate::{Request, Scheme};

/// Object that a page links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Path and query.
    pub target: String,
    /// True if a browser shows nothing of what stands behind the link before it has the object.
    pub blocking: bool,
}

/// Reader of one page.
pub struct Links {
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
    found: Vec<Link>,
    /// Templates that are open.
    templates: usize,
    /// An open `picture`: true once no image behind may be the one that every browser takes.
    picture: Option<bool>,
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
        };
        let sink = Sink(RefCell::new(page));
        Self {
            tokenizer: Tokenizer::new(sink, TokenizerOpts::default()),
            queue: BufferQueue::default(),
        }
    }

    /// Reads more of the page, and gives the objects that it links to there, in its order; the same one perhaps again.
    pub fn read(&mut self, html: &[u8]) -> Vec<Link> {
        // Whatever the page's encoding, tags and paths are ASCII, or are left out.
        let ascii = |byte: &u8| {
            if byte.is_ascii() {
                char::from(*byte)
            } else {
                '\u{fffd}'
            }
        };
        let text: String = html.iter().map(ascii).collect();
        self.queue.push_back(StrTendril::from(text));
        let _ = self.tokenizer.feed(&self.queue);
        std::mem::take(&mut self.tokenizer.sink.0.borrow_mut().found)
    }
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let Token::TagToken(tag) = token else {
            return TokenSinkResult::Continue;
        };
        let mut page = self.0.borrow_mut();
        if tag.kind == TagKind::EndTag {
            page.end(&tag.name);
            return TokenSinkResult::Continue;
        }
        page.begin(&tag);
        match &*tag.name {
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            "style" | "xmp" | "iframe" | "noembed" | "noframes" | "noscript" => {
                TokenSinkResult::RawData(RawKind::Rawtext)
            }
            "textarea" | "title" => TokenSinkResult::RawData(RawKind::Rcdata),
            "plaintext" => TokenSinkResult::Plaintext,
            _ => TokenSinkResult::Continue,
        }
    }
}

impl Markup {
    fn end(&mut self, name: &str) {
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
            "script" if is_script(tag) => {
                self.find(value(tag, "src"), is_waited_for(tag));
            }
            "input"
                if value(tag, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("image")) =>
            {
                self.find(value(tag, "src"), false);
            }
            "link" if is_fetched(tag) => self.find(value(tag, "href"), is_sheet(tag)),
            _ => {}
        }
    }

    fn find(&mut self, link: Option<&str>, blocking: bool) {
        let base = self.base.as_deref();
        let target = link
            .zip(base)
            .and_then(|(link, base)| resolve((self.scheme, &self.host), base, link));
        self.found
            .extend(target.map(|target| Link { target, blocking }));
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
            None | Some(Candidate::None) => self.find(value(tag, "src"), false),
            Some(Candidate::Is(link)) => self.find(Some(link), false),
            Some(Candidate::Depends) => {}
        }
    }

    /// A source of a picture, if every browser takes it; of other elements it is media, which come in parts. A source that some browsers take
    /// ends the choice: which image it is, and whether those behind it are wanted, depends on the browser.
    fn source(&mut self, tag: &Tag) {
        let named = value(tag, "srcset").filter(|set| !set.trim().is_empty());
        let Some(set) = named.filter(|_| self.picture == Some(false)) else {
            return;
        };
        self.picture = Some(true);
        let known = [
            "image/png",
            "image/jpeg",
            "image/gif",
            "image/webp",
            "image/svg+xml",
        ];
        let taken = value(tag, "type")
            .is_none_or(|kind| known.iter().any(|known| kind.eq_ignore_ascii_case(known)));
        if let Candidate::Is(link) = one_to_one(set)
            && taken
            && value(tag, "media").is_none()
        {
            self.find(Some(link), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheme, Verdict, judge};

    fn links(html: &str, cut: usize) -> Vec<Link> {
        let head = b"GET /dir/page HTTP/1.1\r\nHost: h\r\n\r\n";
        let Verdict::Get(request, _) = judge(Scheme::Http, head) else {
            panic!("a request");
        };
        let mut links = Links::of(&request);
        let pieces = html.as_bytes().chunks(cut);
        pieces.flat_map(|piece| links.read(piece)).collect()
    }

    #[test]
    fn what_every_browser_fetches_is_found() {
        let cases: [(&str, &[&str]); 42] = [
            ("<img src=a.png>", &["/dir/a.png"]),
            ("<IMG SRC='/a.png?x=1&amp;y=2'>", &["/a.png?x=1&y=2"]),
            ("<img src=a.png loading=lazy>", &[]),
            (
                "<img srcset='a.png 1x, b.png 2x' src=c.png>",
                &["/dir/a.png"],
            ),
            ("<img srcset='b.png 2x' src=c.png>", &["/dir/c.png"]),
            ("<img srcset='a.png 100w, b.png 200w' src=c.png>", &[]),
            (
                "<img srcset='w_300,h_200/a.png 1x, w_600,h_400/a.png 2x' src=c.png>",
                &["/dir/w_300,h_200/a.png"],
            ),
            (
                "<img srcset='b.png 2x,a.png, c.png' src=d>",
                &["/dir/a.png"],
            ),
            ("<img srcset=', ,' src=c.png>", &["/dir/c.png"]),
            (
                "<picture><source srcset=a.webp type=image/webp><img src=b.png></picture>",
                &["/dir/a.webp"],
            ),
            (
                "<picture><source srcset=a.avif type=image/avif><img src=b.png></picture>",
                &[],
            ),
            (
                "<picture><source srcset=a type=image/avif><source srcset=b type=image/webp><img src=c></picture>",
                &[],
            ),
            (
                "<picture><source srcset=a media='(x)'><img src=b></picture><img src=c>",
                &["/dir/c"],
            ),
            (
                "<picture><source type=image/avif><img src=b></picture>",
                &["/dir/b"],
            ),
            ("<video><source src=a.mp4></video>", &[]),
            ("<link rel=stylesheet href=/s.css>", &["/s.css"]),
            ("<link rel='alternate stylesheet' href=/s.css>", &[]),
            ("<link rel=preload as=font href=/f.woff2>", &["/f.woff2"]),
            ("<link rel='shortcut icon' href=/i.ico>", &["/i.ico"]),
            ("<link rel=preload href=/f.woff2>", &[]),
            ("<link rel=stylesheet type=text/less href=/s.less>", &[]),
            (
                "<link rel=stylesheet type='TEXT/css; charset=utf-8' href=/s.css>",
                &["/s.css"],
            ),
            ("<link rel=canonical href=/x>", &[]),
            ("<link rel=prefetch href=/x>", &[]),
            (
                "<script src=a.js></script><script>'<img src=x>'</script><img src=b>",
                &["/dir/a.js", "/dir/b"],
            ),
            ("<script nomodule src=a.js></script>", &[]),
            ("<script type=text/plain src=a.js></script>", &[]),
            ("<script type=text/babel src=a.js></script>", &[]),
            ("<script type=importmap src=a.json></script>", &[]),
            (
                "<script type='' src=a></script><script type=' Text/JavaScript ' src=b></script>",
                &["/dir/a", "/dir/b"],
            ),
            ("<script type=Module src=a.js></script>", &["/dir/a.js"]),
            ("<a href=/x>x</a><form action=/y></form>", &[]),
            ("<iframe src=/x><img src=y></iframe>", &[]),
            (
                "<!-- <img src=x> --><style><img src=y></style><title><img src=z></title>",
                &[],
            ),
            ("<template><img src=x></template><img src=y>", &["/dir/y"]),
            ("<noscript><img src=x></noscript>", &[]),
            (
                "<base href=/other/><base href=/third/><img src=x>",
                &["/other/x"],
            ),
            ("<base href=//else/><img src=x><img src=/y>", &[]),
            (
                "<img src=//else/x><img src=https://h/x><img src=http://h/x>",
                &["/x"],
            ),
            ("<input type=image src=x><input src=y>", &["/dir/x"]),
            (
                "<img src=\"/a\"<img src=/b <p <script><img src=/c></scrip><table><img src=/d><!-- <img src=/e> -- ><img src=/f",
                &["/a", "/c", "/d"],
            ),
            (
                "\0<img\0 src=/a><img src=\"/b\"\0><\0i\0m\0g\0 src=/c><img src=/d",
                &["/b"],
            ),
        ];
        for (html, found) in cases {
            for cut in [1, 7, html.len()] {
                let links = links(html, cut).into_iter();
                let targets: Vec<_> = links.map(|link| link.target).collect();
                assert_eq!(targets, found, "{html}");
            }
        }
    }

    #[test]
    fn style_sheets_and_scripts_that_are_waited_for_block() {
        for (html, blocking) in [
            ("<link rel=stylesheet href=/a>", true),
            ("<link rel='StyleSheet next' media=screen href=/a>", true),
            ("<link rel=stylesheet media=Print href=/a>", false),
            ("<link rel=preload as=style href=/a>", true),
            ("<link rel=preload as=font href=/a>", false),
            ("<link rel=icon href=/a>", false),
            ("<script src=/a></script>", true),
            ("<script async src=/a></script>", false),
            ("<script defer src=/a></script>", false),
            ("<script type=module src=/a></script>", false),
            ("<img src=/a>", false),
            ("<input type=image src=/a>", false),
        ] {
            let target = "/a".to_owned();
            assert_eq!(links(html, 9), [Link { target, blocking }], "{html}");
        }
    }
}
