"""The table of an evaluation, for any size of the numbers and any number of episodes."""

import math

import numpy as np
import pytest

from stoix_like.runtime.evaluators.saved_run import table_text
from stoix_like.runtime.evaluators.scores import Scores


@pytest.mark.parametrize(
    ("mean", "low", "cells"),
    [
        (0.5, 0.25, ["0.5000", "[0.2500, 0.5000]", "0.5000", "0.5000", "8"]),
        (1e5, 1e5, ["100000.0000", "[100000.0000, 100000.0000]", "100000.0000", "100000.0000", "8"]),
        (0.5, math.nan, ["0.5000", "–", "0.5000", "0.5000", "8"]),
    ],
)
def test_the_cells_of_an_evaluation_stand_apart(mean, low, cells):
    row = {"episodes": 8, "mean": mean, "low": low, "high": mean, "min": mean, "max": mean}
    over = {"episode_return": {"iqm": mean, "low": low, "high": mean}}
    text = table_text({"seeds": {"0": {"episode_return": row}}, "updates": {"0": 4}, "over_seeds": over})
    _, line, iqm = (row.split("  ") for row in text.splitlines())
    assert [cell.strip() for cell in line if cell.strip()] == ["0", "4", "episode_return", *cells]
    assert [cell.strip() for cell in iqm if cell.strip()] == ["IQM", "episode_return", *cells[:2], "(over 1 seeds)"]


@pytest.mark.parametrize(("cut", "begins"), [(None, None), ([0, 0], None), ([1, 0], "1 of 2"), ([1, 1], "2 of 2")])
def test_episodes_that_were_cut_are_said(cut, begins):
    results = {"episode_return": np.ones((1, 2))} | ({} if cut is None else {"unfinished": np.array([cut])})
    warning = Scores(results, None, 1.0, None).cut_warning()
    assert warning is None if begins is None else warning.startswith(f"{begins} episodes of the evaluation were cut")
