"""Two updates of every network family under jax_debug_nans: no operation makes a NaN, even one masked later."""

import jax
import pytest

import stoix_like as sl

LEAVES = {"num_envs": 4, "rollout_length": 8, "num_minibatches": 2, "epochs": 1, "hidden_dim": 16}
TASKS = {
    "BinPack-v2": {"max_num_items": 5, "max_num_ems": 10, "obs_num_ems": 10},
    "Maze-v0": {"num_rows": 5, "num_cols": 5},
    "Knapsack-v1": {"num_items": 6},
}


@pytest.mark.parametrize("task", TASKS)
def test_two_updates_make_no_nan(task):
    env = sl.make_env(task, kwargs=TASKS[task])
    config = sl.ppo_config(**LEAVES)
    learner = sl.ppo.make(env, sl.make_network(env, config), config)
    state = jax.jit(learner.init)(jax.random.key(0))
    with jax.debug_nans(True):
        state, metrics = jax.jit(lambda s: jax.lax.scan(lambda c, _: learner.update(c), s, None, 2))(state)
        jax.block_until_ready(metrics)
