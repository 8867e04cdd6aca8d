"""Where a language model's values come from, and which parameters their gradients reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.networks.transformer.decoder import Chunk, Context
from stoix_like.networks.transformer.model import LanguageModel, kernels, with_policy
from stoix_like.networks.transformer.sizes import AttentionSizes, DecoderSizes
from stoix_like.types import NetworkParams

SIZES = DecoderSizes(11, 2, 8, 12, AttentionSizes(2, 2, 4))
PROMPT = jnp.array([4, 2])
TOKENS = jnp.array([[1, 5, 3], [7, 0, 9]])
POSITIONS = jnp.array([[2, 3, 4], [2, 3, 4]])
KERNELS = ("query", "key", "value", "output", "gate", "up", "down")
MASK = jnp.broadcast_to(jnp.tril(jnp.ones((3, 5), bool), k=2), (2, 3, 5))


def params_of(model):
    params = model.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(params)))
    keys = jax.tree.unflatten(jax.tree.structure(params), list(keys))
    return jax.tree.map(lambda x, key: x + 0.2 * jax.random.normal(key, x.shape), params, keys)


def values(model, params):
    context = Context(prefix=model.prompt(params, PROMPT))
    chunk = Chunk(TOKENS, POSITIONS, MASK)
    hidden, _ = model.hidden(params, chunk, context)
    return model.value(params, model.critic_hidden(params, hidden, chunk, PROMPT))


@pytest.mark.parametrize(
    ("critic", "reached"), [("separate", {"critic"}), ("shared", {"torso", "critic"}), ("stopped", {"critic"})]
)
def test_the_gradient_of_values_reaches(critic, reached):
    model = LanguageModel(SIZES, critic)
    gradients = jax.grad(lambda params: values(model, params).sum())(params_of(model))
    found = {
        name
        for name, part in gradients._asdict().items()
        if any(float(jnp.abs(x).max()) > 0 for x in jax.tree.leaves(part))
    }
    assert found == reached


def test_a_separate_critic_reads_with_its_own_trunk():
    model = LanguageModel(SIZES, "separate")
    params = params_of(model)
    other = params_of(model)._replace(torso=jax.tree.map(jnp.zeros_like, params.torso))
    np.testing.assert_array_equal(values(model, params), values(model, other))


def test_what_decays_is_kernels_and_embeddings():
    attention = SIZES.attention._replace(has_bias=True, normalizes=True)
    model = LanguageModel(SIZES._replace(attention=attention), "separate")
    found = kernels(params_of(model))
    for trunk in (found.torso, found.critic.trunk):
        layers = trunk.layers
        assert all((trunk.embedding, *(getattr(layers, name) for name in KERNELS)))
        assert not any((trunk.norm, layers.attention_norm, layers.ffn_norm, *layers.biases, *layers.head_norms))
    assert found.critic.head == (True, False, True, False)


def test_first_values_are_zero():
    model = LanguageModel(SIZES, "stopped")
    assert float(jnp.abs(values(model, model.init(jax.random.key(0)))).max()) == 0.0


@pytest.mark.parametrize("critic", ["separate", "stopped"])
def test_the_policy_of_a_base_replaces_the_policy(critic):
    model, base = LanguageModel(SIZES, critic), LanguageModel(SIZES)
    params, theirs = params_of(model), base.init(jax.random.key(5))
    assert theirs.critic is None
    found = with_policy(params, theirs)
    assert isinstance(found, NetworkParams)
    np.testing.assert_array_equal(found.torso.embedding, theirs.torso.embedding)
    np.testing.assert_array_equal(found.critic.head.inner, params.critic.head.inner)
    if critic == "separate":
        np.testing.assert_array_equal(found.critic.trunk.embedding, theirs.torso.embedding)
    jax.block_until_ready(jax.jit(lambda x: x, donate_argnums=0)(found))  # no buffer is there twice
