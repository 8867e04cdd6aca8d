"""Real observations of Maze-v0 and BinPack-v2 in the form the networks receive, batched on axis 0."""

import jax
import jumanji
import pytest

from stoix_like.types import Observation

BATCH = 6


def _observation(raw):
    view = {name: getattr(raw, name) for name in raw._fields if name != "action_mask"}
    return Observation(view, raw.action_mask.reshape(raw.action_mask.shape[0], -1))


def _play(task_id, num_steps):
    """Observations after `num_steps` random legal actions from fresh levels."""
    env = jumanji.make(task_id)

    def one(key):
        reset_key, *keys = jax.random.split(key, num_steps + 1)
        state, timestep = env.reset(reset_key)
        for step_key in keys:
            mask = timestep.observation.action_mask
            flat = jax.random.categorical(step_key, jax.numpy.where(mask.reshape(-1), 0.0, -1e9))
            action = flat if mask.ndim == 1 else jax.numpy.stack(jax.numpy.unravel_index(flat, mask.shape))
            state, timestep = env.step(state, action)
        return timestep.observation

    with jax.numpy_rank_promotion("allow"):
        return _observation(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), BATCH)))


@pytest.fixture(scope="session")
def maze():
    return _play("Maze-v0", 2)


@pytest.fixture(scope="session")
def binpack():
    """After one placed item, so that there are several spaces and one item is out of play."""
    return _play("BinPack-v2", 2)
