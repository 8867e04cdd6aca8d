"""AlphaZero whose longer games are cut: resumed, with several seeds and on several devices it learns the same."""

import shutil

import numpy as np
import pytest
from support.scripted_runs import ALPHAZERO_BASE, assert_close, assert_same_run, cut_back, flags, rows_of, state_of

from stoix_like.runtime.runs import saved

CUT = ALPHAZERO_BASE | {"max_game_plies": 7, "keep_last_n": 100}

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("scripts")]  # in an empty folder


@pytest.fixture(scope="module")
def whole(train_here, tmp_path_factory):
    """The run that others are compared with, some of whose games were cut."""
    folder = tmp_path_factory.mktemp("cut")
    assert train_here(**CUT | {"save_dir": folder}, run_name="whole", algorithm="alphazero") == 0
    rows = rows_of(folder / "whole", "ACTOR")
    assert 0 < np.mean([row["actor/truncated"] for row in rows if row["actor/episodes"]]) < 1
    assert state_of(folder / "whole").self_play.history.player.shape == (8, 7)
    return folder / "whole"


def test_a_resumed_run_ends_the_same(whole, train_here):
    """From a checkpoint with games on their way."""
    shutil.copytree(whole, "resumed")
    assert (saved.load_run(str(cut_back("resumed", 5)), "latest").state.self_play.recorded > 0).any()
    assert train_here("--resume", "resumed", algorithm="alphazero") == 0
    assert_same_run(whole, "resumed")


def test_seeds_side_by_side_are_separate_runs(whole, train_here):
    """The first is that of the whole run."""
    assert train_here(**CUT, run_name="together", num_seeds=2, algorithm="alphazero") == 0
    assert train_here(**CUT, run_name="second", seed=1, algorithm="alphazero") == 0
    together = saved.load_run("together", "latest")
    for index, run in enumerate((whole, "second")):
        # Batched matrix products round differently; one other action would differ far more.
        alone = saved.load_run(str(run), "latest").params
        assert_close(alone, together.seed_params(index), rtol=1e-3, atol=1e-4)
        for name in ("actor/truncated", "actor/episodes", "actor/episode_length_mean"):
            own = [row[name] for row in rows_of(run, "ACTOR") if name in row]
            assert own == [row[name] for row in rows_of("together", "ACTOR") if name in row and row["seed"] == index]
            assert own


def test_four_devices_give_what_one_gives(whole, scripts):
    scripts.run("train_alphazero", *flags(**CUT, run_name="four", num_devices=4, device_type="cpu"))
    assert_close(state_of(whole), state_of("four"))
    found = [[row["actor/truncated"] for row in rows_of(run, "ACTOR")] for run in (whole, "four")]
    assert found[0] == found[1]
