"""Every notebook runs from top to bottom, as the script it is and converted by jupytext, with small budgets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
EXECUTE = ["--to", "ipynb", "--output", "-"]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    environment = os.environ | {"STOIX_LIKE_FAST": "1"}
    subprocess.run([sys.executable, notebook], check=True, timeout=900, env=environment, cwd=tmp_path)
    converted = subprocess.run(
        [sys.executable, "-m", "jupytext", *EXECUTE, notebook], check=True, timeout=60, capture_output=True, text=True
    ).stdout
    assert '"cell_type": "code"' in converted
