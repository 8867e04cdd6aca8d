"""The incumbent plan by hand: when it is replaced, what it promises, and how it is used up."""

import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.search.particles import Paths
from stoix_like.search.plan import Plan, after_step, better_plan, no_plan, returns_to_go

#: Two environments, three particles, four steps. Finished: (0, 0) after two steps, (0, 2) after three, (1, 1) at last.
ACTIONS = jnp.array([[[1, 2, 0, 0], [3, 3, 3, 3], [4, 5, 6, 0]], [[7, 7, 7, 7], [8, 9, 10, 11], [2, 2, 2, 2]]])
REWARDS = jnp.array(
    [
        [[1.0, 2.0, 0.0, 0.0], [9.0, 9.0, 9.0, 9.0], [0.0, 1.0, 4.0, 0.0]],
        [[5.0, 5.0, 5.0, 5.0], [-1.0, -1.0, -1.0, -1.0], [6.0, 6.0, 6.0, 6.0]],
    ]
)
PATHS = Paths(
    ACTIONS, REWARDS, jnp.array([[2, 4, 3], [4, 4, 4]]), jnp.array([[True, False, True], [False, True, False]])
)


EMPTY = no_plan(2, 4, ())


def as_lists(plan):
    return [[np.asarray(x)[i].tolist() for x in plan] for i in range(plan.remaining.shape[0])]


def test_returns_to_go_by_hand_and_a_step_that_uses_up_one_action():
    found = returns_to_go(jnp.array([[1.0, 2.0, 4.0], [0.0, 0.0, 8.0]]), 0.5)
    np.testing.assert_array_equal(found, [[3.0, 4.0, 4.0], [2.0, 4.0, 8.0]])
    plan = after_step(better_plan(EMPTY, PATHS, 1.0))
    assert plan.remaining.tolist() == [2, 3]
    assert plan.actions[:, :2].tolist() == [[5, 6], [9, 10]]
    np.testing.assert_array_equal(plan.returns[:, 0], [5.0, -3.0])
    for _ in range(5):
        plan = after_step(plan)
    assert plan.remaining.tolist() == [0, 0]
    actions = jnp.stack([ACTIONS, -ACTIONS], axis=-1)  # [N, P, H, F]
    plan = better_plan(no_plan(2, 4, (2,)), PATHS._replace(actions=actions), 1.0)
    assert plan.actions[0].tolist() == [[4, -4], [5, -5], [6, -6], [0, 0]]
    assert after_step(plan).actions[1, 0].tolist() == [9, -9]


def test_the_best_finished_path_becomes_the_plan():
    """Unfinished ones promise nothing, whatever they have earned; a plan that loses is a plan."""
    plan = better_plan(EMPTY, PATHS, 1.0)
    assert as_lists(plan) == [[[4, 5, 6, 0], [5.0, 5.0, 4.0, 0.0], 3], [[8, 9, 10, 11], [-4.0, -3.0, -2.0, -1.0], 4]]
    # the discount decides which path is best
    plan = better_plan(EMPTY, PATHS, 0.5)  # 1 + 2 / 2 against 1 / 2 + 4 / 4
    assert as_lists(plan)[0] == [[1, 2, 0, 0], [2.0, 2.0, 0.0, 0.0], 2]
    # What is left in its fields says nothing: any finished path is better.
    spent = Plan(jnp.full((2, 4), 77), jnp.full((2, 4), 1e9), jnp.array([0, 0]))
    assert as_lists(better_plan(spent, PATHS, 1.0)) == as_lists(better_plan(EMPTY, PATHS, 1.0))
    # without a finished path there is no plan
    plan = better_plan(EMPTY, PATHS._replace(is_finished=jnp.zeros((2, 3), bool)), 1.0)
    assert plan.remaining.tolist() == [0, 0]


@pytest.mark.parametrize(("known", "is_replaced"), [(4.9, True), (5.0, False), (5.1, False)])
def test_a_plan_is_replaced_only_by_a_better_one(known, is_replaced):
    old = Plan(jnp.full((2, 4), 77), jnp.full((2, 4), known), jnp.array([2, 2]))
    plan = better_plan(old, PATHS, 1.0)
    assert (int(plan.actions[0, 0]), int(plan.remaining[0])) == ((4, 3) if is_replaced else (77, 2))
    assert (int(plan.actions[1, 0]), int(plan.remaining[1])) == (77, 2)  # each environment for itself
