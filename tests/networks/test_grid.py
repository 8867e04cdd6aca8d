"""The maze network: what it reads, how far it sees, and what stops it."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.networks import build
from stoix_like.networks.grid import planes
from stoix_like.types import ActionSpec, Observation

Spot = namedtuple("Spot", "row col")


def make(observation, platform="cpu", time_limit=100, **leaves):
    example = jax.tree.map(lambda x: x[0], observation)
    config = ArchitectureConfig(**({"hidden_dim": 32} | leaves))
    return build.make(example, ActionSpec(4), config, adapter="grid", time_limit=time_limit, platform=platform)


def with_steps(observation, steps):
    count = jnp.full_like(observation.agent_view["step_count"], steps)
    return observation._replace(agent_view={**observation.agent_view, "step_count": count})


def test_planes_are_one_hot_and_platforms_share_parameters_and_results(maze, prepared):
    view, shown = maze.agent_view, np.asarray(planes(maze.agent_view))
    assert shown.shape == (6, 10, 10, 3)
    np.testing.assert_array_equal(shown[..., 0], view["walls"])
    for channel, name in ((1, "agent_position"), (2, "target_position")):
        np.testing.assert_array_equal(shown[..., channel].sum((1, 2)), 1.0)
        assert shown[3, int(view[name].row[3]), int(view[name].col[3]), channel] == 1.0
    # platforms share parameters and results
    _, params, forward, maze = prepared("grid")
    other = jax.jit(make(maze, "gpu").actor_critic)(params, maze)
    for a, b in zip(forward(params, maze), other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_step_counts_are_read_as_fractions_of_the_time_limit(prepared):
    _, params, forward, maze = prepared("grid")
    first, last = (forward(params, with_steps(maze, steps)) for steps in (0, 90))
    assert all(jnp.any(a != b) for a, b in zip(first, last, strict=True))
    # Half of a limit of 100 and half of a limit of 50 look the same; without a limit it is rows * columns = 100.
    _, params, _, maze = prepared("grid")
    value = lambda time_limit, steps: jax.jit(make(maze, time_limit=time_limit).critic)(params, with_steps(maze, steps))
    half = value(100, 50)
    assert jnp.array_equal(half, value(50, 25))
    assert jnp.array_equal(half, value(None, 50))


def corridor(agent_column, target_column, length=30):
    """Agents in an open row of a 3-row maze; all else is wall. Legal: up, right, down, left = only right and left."""
    batch = len(agent_column)
    walls = jnp.ones((batch, 3, length), bool).at[:, 1].set(False)
    row = jnp.ones(batch, jnp.int32)
    spot = lambda column: Spot(row, jnp.asarray(column, jnp.int32))
    view = {"walls": walls, "agent_position": spot(agent_column), "target_position": spot(target_column)}
    mask = jnp.tile(jnp.array([[False, True, False, True]]), (batch, 1))
    return Observation({**view, "step_count": jnp.zeros(batch, jnp.int32)}, mask)


def test_depth_and_walls_bound_how_far_a_target_is_felt(key):
    """A target 20 or 22 cells away: told apart after 30 steps, exactly the same after 10 or behind a wall."""
    observation = corridor([2, 2], [22, 24])
    walls = observation.agent_view["walls"].at[:, 1, 12].set(True)
    closed = observation._replace(agent_view={**observation.agent_view, "walls": walls})
    params = jax.jit(make(observation).init)(key, observation)  # depth is no parameter: the steps share their weights
    deep, shallow = (jax.jit(make(observation, num_layers=n).actor) for n in (30, 10))
    for actor, view, differs in ((deep, observation, True), (shallow, observation, False), (deep, closed, False)):
        logits = actor(params, view)
        assert bool(jnp.any(logits[0] != logits[1])) is differs
