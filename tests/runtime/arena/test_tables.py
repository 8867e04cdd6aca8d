"""Tables of matches, from results that were written by hand."""

import numpy as np
import pytest

from stoix_like.evaluation.contests.matches import MatchResults, summarize
from stoix_like.runtime.arena.tables import match_table


def results(score):
    """Of one opening, by the scores [P] of A in each seat."""
    num_players = len(score)
    outcome = np.zeros((1, num_players, num_players))
    plies, unfinished = np.full((1, num_players), 9), np.zeros((1, num_players), bool)
    return MatchResults(np.array([score]), outcome, plies, np.array([0]), unfinished, np.zeros((1, num_players, 9)))


@pytest.mark.parametrize(
    ("score", "head"), [([1.0, 0.5], ["won", "drawn", "lost"]), ([1.0, 0.5, 0.5], ["won", "between", "lost"])]
)
def test_a_second_place_of_three_is_not_called_a_draw(score, head):
    lines = match_table({"a": summarize(results(score))})
    assert [word for word in lines[0].split() if word in ("won", "drawn", "between", "lost")] == head
