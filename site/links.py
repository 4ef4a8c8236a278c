#!/usr/bin/env python3
"""Follows every link of the built site to a file and an anchor: `site/links.py DIRECTORY`. Names those that lead nowhere."""

import html
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
pages = {page: page.read_text(encoding="utf-8") for page in root.rglob("*.html")}
anchors = {page: set(re.findall(r'id="([^"]+)"', text)) for page, text in pages.items()}
# All pages in one, whose links are those of its parts; and a page for addresses at which there is none.
whole = {"print.html", "404.html"}
count, lost = 0, []
for page, text in pages.items():
    if page.name in whole:
        continue
    for link in map(html.unescape, re.findall(r'(?:href|src)="([^"]+)"', text)):
        if re.match(r"[a-z]+:|//", link):
            continue
        count += 1
        path, _, anchor = link.partition("#")
        to = (page.parent / path).resolve() if path else page
        to = to / "index.html" if to.is_dir() else to
        if not to.exists() or (anchor and to in anchors and anchor not in anchors[to]):
            lost.append(f"{page.relative_to(root)}: {link}")
print(f"{count} links, {len(lost)} of them lead nowhere", *lost, sep="\n  ")
sys.exit(1 if lost or count == 0 else 0)
