"""docs/tools/tutorials.py: a notebook becomes a page with what it printed and drew, and noise is refused."""

import runpy

import pytest
from support.marks import full
from support.paths import ROOT

TOOL = ROOT / "docs" / "tools" / "tutorials.py"
NOTEBOOK = """# %% [markdown]
# # A tiny one

# %%
import sys

import matplotlib.pyplot as plt

print("printed", 2 + 3)

# %% alt="A line that rises"
figure, axes = plt.subplots(figsize=(2, 1))
_ = axes.plot([0, 1])

# %%
6 * 7
"""


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(TOOL))


def test_a_notebook_becomes_a_page(tool, tmp_path):
    (tmp_path / "tiny.py").write_text(NOTEBOOK)
    pages = tmp_path / "pages"
    pages.mkdir()
    for old in ("tiny_9_0.png", "tiny_too_9_0.png"):
        (pages / old).write_bytes(b"")
    tool["make"](tmp_path / "tiny.py", pages)
    page = (pages / "tiny.md").read_text()
    assert page.startswith("<!-- made by make tutorials from docs/notebooks/tiny.py -->\n\n# A tiny one\n")
    assert '```python\nimport sys\n\nimport matplotlib.pyplot as plt\n\nprint("printed", 2 + 3)\n```' in page
    assert "```text\nprinted 5\n```" in page
    assert "```text\n42\n```" in page
    assert "![A line that rises](tiny_2_0.png)" in page
    assert (pages / "tiny_2_0.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in pages.iterdir()) == ["tiny.md", "tiny_2_0.png", "tiny_too_9_0.png"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        full("import warnings; warnings.warn('mind')", "stderr"),
        ("import os; print(os.getcwd())", "path of this machine"),
        full("print('1 %', end='\\r')", "progress line"),
        full("object()", "address"),
        full("plt.plot([0, 1]);", "picture without words"),
        ("assert 1 + 1 == 3", "AssertionError"),
    ],
)
def test_noise_and_notebooks_that_fail_are_refused(tool, line, message, tmp_path):
    (tmp_path / "noisy.py").write_text(f"# %%\nimport matplotlib.pyplot as plt\n\n# %%\n{line}\n")
    with pytest.raises(Exception if "assert" in line else ValueError, match=message):
        tool["make"](tmp_path / "noisy.py", tmp_path / "pages")
    assert not (tmp_path / "pages").exists()
