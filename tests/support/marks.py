"""How a parameter says that another one stands for it: it is played by `make test-full` only."""

import pytest


def full(*values, id=None):
    return pytest.param(*values, id=id, marks=pytest.mark.full)


def quick(every, representatives):
    """All of `every`, each a single value, those marked full that are not among the representatives."""
    return [pytest.param(value, marks=() if value in representatives else pytest.mark.full) for value in every]
