"""The pages of docs/tutorials hold the cells of their notebooks, and what those printed and drew: no page is stale.

tests/integration/test_tutorial_tool.py runs a notebook through the tool that makes them.
"""

import re

import jupytext
import pytest
from support.paths import ROOT

FOLDER = ROOT / "docs" / "tutorials"
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
assert NOTEBOOKS, "there are no notebooks"
INDEX = FOLDER / "index.md"
LARGEST_IMAGE = 60_000  # bytes


def page_of(notebook):
    return (FOLDER / f"{notebook.stem}.md").read_text(encoding="utf-8")


def fences(text, language):
    """The contents of all fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)\n?^```$", text, re.MULTILINE | re.DOTALL)


def without_outputs(text):
    """The page's own lines, without header, footer, printed text and pictures."""
    text = re.sub(r"^```text\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^!\[.*\]\(\w+\.png\)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\A<!--.*?-->", "", text).rpartition("\n---\n")[0]
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def of_cells(notebook):
    """The lines that a page should have for a notebook's cells."""
    parts = [
        f"```python\n{cell.source}\n```" if cell.cell_type == "code" else cell.source
        for cell in jupytext.read(notebook).cells
    ]
    return [line.rstrip() for line in "\n".join(parts).splitlines() if line.strip()]


def stale(notebook, page):
    """What is wrong with a page as a picture of its notebook."""
    cells = [cell.source for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    found = [] if fences(page, "python") == cells else ["code cells differ"]
    return found + ([] if without_outputs(page) == of_cells(notebook) else ["text or order differs"])


def images_of(page):
    return re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)


def test_every_notebook_has_a_page_in_the_overview_and_no_page_or_picture_is_left_over():
    assert [path.stem for path in sorted(FOLDER.glob("*.md")) if path != INDEX] == [path.stem for path in NOTEBOOKS]
    linked = {name for notebook in NOTEBOOKS for name in images_of(page_of(notebook))}
    assert {path.name for path in FOLDER.iterdir() if path.suffix != ".md"} == linked
    assert {f"{path.stem}.md" for path in NOTEBOOKS} <= set(re.findall(r"\]\((\w+\.md)\)", INDEX.read_text()))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_holds_the_cells_of_its_notebook_in_order_outputs_without_noise_and_small_pictures(notebook):
    """Otherwise: `make tutorials`, or `python docs/tools/tutorials.py NAME`."""
    text, page = notebook.read_text(), page_of(notebook)
    assert "format_name: percent" in text
    assert text.count("\n# %%") > 5  # cells rather than one script
    assert "\n# %% [markdown]\n# # " in text
    assert page.startswith(f"<!-- made by make tutorials from docs/notebooks/{notebook.name} -->\n\n# ")
    assert stale(notebook, page) == []
    assert fences(page, "text")
    noise = r"/tmp|/root|/home|/Users|Warning|Traceback|\r|\x1b| at 0x|None\)\n"
    assert re.findall(noise, "\n".join(fences(page, "text"))) == []
    linked = images_of(page)
    assert len(linked) == page.count("![")  # each says in words what it shows
    assert [name for name in linked if not (FOLDER / name).is_file()] == []
    assert [name for name in linked if (FOLDER / name).stat().st_size > LARGEST_IMAGE] == []


def test_a_changed_page_is_seen():
    notebook = NOTEBOOKS[0]
    page = page_of(notebook)
    assert stale(notebook, page.replace("import jax\n", "import jax  # changed\n", 1)) == [
        "code cells differ",
        "text or order differs",
    ]
    assert stale(notebook, page.replace("\n## ", "\n## Not ", 1)) == ["text or order differs"]
