"""The header of a run."""

import pytest

from stoix_like.runtime.training import header


@pytest.mark.parametrize(
    ("evaluated_at", "expected"),
    [(4, "the next evaluation replaces it"), (8, "no evaluation follows; scripts/evaluate.py --level-set scores it")],
)
def test_a_best_on_other_levels_is_replaced_where_an_evaluation_follows(evaluated_at, expected):
    assert header.other_levels_note(evaluated_at, 8) == f"the best so far was scored on other levels: {expected}"
