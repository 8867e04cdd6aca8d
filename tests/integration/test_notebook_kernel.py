"""The notebooks as their readers use them: converted by jupytext and run by nbmake in a fresh kernel, with the small
budgets that they have for tests. Their own assertions hold: one compilation for a sweep, the best return in a corridor.
"""

import os
import subprocess
import sys

import pytest
from support.marks import quick
from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
assert NOTEBOOKS, "there are no notebooks"


def run(*command, folder):
    """Standard output of a Python module that must succeed."""
    environment = os.environ | {"STOIX_LIKE_FAST": "1", "JAX_PLATFORMS": "cpu"}
    call = [sys.executable, "-m", *map(str, command)]
    done = subprocess.run(call, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    "notebook", quick(NOTEBOOKS, [p for p in NOTEBOOKS if p.stem == "compare_runs"]), ids=lambda path: path.stem
)
def test_a_notebook_runs_in_a_kernel(notebook, tmp_path):
    target = tmp_path / f"{notebook.stem}.ipynb"
    run("jupytext", "--to", "ipynb", "--output", target, notebook, folder=tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # so that this project's own settings do not apply
    output = run("pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "--nbmake-timeout=600", target, folder=tmp_path)
    assert "1 passed" in output
    assert {path.name for path in tmp_path.iterdir()} == {target.name, "pytest.ini"}  # it leaves nothing behind


@pytest.mark.full
def test_a_failing_notebook_is_seen(tmp_path):
    """The check above can fail: one false assertion is enough."""
    (tmp_path / "wrong.py").write_text("# %%\nassert 1 + 1 == 3\n")
    run("jupytext", "--to", "ipynb", "wrong.py", folder=tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with pytest.raises(AssertionError, match="1 failed"):
        run("pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "wrong.ipynb", folder=tmp_path)
