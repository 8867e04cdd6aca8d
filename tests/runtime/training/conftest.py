"""Two finished runs with a checkpoint of every update. Only read or copy them."""

import pytest
from support.scripted_runs import SMALL_PPO_RUN, SMALL_SPO_RUN, command


@pytest.fixture(scope="session")
def ppo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    assert command("train-ppo", **SMALL_PPO_RUN | {"save_dir": folder, "run_name": "ppo"}) == 0
    return folder / "ppo"


@pytest.fixture(scope="session")
def spo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    assert command("train-spo", **SMALL_SPO_RUN | {"save_dir": folder, "run_name": "spo"}) == 0
    return folder / "spo"
