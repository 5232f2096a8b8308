"""Markdown as GitHub renders it, by its own library, and what stands in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import cmarkgfm
from cmarkgfm.cmark import Options

# What a report may consist of: any other tag is somebody else's.
OURS = frozenset(
    [
        "h1",
        "h2",
        "h3",
        "p",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
        "strong",
        "em",
        "sub",
        "details",
        "summary",
        "br",
    ]
)
LITERAL = frozenset(("pre", "code"))  # where nobody is mentioned, and nothing is a link


@dataclass
class Rendered(HTMLParser):
    """What a page of HTML holds."""

    tags: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    plain: str = ""  # text outside of code
    code: str = ""
    shown: str = ""  # text that is not folded
    rows: list[int] = field(default_factory=list)  # cells of each row of a table

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs if name not in ("lang", "class")]
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += 1
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> where {self.open} are open"

    def handle_data(self, data: str) -> None:
        if LITERAL & {*self.open}:
            self.code += data
        else:
            self.plain += data
        if "details" not in self.open:
            self.shown += data


def rendered(markdown: str) -> Rendered:
    """Return a page as it stands in an issue, before GitHub takes out what is dangerous."""
    options = Options.CMARK_OPT_UNSAFE
    found = Rendered()
    found.feed(cmarkgfm.github_flavored_markdown_to_html(markdown, options))
    found.close()
    assert found.open == []
    return found
