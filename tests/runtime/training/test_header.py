"""The header of a run."""

import pytest

from stoix_like.config.sections.runs import alphazero_config, ppo_config
from stoix_like.runtime.training import header


@pytest.mark.parametrize(
    ("evaluated_at", "expected"),
    [(4, "the next evaluation replaces it"), (8, "no evaluation follows; scripts/evaluate.py --level-set scores it")],
)
def test_a_best_on_other_levels_is_replaced_where_an_evaluation_follows(evaluated_at, expected):
    assert header.other_levels_note(evaluated_at, 8) == f"the best so far was scored on other levels: {expected}"


def test_whom_games_are_evaluated_against():
    wins = "a win is a return of 1, a draw of 0, a loss of -1"
    config = ppo_config(task_id="connect_four", opponent="MCTS-064")
    assert header.opponent_line(config) == f"evaluated against mcts-64: {wins}"
    config = alphazero_config(task_id="connect_four", anchors="heuristic, random")
    assert header.opponent_line(config) == f"evaluated against heuristic and random: {wins}"
