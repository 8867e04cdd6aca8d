"""The header of a run."""

from types import SimpleNamespace

import pytest

from stoix_like import ppo_config
from stoix_like.runtime.training import header


@pytest.mark.parametrize(
    ("evaluated_at", "expected"),
    [(4, "the next evaluation replaces it"), (8, "no evaluation follows; scripts/evaluate.py --level-set scores it")],
)
def test_a_best_on_other_levels_is_replaced_where_an_evaluation_follows(evaluated_at, expected):
    resumed = SimpleNamespace(update=8, host={"evaluated_at": evaluated_at})
    plan = SimpleNamespace(config=ppo_config(num_updates=8), resumed=resumed)
    assert header.other_levels_note(plan) == f"the best so far was scored on other levels: {expected}"
