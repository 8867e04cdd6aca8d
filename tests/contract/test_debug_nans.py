"""Twenty updates of every network family under jax_debug_nans; test_learner.py does the same with all learners.

Looked at is what comes out of the program: no parameter, moment, environment or metric of any update is NaN. What an
operation makes and a mask takes away again within the program is not seen.
"""

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
def test_no_nan_comes_out_of_twenty_updates(task):
    env = sl.make_env(task, kwargs=TASKS[task])
    config = sl.ppo_config(**LEAVES)
    learner = sl.ppo.make(env, sl.make_network(env, config), config)
    state = jax.jit(learner.init)(jax.random.key(0))
    with jax.debug_nans(True):
        state, metrics = jax.jit(lambda s: jax.lax.scan(lambda c, _: learner.update(c), s, None, 20))(state)
        jax.block_until_ready(metrics)
