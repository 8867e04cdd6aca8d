"""Runs the notebooks of docs/notebooks and writes each with its outputs as a page of docs/tutorials.

`make tutorials` makes all pages, `python docs/tools/tutorials.py NAME ...` some. A page that shows a warning or a path
of this machine is refused. A test fails if a page no longer has the cells of its notebook. jupytext, nbclient and
nbconvert read, run and render notebooks; this file defines the form of a page and what it may not show. Links such as
`../training-loop.md` work from both folders, because they have the same parent.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jupytext
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode
from traitlets.config import Config

DOCS = Path(__file__).resolve().parents[1]
NOTEBOOKS = DOCS / "notebooks"
PAGES = DOCS / "tutorials"

#: nbconvert's Markdown template, with outputs in fences and the `alt` of a cell as the text of its pictures.
TEMPLATE = """{% extends 'markdown/index.md.j2' %}
{% macro fence(text) %}
```text
{{ text | strip_ansi | trim('\n') }}
```
{% endmacro %}
{% block stream %}{{ fence(output.text) }}{% endblock stream %}
{% block data_text scoped %}{{ fence(output.data['text/plain']) }}{% endblock data_text %}
{% block data_png %}
![{{ cell.metadata.alt }}]({{ output.metadata.filenames['image/png'] | path2url }})
{% endblock data_png %}
"""
CONFIG = Config(
    {
        "NbConvertBase": {"display_data_priority": ["image/png", "text/plain"]},
        "ExtractOutputPreprocessor": {"extract_output_types": {"image/png"}},
    }
)


class Page(NamedTuple):
    """The text of a page, and {file name: content} of its pictures."""

    text: str
    images: dict[str, bytes]


def execute(source: Path) -> NotebookNode:
    """The notebook of a percent file, executed by a new CPU kernel in an empty folder."""
    notebook = jupytext.read(source)
    environment = {name: value for name, value in os.environ.items() if name not in ("MPLBACKEND", "STOIX_LIKE_FAST")}
    environment["JAX_PLATFORMS"] = "cpu"  # so that the outputs of all pages are comparable
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"  # without XLA's warnings about slow compilation
    scripts = str(Path(sys.executable).parent)  # first, as in an activated environment, so that hints say `python`
    environment["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=None, startup_timeout=600, coalesce_streams=True, resources=where)
        client.execute(env=environment)
    return notebook


def find_noise(notebook: NotebookNode) -> list[str]:
    """Outputs that a page should not show: warnings, progress lines, paths, and pictures without a text."""
    here = {str(Path.home()), str(DOCS.parent), tempfile.gettempdir(), sys.prefix} - {"/"}
    found = []
    for cell, output in _outputs(notebook):
        text = output.get("text", "") + output.get("data", {}).get("text/plain", "")
        if output.get("name") == "stderr":
            found.append(f"a message on stderr: {text.strip()}")
        found += [f"a path of this machine: {path}" for path in sorted(here) if path in text]
        if "<Figure" in text and "image/png" not in output.get("data", {}):
            found.append("a figure that was not drawn: its backend is not loaded")
        if "\r" in text or " at 0x" in text:
            found.append(f"a progress line or an address: {text.strip()}")
        if "image/png" in output.get("data", {}) and not cell.metadata.get("alt"):
            found.append(f'a picture without words: give its cell `# %% alt="..."`: {cell.source.splitlines()[0]}')
    return found


def render(notebook: NotebookNode, name: str, facts: str) -> Page:
    """The page of an executed notebook, with `facts` about its execution in the last line."""
    exporter = MarkdownExporter(config=CONFIG, raw_template=TEMPLATE)
    body, resources = exporter.from_notebook_node(notebook, resources={"unique_key": name})
    header = f"<!-- made by make tutorials from docs/notebooks/{name}.py -->"
    footer = f"---\n\nMade by `make tutorials` from [{name}.py](../notebooks/{name}.py): {facts}."
    text = re.sub(r"\n{3,}(?=```|!\[)", "\n\n", body.strip())
    text = re.sub(r"(?<=\.png\))\n{3,}", "\n\n", text)
    return Page(f"{header}\n\n{text}\n\n{footer}\n", resources["outputs"])


def write(page: Page, name: str, folder: Path) -> None:
    """Writes the page and its pictures into the folder, and removes pictures of an earlier version."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{name}_*.png"):
        if re.fullmatch(r"_\d+_\d+", old.stem.removeprefix(name)):
            old.unlink()
    for file, content in page.images.items():
        (folder / file).write_bytes(content)
    (folder / f"{name}.md").write_text(page.text, encoding="utf-8")


def make(source: Path, folder: Path) -> float:
    """Executes the notebook and writes its page; returns the seconds of processor time, which depend little on load.

    Raises:
        ValueError: an output is not fit for a page.
    """
    before = os.times()
    notebook = execute(source)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    if found := find_noise(notebook):
        raise ValueError(f"{source.name} shows " + "\n".join(found))
    facts = f"{seconds:.0f} seconds of processor time, jax {importlib.metadata.version('jax')}"
    write(render(notebook, source.stem, facts), source.stem, folder)
    return seconds


def _outputs(notebook: NotebookNode) -> list[tuple[NotebookNode, Any]]:
    return [(cell, output) for cell in notebook.cells for output in cell.get("outputs", [])]


def main(argv: list[str]) -> None:
    """Makes the named pages, or all of them."""
    names = sorted(path.stem for path in NOTEBOOKS.glob("*.py"))
    parser = argparse.ArgumentParser(description="Makes pages of docs/tutorials from notebooks of docs/notebooks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names)} (default: all)")
    for name in parser.parse_args(argv).names or names:
        seconds = make(NOTEBOOKS / f"{name}.py", PAGES)
        print(f"docs/tutorials/{name}.md  {seconds:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
