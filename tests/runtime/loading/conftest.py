"""A configuration file in the current folder."""

import pytest


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes run.yaml into the current folder, so that messages begin `run.yaml:`."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "run.yaml").write_text(text)
        return "run.yaml"

    return write
