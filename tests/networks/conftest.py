"""Real observations of Maze-v0 and BinPack-v2 in the form the networks receive, batched on axis 0."""

import functools

import jax
import jax.numpy as jnp
import pytest

import stoix_like as sl
from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.networks import build
from stoix_like.types import ActionSpec

BATCH = 6


def _play(task_id, num_steps):
    """Observations after `num_steps` random legal actions from fresh levels."""
    env = sl.make_env(task_id)

    def step(_, carry):
        (state, timestep), key = carry
        step_key, key = jax.random.split(key)
        action = jax.random.categorical(step_key, jnp.where(timestep.observation.action_mask, 0.0, -jnp.inf))
        return jax.vmap(env.step)(state, action), key

    def play(key):
        reset_key, key = jax.random.split(key)
        start = jax.vmap(env.reset)(jax.random.split(reset_key, BATCH))
        return jax.lax.fori_loop(0, num_steps, step, (start, key))[0][1].observation

    return jax.jit(play)(jax.random.key(7))


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
    Parameters, whose initialisation compiles longest, are made once for leaves that change their shapes."""

    @functools.cache
    def prepare(adapter, **leaves):
        observation = binpack if adapter == "binpack" else maze
        example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), observation)
        config = ArchitectureConfig(**({"hidden_dim": 32} | leaves))
        spec = ActionSpec(observation.action_mask.shape[1])
        network = build.make(example, spec, config, adapter=adapter, time_limit=100, platform="cpu")
        shapes = ("shared_torso", "num_layers", "num_heads")
        base = {name: leaves[name] for name in shapes if name in leaves}
        is_base = leaves == base
        params = jax.jit(network.init)(jax.random.key(0), observation) if is_base else prepare(adapter, **base)[1]
        return network, params, jax.jit(network.actor_critic), observation

    return prepare
