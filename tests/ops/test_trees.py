"""Pytree helpers and the accumulator of metrics."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from stoix_like.ops import trees
from stoix_like.types import metric_reduction


def test_where_chooses_rows_of_every_leaf_and_of_keys():
    condition = jnp.array([True, False])
    a = {"x": jnp.ones((2, 3)), "key": jax.random.split(jax.random.key(0))}
    b = {"x": jnp.zeros((2, 3)), "key": jax.random.split(jax.random.key(1))}
    chosen = trees.where(condition, a, b)
    np.testing.assert_array_equal(chosen["x"], [[1, 1, 1], [0, 0, 0]])
    words = jax.random.key_data(chosen["key"])
    np.testing.assert_array_equal(words[0], jax.random.key_data(a["key"])[0])
    np.testing.assert_array_equal(words[1], jax.random.key_data(b["key"])[1])


def test_merge_leading_is_row_major():
    merged = trees.merge_leading({"x": jnp.arange(6).reshape(2, 3)})
    np.testing.assert_array_equal(merged["x"], np.arange(6))


def test_metric_reduction_is_read_from_the_suffix():
    names = ["a/x_sum", "a/x_count", "a/x_max", "a/x_min", "a/loss", "a/summary"]
    assert [metric_reduction(n) for n in names] == ["sum", "sum", "max", "min", "mean", "mean"]


def test_accumulating_equals_numpy():
    rows = [
        {"l": 1.0, "n_sum": 2.0, "m_max": 3.0, "m_min": 3.0},
        {"l": 3.0, "n_sum": 5.0, "m_max": -1.0, "m_min": -1.0},
    ]
    rows = [{k: jnp.float32(v) for k, v in row.items()} for row in rows]
    total = trees.empty_metrics(rows[0])
    assert total["m_max"] == -jnp.inf
    for row in rows:
        total = trees.accumulate_metrics(total, row)
    assert {k: float(v) for k, v in total.items()} == {"l": 4.0, "n_sum": 7.0, "m_max": 3.0, "m_min": -1.0}


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.3, 1.0])
def test_soft_update_follows_its_closed_form(tau):
    # After k updates towards fixed weights: online + (1 - tau)^k (start - online).
    start = {"w": jnp.array([[1.0, -2.0]]), "b": (jnp.float32(4.0),)}
    online = {"w": jnp.array([[3.0, 0.5]]), "b": (jnp.float32(-1.0),)}
    update = jax.jit(trees.soft_update)
    target = start
    for k in range(1, 8):
        target = update(target, online, tau)
        left = (1 - tau) ** k
        jax.tree.map(
            lambda t, s, o, left=left: np.testing.assert_allclose(t, o + left * (s - o), rtol=1e-6),
            target,
            start,
            online,
        )
    assert jax.tree.structure(target) == jax.tree.structure(start)


def test_soft_update_is_a_copy_at_one_nothing_at_zero_and_keeps_the_type():
    target = {"w": jnp.array([0.1, 1e-8, 1e8]), "h": jnp.array([0.1, 3.0], jnp.bfloat16)}
    online = {"w": jnp.array([1e6, 0.3, -7.0]), "h": jnp.array([0.7, 5.0], jnp.bfloat16)}
    for tau, expected in [(0.0, target), (1.0, online)]:
        got = trees.soft_update(target, online, jnp.float32(tau))
        jax.tree.map(np.testing.assert_array_equal, got, expected)
        assert got["h"].dtype == jnp.bfloat16


def test_soft_update_equals_optax():
    target, online = (jax.random.normal(k, (50,)) for k in jax.random.split(jax.random.key(3)))
    expected = optax.incremental_update(online, target, 0.005)
    np.testing.assert_allclose(trees.soft_update(target, online, 0.005), expected, rtol=1e-6)
