"""Every notebook of docs/notebooks runs from top to bottom as a script, with the small budgets it has for tests.

tests/integration/test_notebook_kernel.py runs the same files as real notebooks, in a kernel.
"""

import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.py"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch, tmp_path, capsys):
    """Its own assertions hold: one compilation for the sweep, the best possible return in the corridor."""
    monkeypatch.setenv("STOIX_LIKE_FAST", "1")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path), run_name="__main__")
    assert names["FAST"] is True
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []  # a notebook leaves nothing behind


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_in_percent_format(path):
    """The header names jupytext's format, and text and code cells alternate as cells rather than as one script."""
    text = path.read_text()
    assert "format_name: percent" in text
    assert text.count("\n# %%") > 5
    assert "\n# %% [markdown]\n# # " in text
