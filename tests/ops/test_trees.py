"""Pytree helpers, the accumulator of metrics, and equal actions among particles."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from stoix_like.ops import trees
from stoix_like.ops.groups import action_groups, summed
from stoix_like.types import metric_reduction


def test_where_chooses_rows_of_every_leaf_and_merge_leading_is_row_major():
    condition = jnp.array([True, False])
    a = {"x": jnp.ones((2, 3)), "key": jax.random.split(jax.random.key(0))}
    b = {"x": jnp.zeros((2, 3)), "key": jax.random.split(jax.random.key(1))}
    chosen = trees.where(condition, a, b)
    np.testing.assert_array_equal(chosen["x"], [[1, 1, 1], [0, 0, 0]])
    words = jax.random.key_data(chosen["key"])
    np.testing.assert_array_equal(words[0], jax.random.key_data(a["key"])[0])
    np.testing.assert_array_equal(words[1], jax.random.key_data(b["key"])[1])
    merged = trees.merge_leading({"x": jnp.arange(6).reshape(2, 3)})
    np.testing.assert_array_equal(merged["x"], np.arange(6))


def test_metrics_are_reduced_as_their_suffix_says_and_accumulated_as_by_numpy():
    names = ["a/x_sum", "a/x_count", "a/x_max", "a/x_min", "a/loss", "a/summary"]
    assert [metric_reduction(n) for n in names] == ["sum", "sum", "max", "min", "mean", "mean"]
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
        expected = jax.tree.map(lambda s, o, left=left: o + left * (s - o), start, online)
        jax.tree.map(lambda t, e: np.testing.assert_allclose(t, e, rtol=1e-6), target, expected)
    assert jax.tree.structure(target) == jax.tree.structure(start)


def test_soft_update_is_a_copy_at_one_nothing_at_zero_keeps_the_type_and_equals_optax():
    target = {"w": jnp.array([0.1, 1e-8, 1e8]), "h": jnp.array([0.1, 3.0], jnp.bfloat16)}
    online = {"w": jnp.array([1e6, 0.3, -7.0]), "h": jnp.array([0.7, 5.0], jnp.bfloat16)}
    for tau, expected in [(0.0, target), (1.0, online)]:
        got = trees.soft_update(target, online, jnp.float32(tau))
        jax.tree.map(np.testing.assert_array_equal, got, expected)
        assert got["h"].dtype == jnp.bfloat16
    target, online = (jax.random.normal(k, (50,)) for k in jax.random.split(jax.random.key(3)))
    expected = optax.incremental_update(online, target, 0.005)
    np.testing.assert_allclose(trees.soft_update(target, online, 0.005), expected, rtol=1e-6)


def test_groups_by_hand_and_of_factors_and_their_sums():
    groups = jax.jit(action_groups)(jnp.array([[3, 3, 3, 3], [7, 2, 7, 2], [4, 3, 2, 1], [0, 0, 0, 9]]))
    np.testing.assert_array_equal(groups, [[0, 0, 0, 0], [1, 0, 1, 0], [3, 2, 1, 0], [0, 0, 0, 1]])
    assert groups.dtype == jnp.int32
    # factored actions are equal where every factor is
    factors = jax.random.randint(jax.random.key(12), (50, 7, 2), 0, 3)  # [N, P, F]
    groups = np.asarray(jax.jit(action_groups)(factors))
    flat = np.asarray(3 * factors[..., 0] + factors[..., 1])
    np.testing.assert_array_equal(groups[:, :, None] == groups[:, None], flat[:, :, None] == flat[:, None])
    assert (groups.max(axis=1) + 1 == [len(np.unique(row)) for row in flat]).all()  # without gaps
    # sums by group equal NumPy
    weights = jax.random.uniform(jax.random.key(0), (20, 9))
    groups = jax.random.randint(jax.random.key(1), (20, 9), 0, 4)
    got = jax.jit(summed, static_argnums=2)(weights, groups, 9)
    expected = [np.bincount(g, weights=w, minlength=9) for w, g in zip(np.asarray(weights), groups, strict=True)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_stored_shape_of_a_leaf_is_that_of_its_stored_form_and_traces_nothing(monkeypatch):
    tree = {"x": jnp.ones((2, 3)), "keys": jax.random.split(jax.random.key(0), 4)}
    template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    expected = jax.tree.map(lambda x: (trees.to_stored(x).shape, trees.to_stored(x).dtype), tree)
    for _ in range(2):
        found = jax.tree.map(trees.stored_shape, template)
        assert {name: (leaf.shape, leaf.dtype) for name, leaf in found.items()} == expected
        monkeypatch.setattr(jax, "eval_shape", None)  # of which JAX keeps something at each call


@pytest.mark.parametrize("how", ["vmap", "map"])
def test_seeds_side_by_side_and_one_after_the_other_share_what_all_have(how):
    """Field `own` is stacked, field `shared` is not; the function returns both, and a number."""
    State = collections.namedtuple("State", ["own", "shared"])
    axes = trees.seed_axes(State(0, 0), ("shared",))

    def update(state, factor):
        return State(state.own | {"x": state.own["x"] * factor + state.shared}, state.shared), state.own["x"].sum()

    own = {"none": None, "x": jnp.arange(6.0).reshape(3, 2)}  # as a language model without an output layer has
    mapped = trees.over_seeds(update, how, (axes, None), (axes, 0))
    state, total = jax.jit(mapped)(State(own, jnp.float32(10.0)), jnp.float32(2.0))
    np.testing.assert_array_equal(state.own["x"], 2.0 * np.arange(6.0).reshape(3, 2) + 10.0)
    assert state.shared.shape == ()
    np.testing.assert_array_equal(total, [1.0, 5.0, 9.0])
    loops = str(jax.make_jaxpr(mapped)(State(own, jnp.float32(10.0)), jnp.float32(2.0))).count("scan")
    assert loops == (how == "map")
