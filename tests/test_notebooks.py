"""How the notebooks of docs/notebooks are written. tests/integration/test_notebook_kernel.py runs them."""

import pytest
from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
assert NOTEBOOKS, "there are no notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_in_percent_format(path):
    """The header names jupytext's format, and text and code cells alternate as cells rather than as one script."""
    text = path.read_text()
    assert "format_name: percent" in text
    assert text.count("\n# %%") > 5
    assert "\n# %% [markdown]\n# # " in text
