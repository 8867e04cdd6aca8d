"""Real observations of Maze-v0 and BinPack-v2 in the form the networks receive, batched on axis 0."""

import functools
import warnings

import jax
import jumanji
import pytest

from stoix_like.config.sections import ArchitectureConfig
from stoix_like.networks import build
from stoix_like.types import ActionSpec, Observation

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

    with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # jumanji's own BinPack writes floats into integer arrays
        return _observation(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), BATCH)))


@pytest.fixture(scope="session")
def maze():
    return _play("Maze-v0", 2)


@pytest.fixture(scope="session")
def binpack():
    """After one placed item, so that there are several spaces and one item is out of play."""
    return _play("BinPack-v2", 2)


@pytest.fixture(scope="session")
def prepared(maze, binpack):
    """(adapter, **leaves) -> (network, params, jitted actor_critic, observation); each combination compiles once.

    Types and heads change no parameter, so parameters are made once per adapter, sharing and depth: orthogonal
    initialisation is most of the compile time.
    """

    @functools.cache
    def prepare(adapter, **leaves):
        observation = binpack if adapter == "binpack" else maze
        example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), observation)
        config = ArchitectureConfig(**({"hidden_dim": 32} | leaves))
        spec = ActionSpec(observation.action_mask.shape[1])
        network = build.make(example, spec, config, adapter=adapter, time_limit=100, platform="cpu")
        base = {name: leaves[name] for name in ("shared_torso", "num_layers") if name in leaves}
        is_base = leaves == base
        params = jax.jit(network.init)(jax.random.key(0), observation) if is_base else prepare(adapter, **base)[1]
        return network, params, jax.jit(network.actor_critic), observation

    return prepare
