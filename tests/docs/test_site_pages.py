"""The content of the site, checked without building it: navigation, the Python reference's pages, indentation.

tests/integration/test_site.py builds it.
"""

import re

import pytest
import yaml
from support.paths import ROOT

import stoix_like as sl

DOCS = ROOT / "docs"
#: Plain YAML: a Python tag, which zensical does not have, would be an error here.
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def pages_of(entry):
    """Every page that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from pages_of(part)


def test_every_page_is_in_the_navigation_once_every_check_is_on_and_zensical_lacks_nothing():
    there = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(pages_of(SITE["nav"])) == there, "put the page into nav: of mkdocs.yml"
    assert [plugin if isinstance(plugin, str) else next(iter(plugin)) for plugin in SITE["plugins"]] == [
        "search",
        "mkdocstrings",
    ]
    assert "hooks" not in SITE
    checks = SITE["validation"]
    assert set(checks["nav"]) == {"omitted_files", "not_found", "absolute_links"}
    assert set(checks["links"]) == {"not_found", "anchors", "absolute_links", "unrecognized_links"}
    assert {level for part in checks.values() for level in part.values()} == {"warn"}


def reference_links():
    """{name: (page, identifier)} of the rows of docs/reference/api.md."""
    text = (DOCS / "reference" / "api.md").read_text()
    return {
        name: (page, anchor) for name, page, anchor in re.findall(r"\[`sl\.(\w+)`\]\(([\w-]+\.md)#([\w.]+)\)", text)
    }


def test_every_public_name_has_a_row():
    assert set(reference_links()) == set(sl.__all__)


@pytest.mark.parametrize("name", sl.__all__)
def test_a_row_leads_to_what_the_name_is(name):
    """To the module and the name in it where it is defined, on a page that describes that module."""
    page, identifier = reference_links()[name]
    found = getattr(sl, name)
    module, attribute = sl._PUBLIC[name] if isinstance(found, dict) else (getattr(found, "__module__", None), None)
    module, attribute = (found.__name__, None) if module is None else (module, attribute or found.__name__)
    assert identifier == (module if attribute is None else f"{module}.{attribute}")
    described = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference" / page).read_text(), re.MULTILINE)
    assert module in described


def short_indents(text):
    """Lines of a block that follow an empty line and are indented by one to three spaces."""
    lines, found, in_code = text.splitlines(), [], False
    for before, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code:
            continue
        if not before.strip() and re.match(r" {1,3}\S", line):
            found.append(line)
    return found


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_blocks_in_lists_are_indented_by_four_and_no_link_leaves_the_folder_of_the_site(page):
    assert short_indents(page.read_text()) == []
    # Such a link works on a git host and is dead on the site.
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    local = [target for target in targets if not re.match(r"https?:", target)]
    assert [target for target in local if not (page.parent / target).resolve().is_relative_to(DOCS)] == []


def test_a_short_indent_is_seen():
    assert short_indents("- a\n\n  ```text\n\n   b\n  ```\n\n    c\n") == ["  ```text"]
