"""Pytree helpers and the accumulator of metrics."""

import jax
import jax.numpy as jnp
import numpy as np

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
