"""A few updates of RingRift's presets in small: packed positions, policies over the legal actions, values by seat."""

import jax
import numpy as np
import pytest
from support.configs import SMALL_ALPHAZERO

import stoix_like as sl
from stoix_like.runtime.runs.build import build

SMALL = SMALL_ALPHAZERO | {
    "num_envs": 2,
    "rollout_length": 64,
    "num_simulations": 2,
    "max_considered_actions": 2,
    "max_game_plies": 192,
    "random_plies": 40,
    "replay_buffer_size": 512,
    "batch_size": 16,
    "hidden_dim": 8,
    "num_layers": 1,
    "max_reuse": 1.0,
}


@pytest.mark.full
@pytest.mark.parametrize(("task_id", "num_players"), [("hex8:2", 2), ("square8:4", 4)])
def test_updates_play_and_learn(task_id, num_players):
    run = build("alphazero", sl.alphazero_config(task_id=task_id, **SMALL))
    state = jax.jit(run.learner.init)(jax.random.key(0))
    before = jax.device_get(state.params.online)
    update = jax.jit(run.learner.update)
    rows = []
    for _ in range(4):
        state, metrics = update(state)
        rows.append(jax.device_get(metrics))
    assert sum(row["trainer/gradient_steps_sum"] for row in rows) > 0
    assert all(np.isfinite(value) or "length_m" in name for row in rows for name, value in row.items())
    assert sum(row["trainer/actions_left_out_sum"] for row in rows) == 0
    changed = [np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (before, state.params.online)), strict=True)]
    assert all(changed)
    held = jax.tree.map(lambda leaf: np.asarray(leaf)[0, : int(state.replay.size[0])], state.replay.samples)
    assert len(held.outcome) > 0
    assert held.outcome.shape[-1] == num_players
    assert held.observation.planes.dtype == np.uint8
    np.testing.assert_allclose(held.policy.astype(np.float32).sum(-1), 1.0, atol=2e-3)
