"""HTML as nested function calls: what is no `Markup` is escaped, so that text from files cannot become markup.

A page is one file: its style stands in it, pictures are data URIs, and its content security policy forbids a browser
to fetch or run anything. It follows the reader's light or dark setting, and wide tables scroll on a phone.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

_VOID = ("img", "meta")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
pre { overflow-x: auto; background: var(--soft); padding: .8rem; border-radius: .4rem; font-size: .85rem; }
summary { cursor: pointer; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; background: #fff; border-radius: .4rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 0 1rem; }
"""


class Markup(str):
    """Text that is HTML already, made by the functions of this file."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: str) -> Markup:
    """An element; text in it and attributes are escaped. A trailing underscore of an attribute's name is dropped."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(v)}"' for key, v in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Markup:
    """Parts one after the other, each escaped unless it is markup."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in content))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table that scrolls where it is wider than the screen; no head if that is empty."""
    titles = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in head))) if head else Markup()
    lines = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("div", tag("table", titles, tag("tbody", *lines)), class_="scroll")


def image(data: bytes, kind: str, alt: str) -> Markup:
    """A picture with its bytes in it; `kind` is png or gif."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    return tag("figure", tag("img", src=source, alt=alt))


def folded(title: str, *content: str) -> Markup:
    """Content that is shown on demand."""
    return tag("details", tag("summary", title), *content)


def page(title: str, *content: str) -> str:
    """The whole file."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_STYLE)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('h1', title), *content), lang='en')}\n"
