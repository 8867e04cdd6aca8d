"""Adam per network, with clips and rates apart; minibatches with every row once, the same whatever the devices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from stoix_like.algorithms import minibatch
from stoix_like.algorithms.optimizer import ADAM_EPS, apply_gradients, init_optimizer
from stoix_like.types import NetworkParams


class Rates(NamedTuple):
    actor_lr: float = 0.1
    critic_lr: float = 0.01
    max_grad_norm: float = 1.0


def one_step(gradients, rates=None, factor=1.0):
    params = NetworkParams(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    rates = rates or Rates()
    return apply_gradients(params, init_optimizer(params), gradients, rates, jnp.float32(factor))[0]


def test_first_step_is_the_rate_times_the_sign_and_clips_are_apart_but_for_a_shared_torso():
    gradients = NetworkParams(jnp.zeros(2), jnp.array([0.3, -0.4]), jnp.array([-0.6, 0.0]))
    after = one_step(gradients)
    expected = -0.1 * np.array([0.3, -0.4]) / (np.abs([0.3, -0.4]) + ADAM_EPS)
    np.testing.assert_allclose(after.actor, expected, rtol=1e-5)
    np.testing.assert_allclose(after.critic, [0.01, 0.0], rtol=1e-4)
    small, huge = jnp.array([1e-5, 0.0]), jnp.array([1e3, 1e3])
    after = one_step(NetworkParams(jnp.zeros(2), small, huge))
    # eps = 1e-5 halves a step of gradient 1e-5; a joint norm would have shrunk it to nothing.
    np.testing.assert_allclose(after.actor[0], -0.05, rtol=1e-4)
    gradients = NetworkParams(jnp.ones(2), jnp.ones(2), jnp.ones(2))
    after = one_step(gradients, factor=0.0)
    assert all(float(jnp.abs(x).max()) == 0.0 for x in after)
    gradients = NetworkParams(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]), jnp.array([1.0, 0.0]))
    after = one_step(gradients, Rates(actor_lr=0.1, critic_lr=5.0))
    adam = optax.scale_by_adam(eps=ADAM_EPS)
    clipped = (gradients.torso / 5.0, gradients.actor / 5.0)  # their joint norm is 5
    changes, _ = adam.update(clipped, adam.init(clipped))
    np.testing.assert_allclose(after.torso, -0.1 * changes[0], rtol=1e-6)
    np.testing.assert_allclose(after.actor, -0.1 * changes[1], rtol=1e-6)


def test_weight_decay_shrinks_kernels_apart_from_the_gradient_as_adamw_does():
    """By hand: a kernel of 2 without gradient loses 0.1 * 0.5 * 0.2 * 2 = 0.02; a bias stays."""
    kernel, bias = jnp.full((1, 2), 2.0), jnp.full(2, 2.0)
    params = NetworkParams((kernel, bias), jnp.full((2, 1), 3.0), jnp.full((1, 1), 4.0))
    still = jax.tree.map(jnp.zeros_like, params)
    given = params, init_optimizer(params), still, Rates(), jnp.float32(0.5)
    after, _ = apply_gradients(*given, jnp.float32(0.2))
    np.testing.assert_allclose(after.torso[0], [[1.98, 1.98]], rtol=1e-6)
    np.testing.assert_array_equal(after.torso[1], bias)
    np.testing.assert_allclose(after.critic, [[4.0 - 0.01 * 0.5 * 0.2 * 4.0]], rtol=1e-6)
    after, _ = apply_gradients(*given, jnp.float32(0.2), NetworkParams((False, True), False, False))
    np.testing.assert_array_equal(after.torso[0], kernel)
    np.testing.assert_allclose(after.torso[1], [1.98, 1.98], rtol=1e-6)
    sloped = jax.tree.map(lambda x: 0.1 * jnp.ones_like(x), params)
    after, _ = apply_gradients(params, init_optimizer(params), sloped, Rates(), jnp.float32(1.0), jnp.float32(0.2))
    adamw = optax.adamw(0.1, eps=ADAM_EPS, weight_decay=0.2, mask=lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree))
    policy = (params.torso, params.actor)
    changes, _ = adamw.update((sloped.torso, sloped.actor), adamw.init(policy), policy)
    expected = optax.apply_updates(policy, changes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), (after.torso, after.actor), expected)


def test_no_weight_decay_changes_no_bit():
    params = NetworkParams(*(jnp.linspace(-1.0, 1.0, 6).reshape(2, 3) for _ in range(3)))
    slopes = jax.tree.map(jnp.sin, params)
    given = params, init_optimizer(params), slopes, Rates(), jnp.float32(1.0)
    jax.tree.map(np.testing.assert_array_equal, apply_gradients(*given), apply_gradients(*given, jnp.float32(0.0)))


@pytest.mark.parametrize(
    ("sizes", "shards"),
    [((64, 128, 16), 8), ((12, 10, 3), 4), ((6, 4, 2), 2), ((3, 5, 5), 1), ((8, 1, 8), 1), ((8, 2, 4), 4)],
)
def test_number_of_shards_divides_environments_and_minibatches(sizes, shards):
    num_envs, length, num_minibatches = sizes
    assert minibatch.num_logical_shards(num_envs, length, num_minibatches) == shards
    assert num_envs % shards == 0
    assert (num_envs * length // shards) % num_minibatches == 0


def epoch_rows(num_envs, length, num_minibatches, key):
    """The (time, environment) tags of every minibatch of one epoch, [M, B, 2]."""
    shards = minibatch.num_logical_shards(num_envs, length, num_minibatches)
    tags = jnp.stack(jnp.meshgrid(jnp.arange(length), jnp.arange(num_envs), indexing="ij"), axis=-1)  # [T, N, 2]
    sharded = minibatch.shard_rows(tags, shards)
    indices = minibatch.shuffled_indices(key, shards, sharded.shape[1], num_minibatches)
    return np.asarray(jax.vmap(lambda i: minibatch.take_minibatch(sharded, i))(indices))


def test_an_epoch_holds_every_row_once_as_many_of_each_shard_whole_and_in_an_order_of_its_key(key):
    rows = epoch_rows(16, 6, 4, key)
    assert rows.shape == (4, 24, 2)
    assert {tuple(r) for r in rows.reshape(-1, 2)} == {(t, n) for t in range(6) for n in range(16)}
    for one in rows:
        counts = np.bincount(one[:, 1] // 2, minlength=8)  # 8 shards of two environments
        assert (counts == 3).all()
    np.testing.assert_array_equal(rows, epoch_rows(16, 6, 4, key))
    assert (rows != epoch_rows(16, 6, 4, jax.random.key(1))).any()
    # leaves of a row stay together
    tags = jnp.arange(24).reshape(4, 6)
    tree = {"a": tags, "b": 10.0 * tags[..., None] + jnp.arange(3.0)[None, None]}
    sharded = minibatch.shard_rows(tree, 2)
    taken = minibatch.take_minibatch(sharded, minibatch.shuffled_indices(key, 2, 12, 3)[1])
    np.testing.assert_array_equal(taken["b"][:, 0], 10.0 * taken["a"])
