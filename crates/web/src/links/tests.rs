//! Links that are found, in tables and in pages that are drawn.

use super::*;
use crate::{Scheme, Verdict, judge};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg32;

fn links(html: &str, cut: usize) -> Vec<String> {
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
    let cases: [(&str, &[&str]); 27] = [
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
            "<picture><source srcset=a.webp type=image/webp><img src=b.png></picture>",
            &["/dir/a.webp"],
        ),
        (
            "<picture><source srcset=a.avif type=image/avif><img src=b.png></picture>",
            &["/dir/b.png"],
        ),
        (
            "<picture><source srcset=a media='(x)'><img src=b></picture><img src=c>",
            &["/dir/b", "/dir/c"],
        ),
        ("<video><source src=a.mp4></video>", &[]),
        ("<link rel=stylesheet href=/s.css>", &["/s.css"]),
        ("<link rel='alternate stylesheet' href=/s.css>", &[]),
        ("<link rel=preload as=font href=/f.woff2>", &["/f.woff2"]),
        ("<link rel='shortcut icon' href=/i.ico>", &["/i.ico"]),
        ("<link rel=canonical href=/x>", &[]),
        ("<link rel=prefetch href=/x>", &[]),
        (
            "<script src=a.js></script><script>'<img src=x>'</script><img src=b>",
            &["/dir/a.js", "/dir/b"],
        ),
        ("<script nomodule src=a.js></script>", &[]),
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
    ];
    for (html, found) in cases {
        for cut in [1, 7, html.len()] {
            assert_eq!(links(html, cut), found, "{html}");
        }
    }
}

/// Contexts in which a tag with many attributes stands, and whether a link behind it is found.
const MANY: [(&str, &str); 9] = [
    ("<p", ">"),
    ("</p", ">"),
    ("<p x", "=''>"),
    ("<<p/", ">"),
    ("<!--><p><!-- >--><p", ">"),
    ("<style></b c='</style", ">"),
    ("<title>&am</title/", ">"),
    ("<script><!-- <script </script x='</script", ">"),
    ("<!---><?><!x></ ><script><</script ", "></script>"),
];

#[test]
fn attributes_beyond_a_number_are_left_out_wherever_their_tag_stands() {
    for (before, after) in MANY {
        for value in ["", "=", "=''", "=\"a>\"", "/", " = b"] {
            let many: String = (0..MAX_ATTRIBUTES * 20)
                .map(|n| format!(" a{n}{value}"))
                .collect();
            let html = format!("{before}{many}{after}<img src=x>");
            for cut in [1, 100, 1000, html.len()] {
                // Of longer tags the tokenizer's sink complains.
                assert_eq!(
                    links(&html, cut),
                    ["/dir/x"],
                    "{before}{value} cut every {cut}"
                );
            }
        }
    }
}

#[test]
fn no_attribute_is_one_too_many_where_none_is() {
    let words = "a b c=d ".repeat(2 * MAX_ATTRIBUTES);
    for html in [
        format!("<!-- <p {words}> --><img src=x>"),
        format!("<!doctype {words}><img src=x>"),
        format!("<p title='{words}'><img src=x>"),
        format!("<script>if (a<b {words}) '</p {words}'</script><img src=x>"),
        format!("<script><!-- <script></script {words}--></script><img src=x>"),
        format!("<style></style{words}</style><img src=x>"),
        format!("< {words}<1 {words}<img src=x>"),
    ] {
        for cut in [1, 100, html.len()] {
            assert_eq!(links(&html, cut), ["/dir/x"], "{html:.40}");
        }
    }
    let kept = format!("<img {} src=x>", "a1=b ".repeat(MAX_ATTRIBUTES - 1));
    assert_eq!(links(&kept, 7), ["/dir/x"]);
    let left_out = format!("<img {} src=x>", "a1=b ".repeat(MAX_ATTRIBUTES));
    assert!(links(&left_out, 7).is_empty());
}

#[test]
fn no_page_hides_a_tag_with_many_attributes() {
    let fragments = [
        "<",
        "</",
        ">",
        "/",
        "!",
        "?",
        "--",
        "-->",
        "--!>",
        "=",
        "'",
        "\"",
        "&",
        "&lt",
        "&#x",
        ";",
        " ",
        "\r",
        "\n",
        "\0",
        "a",
        "<a",
        "script",
        "<script>",
        "</script",
        "<!--",
        "style",
        "<style ",
        "</style",
        "title",
        "<title>",
        "</title ",
        "plaintext",
        "<![CDATA[",
        "<!doctype",
        "\u{e9}",
    ];
    let many: String = (0..=MAX_ATTRIBUTES).map(|n| format!(" a{n}")).collect();
    for seed in 0..20_000 {
        let mut random = Pcg32::seed_from_u64(seed);
        let mut html = String::new();
        for _ in 0..random.next_u32() % 24 {
            html.push_str(fragments[random.next_u32() as usize % fragments.len()]);
        }
        html.push_str(&many);
        html.push('>');
        // Of a tag that hides the tokenizer's sink complains.
        links(&html, 1 + random.next_u32() as usize % 200);
    }
}
