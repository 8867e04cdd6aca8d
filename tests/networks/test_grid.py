"""The maze network: what it reads, and that it can learn ways longer than any stack of convolutions sees."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from stoix_like.config import ArchitectureConfig
from stoix_like.networks import build
from stoix_like.networks.grid import planes
from stoix_like.types import ActionSpec, Observation


class Spot(NamedTuple):
    row: Any
    col: Any


def make(observation, platform="cpu", time_limit=100, **leaves):
    example = jax.tree.map(lambda x: x[0], observation)
    config = ArchitectureConfig(**({"hidden_dim": 32} | leaves))
    return build.make(example, ActionSpec(4), config, adapter="grid", time_limit=time_limit, platform=platform)


def with_steps(observation, steps):
    count = jnp.full_like(observation.agent_view["step_count"], steps)
    return observation._replace(agent_view={**observation.agent_view, "step_count": count})


def test_planes_are_one_hot(maze):
    view, shown = maze.agent_view, np.asarray(planes(maze.agent_view))
    assert shown.shape == (6, 10, 10, 3)
    np.testing.assert_array_equal(shown[..., 0], view["walls"])
    for channel, name in ((1, "agent_position"), (2, "target_position")):
        np.testing.assert_array_equal(shown[..., channel].sum((1, 2)), 1.0)
        assert shown[3, int(view[name].row[3]), int(view[name].col[3]), channel] == 1.0


def test_step_fraction_changes_logits_and_value(maze, key):
    network = make(maze)
    params = network.init(key, maze)
    first, last = network.actor_critic(params, maze), network.actor_critic(params, with_steps(maze, 90))
    assert all(jnp.any(a != b) for a, b in zip(first, last, strict=True))


def test_time_limit_scales_the_step_count(maze, key):
    """Half of a limit of 100 and half of a limit of 50 look the same; without a limit it is rows * columns = 100."""
    params = make(maze).init(key, maze)
    half = make(maze, time_limit=100).critic(params, with_steps(maze, 50))
    assert jnp.array_equal(half, make(maze, time_limit=50).critic(params, with_steps(maze, 25)))
    assert jnp.array_equal(half, make(maze, time_limit=None).critic(params, with_steps(maze, 50)))


def test_platforms_share_parameters_and_results(maze, key):
    params = make(maze).init(key, maze)
    for a, b in zip(make(maze).actor_critic(params, maze), make(maze, "gpu").actor_critic(params, maze), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def corridor(agent_column, target_column, length=30):
    """Agents in an open row of a 3-row maze; all else is wall. Legal: up, right, down, left = only right and left."""
    batch = len(agent_column)
    walls = jnp.ones((batch, 3, length), bool).at[:, 1].set(False)
    row = jnp.ones(batch, jnp.int32)
    spot = lambda column: Spot(row, jnp.asarray(column, jnp.int32))
    view = {"walls": walls, "agent_position": spot(agent_column), "target_position": spot(target_column)}
    mask = jnp.tile(jnp.array([[False, True, False, True]]), (batch, 1))
    return Observation({**view, "step_count": jnp.zeros(batch, jnp.int32)}, mask)


def test_learns_which_way_a_far_target_lies(key):
    """Trained on targets up to 8 cells away, right on all targets 9 to 20 away: the way is carried, not memorised."""
    columns = [(a, t) for a in range(30) for t in range(30) if a != t]
    near, far = ([p for p in columns if low <= abs(p[0] - p[1]) <= high] for low, high in ((1, 8), (9, 20)))
    train, test = (corridor(*zip(*pairs, strict=True)) for pairs in (near, far))
    answer = lambda pairs: jnp.array([1 if t > a else 3 for a, t in pairs])
    network = make(train)

    def loss(params):
        chances = jax.nn.log_softmax(network.actor(params, train))
        return -jnp.take_along_axis(chances, answer(near)[:, None], axis=1).mean()

    optimiser = optax.adam(3e-3)

    def step(carry, _):
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    params = network.init(key, train)
    (params, _), _ = jax.jit(lambda c: jax.lax.scan(step, c, None, 60))((params, optimiser.init(params)))
    assert float(loss(params)) < 0.1
    right = jnp.argmax(network.actor(params, test), axis=1) == answer(far)
    assert float(right.mean()) == 1.0
