"""HTML from nested function calls. All text except `Markup` is escaped, so text from files cannot become markup.

A page is one file: it contains its style, pictures are data URIs, and its content security policy forbids a browser
to fetch or run anything. It follows the reader's light or dark setting. Wide tables scroll on a phone, and a printed
page shows everything unfolded.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

_VOID = ("img", "meta")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --shade: #8886; --quiet: light-dark(#57606a, #9aa4ae); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h1 { margin: 0 0 .25rem; }
h2 { margin: 2.5rem 0 1rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
h3 { margin: 2rem 0 .75rem; }
p { overflow-wrap: anywhere; }
.quiet, figcaption, dt, th { color: var(--quiet); }
.quiet, dt, th { font-size: .875rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .9rem 1.25rem; }
.facts, dd { margin: 0; }
dd { font-weight: 600; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 0 0 1rem; background: /* a shade at the side where there is more */
  linear-gradient(to right, Canvas 50%, #0000) 0 0 / 2rem 100% no-repeat local,
  linear-gradient(to left, Canvas 50%, #0000) 100% 0 / 2rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), #0000) 0 0 / .75rem 100% no-repeat,
  linear-gradient(to left, var(--shade), #0000) 100% 0 / .75rem 100% no-repeat; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem 1.1rem .35rem 0; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; font-weight: 600; line-height: 1.3; }
td { white-space: nowrap; }
pre { overflow-x: auto; background: var(--soft); padding: .8rem; border-radius: .4rem; font-size: .85rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; padding: .25rem 0; }
figure { margin: 0; }
figcaption { font-weight: 600; padding-bottom: .25rem; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: .4rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1.5rem; }
.figures img { width: 100%; }
@media screen and (prefers-color-scheme: dark) {
  .drawn img { filter: invert(.93) hue-rotate(180deg); } /* white paper becomes the page's black, blue stays blue */
}
@media print {
  @page { margin: 15mm; }
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h1, h2, h3, summary { break-after: avoid; }
  figure, tr, dl > div { break-inside: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; } /* paper cannot be unfolded */
  .scroll, pre { overflow: visible; background: none; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0; font-size: 6.5pt; }
  td { white-space: normal; overflow-wrap: break-word; }
  th, td { padding-right: .6rem; font-size: 8pt; }
}
"""


class Markup(str):
    """Text that is HTML already. Only the functions of this file create it."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: str) -> Markup:
    """An element. Its text and attributes are escaped. A trailing underscore of an attribute name is dropped."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(v)}"' for key, v in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Markup:
    """The parts one after the other, each escaped unless it is `Markup`."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in content))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table that scrolls if it is wider than the screen. An empty `head` gives a table without a head."""
    titles = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in head))) if head else Markup()
    lines = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("div", tag("table", titles, tag("tbody", *lines)), class_="scroll")


def facts(entries: Iterable[tuple[str, str]]) -> Markup:
    """A list of names with their values, in as many columns as fit."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in entries), class_="facts")


def image(data: bytes, kind: str, alt: str, caption: str = "") -> Markup:
    """An embedded picture with its caption above it; `kind` is png or gif."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    title = tag("figcaption", caption) if caption else Markup()
    return tag("figure", title, tag("img", src=source, alt=alt))


def folded(title: str, *content: str) -> Markup:
    """Content that is hidden until the reader opens it."""
    return tag("details", tag("summary", title), *content)


def page(title: str, *content: str) -> str:
    """The whole file. `title` is shown by the browser; the content has its own heading."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_STYLE)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *content), lang='en')}\n"
