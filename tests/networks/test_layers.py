"""Layers, orthogonal initialisation and propagation against numbers by hand, a plain loop, and JAX's own QR."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import export
from support.asserts import assert_same_bits

from stoix_like.networks import propagation
from stoix_like.networks.layers import AttentionSublayer, Conv3x3, Dense, ProductLayerNorm, masked_attention
from stoix_like.networks.orthogonal import orthogonal, orthonormal_columns
from stoix_like.networks.propagation import neighbours, propagate


def test_attention_equals_a_loop_and_ignores_masked_keys(key):
    k = jax.random.split(key, 5)
    query = jax.random.normal(k[0], (2, 3, 2, 4))
    keys, values = jax.random.normal(k[1], (2, 5, 2, 4)), jax.random.normal(k[2], (2, 5, 2, 4))
    mask = jax.random.bernoulli(k[3], 0.5, (2, 3, 5)).at[0, 1].set(False)
    bias = jax.random.normal(k[4], (2, 2, 3, 5))
    out = np.asarray(jax.jit(masked_attention)(query, keys, values, mask, bias))
    for b, t, h in np.ndindex(2, 3, 2):
        kept = np.flatnonzero(np.asarray(mask)[b, t])
        scores = np.asarray([float(query[b, t, h] @ keys[b, s, h]) / 2.0 + float(bias[b, h, t, s]) for s in kept])
        weights = np.exp(scores) / np.exp(scores).sum() if len(kept) else scores
        expected = sum((w * np.asarray(values[b, s, h]) for w, s in zip(weights, kept, strict=True)), np.zeros(4))
        # float32 sums of five terms of order one
        np.testing.assert_allclose(out[b, t, h], expected, atol=2e-6)
    assert np.all(out[0, 1] == 0.0)


def test_layer_norm_and_its_gradient_are_those_of_flax(key):
    k = jax.random.split(key, 4)
    tokens, weights = 3.0 + 2.0 * jax.random.normal(k[0], (4, 7, 8)), jax.random.normal(k[1], (4, 7, 8))
    params = {"scale": jax.random.normal(k[2], (8,)), "bias": jax.random.normal(k[3], (8,))}

    def outcome(layer):
        loss = lambda params, tokens: (layer.apply({"params": params}, tokens) * weights).sum()
        return layer.apply({"params": params}, tokens), jax.grad(loss, argnums=(0, 1))(params, tokens)

    ours, theirs = (jax.jit(lambda layer=layer: outcome(layer))() for layer in (ProductLayerNorm(), nn.LayerNorm()))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, theirs)
    made = jax.eval_shape(lambda: [layer.init(key, tokens)["params"] for layer in (ProductLayerNorm(), nn.LayerNorm())])
    assert made[0] == made[1]
    assert ProductLayerNorm(jnp.bfloat16).apply({"params": params}, tokens).dtype == jnp.bfloat16


def test_fully_masked_attention_leaves_tokens_and_has_finite_gradients(key):
    tokens = jax.random.normal(key, (2, 4, 8))
    context = jax.random.normal(key, (2, 3, 8))
    module, nothing, bias = AttentionSublayer(2), jnp.zeros((2, 4, 3), bool), jnp.ones((2, 2, 4, 3))
    params = jax.jit(module.init)(key, tokens, context, nothing, bias)

    def total(params):
        out = module.apply(params, tokens, context, nothing, bias)
        return out.sum(), out

    gradient, out = jax.jit(jax.grad(total, has_aux=True))(params)
    assert jnp.array_equal(out, tokens)
    assert all(jnp.all(leaf == 0.0) for leaf in jax.tree.leaves(gradient))


def test_both_convolutions_agree_in_value_and_gradient(key):
    shape = (3, 9, 7, 5)
    x = jax.random.normal(key, shape)
    target = jax.random.normal(jax.random.key(1), (*shape[:3], 6))
    params = jax.jit(Conv3x3(6, "cpu").init)(key, x)
    assert params["params"]["kernel"].shape == (3, 3, shape[-1], 6)

    def run(platform):
        def loss(params, x):
            out = Conv3x3(6, platform).apply(params, x)
            return jnp.sum(out * target), out

        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(params, x)

    for a, b in zip(jax.tree.leaves(run("cpu")), jax.tree.leaves(run("gpu")), strict=True):
        # Kernel gradients are float32 sums over some 200 cells, in another order.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


def test_convolution_by_hand_and_dense_is_orthogonal_with_its_gain(key):
    """A corner of 1 and kernel entry [0, 0] (what lies up and left) of 2: only the cell below right sees it."""
    x = jnp.zeros((1, 3, 3, 1)).at[0, 0, 0, 0].set(1.0)
    kernel = jnp.zeros((3, 3, 1, 1)).at[0, 0].set(2.0)
    for platform in ("cpu", "gpu"):
        out = Conv3x3(1, platform).apply({"params": {"kernel": kernel, "bias": jnp.zeros(1)}}, x)
        assert jnp.array_equal(out[0, :, :, 0], jnp.zeros((3, 3)).at[1, 1].set(2.0))
    kernel = Dense(4, gain=0.5).init(key, jnp.zeros((2, 3, 4)))["params"]["Dense_0"]["kernel"]
    np.testing.assert_allclose(kernel @ kernel.T, 0.25 * np.eye(4), atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 1), (5, 64), (3, 3, 8, 32)])
def test_equals_jax_s_own_for_the_same_key(shape):
    key = jax.random.key(3)
    theirs = jax.nn.initializers.orthogonal
    ours, theirs = (jax.jit(lambda init=init: init(key, shape))() for init in (orthogonal(1.3), theirs(1.3)))
    np.testing.assert_allclose(ours, theirs, atol=3e-6)
    assert ours.dtype == jnp.float32


def test_columns_become_orthonormal_if_nearly_dependent_and_over_keys_at_once():
    """One pass of Gram-Schmidt loses this; the second mends it."""
    matrix = jnp.ones((6, 3)) + 1e-3 * jax.random.normal(jax.random.key(1), (6, 3))
    basis = orthonormal_columns(matrix)
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-6)
    keys = jax.random.split(jax.random.key(2), 8)
    init = lambda key: orthogonal(1.0)(key, (64, 64))
    batched = jax.jit(jax.vmap(init))(keys)
    np.testing.assert_allclose(batched, jnp.stack([init(key) for key in keys]), atol=1e-5)


def test_values_flow_around_a_wall_and_as_far_as_there_are_steps():
    """One source of 10 at the left of a 2x3 grid, cost 1, the upper middle closed: the upper right is 4 steps away."""
    source = jnp.full((2, 3), -100.0).at[0, 0].set(10.0)[..., None]
    cost = jnp.ones((2, 3)).at[0, 1].set(1000.0)[..., None]
    values = jax.jit(propagate, static_argnums=2)(source, cost, 6)[..., 0]
    np.testing.assert_array_equal(values, [[10.0, -100.0, 6.0], [9.0, 8.0, 7.0]])
    source = jnp.full((1, 5), -100.0).at[0, 0].set(10.0)[..., None]
    values = propagate(source, jnp.ones((1, 5, 1)), 2)[0, :, 0]
    np.testing.assert_array_equal(values, [10.0, 9.0, 8.0, -100.0, -100.0])


def test_gradient_equals_that_of_the_unrolled_loop_and_ties_share_it(key):
    k = jax.random.split(key, 3)
    source, weights = 6.0 * jax.random.normal(k[0], (5, 6, 4)), jax.random.normal(k[1], (5, 6, 4))
    cost = jax.random.uniform(k[2], (5, 6, 4), minval=0.05, maxval=1.0)

    def unrolled(source, cost, num_steps):
        values = source
        for _ in range(num_steps):
            up, right, down, left = neighbours(values)
            values = jnp.maximum(source, jnp.maximum(jnp.maximum(up, right), jnp.maximum(down, left)) - cost)
        return values

    gradients = [
        jax.jit(jax.grad(lambda s, c, f=f: jnp.sum(weights * f(s, c, 30)), argnums=(0, 1)))(source, cost)
        for f in (propagate, unrolled)
    ]
    for ours, loop in zip(jax.tree.leaves(gradients[0]), jax.tree.leaves(gradients[1]), strict=True):
        np.testing.assert_allclose(ours, loop, atol=1e-5)  # sums of up to thirty terms of order one
    assert float(jnp.abs(gradients[0][1]).max()) > 1.0  # not trivially zero
    # The middle of three cells hears two equal sources: half the gradient goes to each, and its cost pays once.
    source = jnp.array([5.0, -100.0, 5.0])[None, :, None]
    gradient = jax.grad(lambda s, c: propagate(s, c, 3)[0, 1, 0], argnums=(0, 1))(source, jnp.ones((1, 3, 1)))
    np.testing.assert_array_equal(gradient[0][0, :, 0], [0.5, 0.0, 0.5])
    np.testing.assert_array_equal(gradient[1][0, :, 0], [0.0, -1.0, 0.0])


@pytest.mark.parametrize(
    ("columns", "way"),
    [
        (300, lambda s, c: propagation._in_blocks(s, c, 12)),  # two blocks and a part of one
        (8, lambda s, c: propagate(s, c, 12, "gpu")),
    ],
)
def test_blocks_and_unrolling_change_no_bit(key, columns, way):
    k = jax.random.split(key, 3)
    source, weights = (6.0 * jax.random.normal(k[i], (4, 5, columns)) for i in range(2))
    cost = jax.random.uniform(k[2], (4, 5, columns), minval=0.05, maxval=1.0)

    def of(f):
        gradient = jax.grad(lambda s, c: jnp.sum(weights * f(s, c)), argnums=(0, 1))
        return jax.jit(lambda s, c: (f(s, c), gradient(s, c)))(source, cost)

    expected = of(lambda s, c: propagation._propagate(s, c, 12, 1))
    assert_same_bits(of(way), expected)
    assert (expected[0] > source).mean() > 0.2  # much has come from elsewhere


def test_a_gpu_has_no_loop_where_steps_are_small_and_a_cpu_takes_blocks(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(propagation, "MOST_UNROLLED", 200 * 6)
    monkeypatch.setattr(propagation, "UNROLL", 5)

    def loops(columns, platform, num_steps=5):
        grid = jax.ShapeDtypeStruct((2, 3, columns), jnp.float32)
        text = jax.jit(lambda s, c: propagate(s, c, num_steps, platform)).lower(grid, grid).as_text()
        return text.count("stablehlo.while")

    assert (loops(200, "gpu"), loops(201, "gpu"), loops(200, "gpu", 12)) == (0, 1, 1)
    assert (loops(128, "cpu"), loops(129, "cpu")) == (1, 2)  # the loop over blocks
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert loops(129, "cpu") == 1


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_program_for_any_number_of_columns(key, platform):
    (columns,) = export.symbolic_shape("n")
    grid = jax.ShapeDtypeStruct((2, 3, columns), jnp.float32)
    exported = export.export(jax.jit(lambda s, c: propagate(s, c, 5, platform)))(grid, grid)
    source, cost = jax.random.normal(key, (2, 3, 300)), jnp.full((2, 3, 300), 0.1)
    assert_same_bits(exported.call(source, cost), propagate(source, cost, 5))
