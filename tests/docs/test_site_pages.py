"""The content of the site, checked without building it: navigation and the pages of the Python reference.

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


@pytest.mark.parametrize("name", sl.__all__)
def test_a_row_leads_to_what_the_name_is(name):
    """To the module and the name in it where it is defined, on a page that describes that module."""
    assert set(reference_links()) == set(sl.__all__)
    page, identifier = reference_links()[name]
    found = getattr(sl, name)
    module, attribute = sl._PUBLIC[name] if isinstance(found, dict) else (getattr(found, "__module__", None), None)
    module, attribute = (found.__name__, None) if module is None else (module, attribute or found.__name__)
    assert identifier == (module if attribute is None else f"{module}.{attribute}")
    described = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference" / page).read_text(), re.MULTILINE)
    assert module in described
