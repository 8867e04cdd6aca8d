"""A configuration file in the current folder."""

import pytest


@pytest.fixture
def file(inside):
    """Writes run.yaml into the current folder, so that messages begin `run.yaml:`."""

    def write(text):
        (inside / "run.yaml").write_text(text)
        return "run.yaml"

    return write
