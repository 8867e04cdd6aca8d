"""The exported policies that the tests of this folder share."""

import pytest
from support.exports import CASES, exported
from support.marks import quick


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(params=quick(CASES, ("spo_maze", "ppo_binpack", "ppo_factored")))
def case(request, folder):
    return exported(request.param, folder)


@pytest.fixture
def maze(folder):
    return exported("ppo_maze", folder)
