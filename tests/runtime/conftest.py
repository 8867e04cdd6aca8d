"""Fixtures that several rooms share."""

import pytest


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """The working folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
