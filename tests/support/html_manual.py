#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""html_manual.py MANUAL HTML: every page of the manual is an HTML page with the same words, whose links lead to pages
and headings that are there."""
import html.parser
import pathlib
import re
import subprocess
import sys


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.words, self.skipped = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.skipped += tag in ("style", "title", "nav")
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if "href" in named else []

    def handle_endtag(self, tag):
        self.skipped -= tag in ("style", "title", "nav")

    def handle_data(self, data):
        self.words += [] if self.skipped else data.split()


def words(text):
    return "".join(Page(text).words)


manual, folder = map(pathlib.Path, sys.argv[1:])
pages = {path.resolve(): Page(path.read_text()) for path in folder.rglob("*.html")}
sources = list(manual.glob("**/*.md"))
failed = []
for source in sources:
    name = source.relative_to(manual).with_suffix(".html")
    path = (folder / name).with_name(name.name.replace("README", "index"))
    plain = subprocess.run(["cmark-gfm", "-e", "table", source], capture_output=True, text=True, check=True).stdout
    if not path.exists() or words(plain) != words(path.read_text()):
        failed.append(f"{source}: absent, or with other words")
for path, page in pages.items():
    failed += [f"{path.name}: the heading {i} is there twice" for i in set(page.ids) if page.ids.count(i) > 1]
    for link in page.links:
        target, _, anchor = link.partition("#")
        other = pages.get((path.parent / target).resolve() if target else path)
        if not re.match("https?://", link) and (other is None or anchor and anchor not in other.ids):
            failed.append(f"{path.name}: {link} leads nowhere")
n_links = sum(len(page.links) for page in pages.values())
if len(pages) != len(sources) or n_links < 2 * len(pages):
    failed.append(f"{len(pages)} pages of {len(sources)}, {n_links} links")
print("\n".join(failed) or f"{len(pages)} pages, {n_links} links")
sys.exit(bool(failed))
