"""Every notebook becomes one that Jupyter opens. That it runs is tests/test_notebooks.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_converts(notebook):
    command = [sys.executable, "-m", "jupytext", "--to", "ipynb", "--output", "-", notebook]
    made = json.loads(subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout)
    assert {cell["cell_type"] for cell in made["cells"]} == {"code", "markdown"}
