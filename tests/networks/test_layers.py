"""Layers against numbers computed by hand or by a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.networks.layers import AttentionSublayer, Conv3x3, Dense, masked_attention


def test_attention_equals_a_loop_and_ignores_masked_keys(key):
    k = jax.random.split(key, 4)
    query = jax.random.normal(k[0], (2, 3, 2, 4))
    keys, values = jax.random.normal(k[1], (2, 5, 2, 4)), jax.random.normal(k[2], (2, 5, 2, 4))
    mask = jax.random.bernoulli(k[3], 0.5, (2, 3, 5)).at[0, 1].set(False)
    out = np.asarray(jax.jit(masked_attention)(query, keys, values, mask))
    for b, t, h in np.ndindex(2, 3, 2):
        kept = np.flatnonzero(np.asarray(mask)[b, t])
        scores = np.asarray([float(query[b, t, h] @ keys[b, s, h]) / 2.0 for s in kept])
        weights = np.exp(scores) / np.exp(scores).sum() if len(kept) else scores
        expected = sum((w * np.asarray(values[b, s, h]) for w, s in zip(weights, kept, strict=True)), np.zeros(4))
        # float32 sums of five terms of order one
        np.testing.assert_allclose(out[b, t, h], expected, atol=2e-6)
    assert np.all(out[0, 1] == 0.0)


def test_fully_masked_attention_leaves_tokens_and_has_finite_gradients(key):
    tokens = jax.random.normal(key, (2, 4, 8))
    context = jax.random.normal(key, (2, 3, 8))
    module, nothing = AttentionSublayer(2), jnp.zeros((2, 4, 3), bool)
    params = jax.jit(module.init)(key, tokens, context, nothing)

    def total(params):
        out = module.apply(params, tokens, context, nothing)
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


def test_convolution_by_hand():
    """A corner of 1 and kernel entry [0, 0] (what lies up and left) of 2: only the cell below right sees it."""
    x = jnp.zeros((1, 3, 3, 1)).at[0, 0, 0, 0].set(1.0)
    kernel = jnp.zeros((3, 3, 1, 1)).at[0, 0].set(2.0)
    for platform in ("cpu", "gpu"):
        out = Conv3x3(1, platform).apply({"params": {"kernel": kernel, "bias": jnp.zeros(1)}}, x)
        assert jnp.array_equal(out[0, :, :, 0], jnp.zeros((3, 3)).at[1, 1].set(2.0))


def test_dense_is_orthogonal_with_its_gain(key):
    kernel = Dense(4, gain=0.5).init(key, jnp.zeros((2, 3, 4)))["params"]["Dense_0"]["kernel"]
    np.testing.assert_allclose(kernel @ kernel.T, 0.25 * np.eye(4), atol=1e-6)
