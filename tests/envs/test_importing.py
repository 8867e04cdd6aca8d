"""Importing Jumanji inside IPython leaves IPython as it was."""

import subprocess
import sys

import pytest
from support.marks import full

INSIDE_IPYTHON = """
import builtins, sys, types
builtins.__IPYTHON__ = True
asked = []
shell = types.SimpleNamespace(run_line_magic=lambda *magic: asked.append(magic))
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
{statement}
print(asked, builtins.__IPYTHON__)
"""
OURS = 'import stoix_like; stoix_like.make_env("Maze-v0")'
THEIRS = "import jumanji"
CASES = {OURS: "[] True", THEIRS: "[('matplotlib', 'ipympl')] True"}


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        pytest.param(OURS, CASES[OURS], id="by making an environment"),
        full(THEIRS, CASES[THEIRS], id="directly"),
    ],
)
def test_the_import_asks_for_no_plotting_backend(statement, printed):
    """The second case shows that the first can fail: Jumanji itself does ask."""
    program = [sys.executable, "-c", INSIDE_IPYTHON.format(statement=statement)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == printed
