"""The decoder against a forward pass in NumPy, written from the equations, and its cache against the whole row."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.networks.transformer import attention, decoder
from stoix_like.networks.transformer.decoder import Chunk, Context
from stoix_like.networks.transformer.sizes import AttentionSizes, DecoderSizes

LLAMA = DecoderSizes(13, 2, 16, 24, AttentionSizes(4, 2, 4))
QWEN2 = LLAMA._replace(attention=AttentionSizes(4, 2, 6, has_bias=True, rope_theta=1e6), num_padded=3)
QWEN3 = LLAMA._replace(attention=AttentionSizes(2, 1, 8, normalizes=True), ties_embeddings=False)
FAMILIES = pytest.mark.parametrize("sizes", [LLAMA, QWEN2, QWEN3], ids=["llama", "qwen2", "qwen3"])
EXACT = 2e-6  # float32 sums of some dozen terms of order 1, in another order


def random_params(sizes, seed=0):
    """(trunk, output layer) without a zero or a one, so that every array counts."""
    trunk, head = decoder.init_trunk(jax.random.key(seed), sizes), decoder.init_head(jax.random.key(1), sizes)
    leaves, structure = jax.tree.flatten((trunk, head))
    keys = jax.random.split(jax.random.key(seed + 7), len(leaves))
    leaves = [x + 0.3 * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def numpy_logits(sizes, trunk, head, tokens, positions, mask):
    """[L, V] of one row: a token at a time, a head at a time."""
    trunk, attention = jax.tree.map(lambda x: np.asarray(x, np.float64), trunk), sizes.attention

    def norm(x, scale):
        return x / np.sqrt(np.mean(x**2) + sizes.norm_eps) * scale

    def turned(x, position):
        half = attention.head_dim // 2
        pairs = x[:half] + 1j * x[half:]
        pairs = pairs * np.exp(1j * position * attention.rope_theta ** (-np.arange(half) / half))
        return np.concatenate([pairs.real, pairs.imag])

    states = [trunk.embedding[token] for token in tokens]
    for index in range(sizes.num_layers):
        layer = jax.tree.map(lambda x: x[index], trunk.layers)  # noqa: B023
        found = []
        for state, position in zip(states, positions, strict=True):
            rows = [norm(state, layer.attention_norm) @ kernel for kernel in (layer.query, layer.key, layer.value)]
            if layer.biases is not None:
                rows = [row + bias for row, bias in zip(rows, layer.biases, strict=True)]
            query, key, value = (row.reshape(-1, attention.head_dim) for row in rows)
            if layer.head_norms is not None:
                query, key = (
                    np.stack([norm(x, s) for x in y]) for y, s in zip((query, key), layer.head_norms, strict=True)
                )
            query, key = (np.stack([turned(x, position) for x in y]) for y in (query, key))
            found.append((query, key, value))
        after = []
        for row, state in enumerate(states):
            heads = []
            for head_index in range(attention.num_heads):
                of = head_index // (attention.num_heads // attention.num_kv_heads)
                seen = [column for column in range(len(states)) if mask[row][column]]
                scores = [found[row][0][head_index] @ found[c][1][of] / attention.head_dim**0.5 for c in seen]
                weights = np.exp(scores - np.max(scores))
                heads.append(sum(w * found[c][2][of] for w, c in zip(weights / weights.sum(), seen, strict=True)))
            attended = state + np.concatenate(heads) @ layer.output
            inner = norm(attended, layer.ffn_norm)
            gate = inner @ layer.gate
            after.append(attended + (gate / (1 + np.exp(-gate)) * (inner @ layer.up)) @ layer.down)
        states = after
    kernel = trunk.embedding.T if head is None else np.asarray(head)
    return np.stack([norm(state, trunk.norm) @ kernel for state in states])


@functools.cache
def a_row(length=7):
    """(tokens [1, L], positions [1, L], mask [1, L, L]) of a row with two slots that nothing attends to."""
    tokens = jax.random.randint(jax.random.key(3), (1, length), 0, 13)
    is_valid = jnp.ones((1, length), bool).at[0, 2].set(False).at[0, 5].set(False)
    positions = jnp.cumsum(is_valid, axis=1) - is_valid
    causal = jnp.tril(jnp.ones((length, length), bool))[None]
    return tokens, positions, (causal & is_valid[:, None]) | jnp.eye(length, dtype=bool)[None]


def forward(sizes, trunk, head, tokens, positions, mask, context=None):
    chunk = Chunk(tokens, positions, mask)
    hidden, cache = jax.jit(functools.partial(decoder.run, sizes))(trunk, chunk, context or Context())
    return decoder.logits(sizes, trunk, head, hidden), cache


@FAMILIES
def test_logits_are_those_of_numpy(sizes):
    trunk, head = random_params(sizes)
    tokens, positions, mask = a_row()
    found, _ = forward(sizes, trunk, head, tokens, positions, mask)
    wanted = numpy_logits(sizes, trunk, head, np.asarray(tokens[0]), np.asarray(positions[0]), np.asarray(mask[0]))
    np.testing.assert_allclose(found[0, :, : sizes.num_tokens], wanted[:, : sizes.num_tokens], rtol=2e-5, atol=2e-5)


@FAMILIES
def test_every_parameter_counts(sizes):
    trunk, head = random_params(sizes)
    row = a_row()

    def loss(params):
        return jnp.sum(jnp.square(forward(sizes, *params, *row)[0][..., : sizes.num_tokens]))

    gradients = jax.grad(loss)((trunk, head))
    assert all(float(jnp.abs(x).max()) > 1e-4 for x in jax.tree.leaves(gradients))


@pytest.mark.parametrize("least_slots", [9, 1])  # read as a whole, or as far as it is filled
@FAMILIES
def test_a_cache_gives_what_the_whole_row_gives(monkeypatch, sizes, least_slots):
    monkeypatch.setattr(attention, "LEAST_SLOTS", least_slots)
    trunk, head = random_params(sizes)
    tokens, positions, mask = a_row()
    wanted, _ = forward(sizes, trunk, head, tokens, positions, mask)
    cache = decoder.empty_cache(sizes, 1, 9)  # two slots stay empty
    cache = jax.tree.map(lambda x: x + 1000.0, cache)  # of which nothing may be seen
    wide = jnp.pad(mask, ((0, 0), (0, 0), (0, 2)))
    first, cache = forward(sizes, trunk, head, tokens[:, :3], positions[:, :3], wide[:, :3], Context(cache=cache))
    found = [first]
    for slot in range(3, 7):
        now = slice(slot, slot + 1)
        context = Context(cache=cache, slot=slot)
        one, cache = forward(sizes, trunk, head, tokens[:, now], positions[:, now], wide[:, now], context)
        found.append(one)
    scale = float(jnp.abs(wanted).max())  # sums of other lengths are added in another order
    np.testing.assert_allclose(jnp.concatenate(found, axis=1), wanted, rtol=EXACT, atol=EXACT * scale)


@pytest.mark.parametrize("scans", [False, True])
@FAMILIES
def test_hidden_states_are_asked_for_after_some_tokens(sizes, scans):
    """Each row has places of its own, one of them twice; keys and values are kept of every token."""
    sizes = sizes._replace(scans_layers=scans)
    trunk, _ = random_params(sizes)
    row = Chunk(*(jnp.concatenate([x, x[:, ::-1] if x.ndim == 2 else x]) for x in a_row()))
    reads = jnp.array([[1, 6, 6], [4, 0, 3]])
    run = jax.jit(functools.partial(decoder.run, sizes))
    context = Context(cache=decoder.empty_cache(sizes, 2, 7))
    (whole, kept), (some, kept_too) = run(trunk, row, context), run(trunk, row._replace(reads=reads), context)
    np.testing.assert_allclose(some, jnp.take_along_axis(whole, reads[..., None], axis=1), rtol=EXACT, atol=EXACT)
    for one, other in zip(kept, kept_too, strict=True):
        np.testing.assert_allclose(one, other, rtol=EXACT, atol=EXACT)


@FAMILIES
def test_a_prompt_that_is_read_once_gives_what_it_gives_in_each_row(sizes):
    trunk, head = random_params(sizes)
    tokens, positions, mask = a_row()
    tokens = jnp.concatenate([tokens, tokens.at[:, 3:].set(1)])
    positions, mask = jnp.arange(7)[None].repeat(2, 0), jnp.tril(jnp.ones((7, 7), bool))[None].repeat(2, 0)
    wanted, _ = forward(sizes, trunk, head, tokens, positions, mask)
    prefix = decoder.read_prompt(sizes, trunk, tokens[0, :3])
    found, _ = forward(sizes, trunk, head, tokens[:, 3:], positions[:, 3:], mask[:, 3:], Context(prefix=prefix))
    np.testing.assert_allclose(found, wanted[:, 3:], rtol=EXACT, atol=EXACT)


def test_layers_that_are_scanned_or_computed_again_give_the_same_gradients():
    trunk, head = random_params(LLAMA)
    row = a_row()

    def gradients(sizes):
        def loss(trunk):
            return jnp.sum(jnp.square(forward(sizes, trunk, head, *row)[0]))

        return jax.tree.leaves(jax.grad(loss)(trunk))

    wanted = gradients(LLAMA)
    for sizes in (LLAMA._replace(scans_layers=True), LLAMA._replace(remat=True)):
        for one, other in zip(gradients(sizes), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_padded_ids_have_no_share():
    trunk, head = random_params(QWEN2)
    logits, _ = forward(QWEN2, trunk, head, *a_row())
    assert logits.shape == (1, 7, 16)
    shares = jax.nn.softmax(logits, axis=-1)
    assert float(jnp.abs(shares[..., 13:]).max()) == 0.0
    samples = jax.random.categorical(jax.random.key(0), jnp.broadcast_to(logits[0, :1], (5000, 16)))
    assert int(samples.max()) < 13


def test_logits_and_masters_are_float32_with_arithmetic_in_bfloat16():
    sizes = LLAMA._replace(dtype=jnp.bfloat16)
    trunk, head = random_params(sizes)
    tokens, positions, mask = a_row()
    hidden, _ = decoder.run(sizes, trunk, Chunk(tokens, positions, mask))
    assert hidden.dtype == jnp.bfloat16
    logits = decoder.logits(sizes, trunk, head, hidden)
    assert logits.dtype == jnp.float32
    assert {
        x.dtype
        for x in jax.tree.leaves(
            jax.grad(lambda t: decoder.run(sizes, t, Chunk(*a_row()))[0].sum().astype(jnp.float32))(trunk)
        )
    } == {jnp.dtype(jnp.float32)}
    exact, _ = forward(LLAMA, trunk, head, tokens, positions, mask)
    spread = float(jnp.std(exact))
    assert 1e-4 * spread < float(jnp.abs(logits - exact).max()) < 0.2 * spread


def test_what_a_token_does_not_attend_to_changes_nothing():
    trunk, head = random_params(LLAMA)
    tokens, positions, mask = a_row()
    wanted, _ = forward(LLAMA, trunk, head, tokens, positions, mask)
    found, _ = forward(LLAMA, trunk, head, tokens.at[0, 2].set((tokens[0, 2] + 1) % 13), positions, mask)
    kept = np.array([0, 1, 3, 4, 5, 6])
    np.testing.assert_array_equal(found[0, kept], wanted[0, kept])
    assert float(jnp.abs(found[0, 2] - wanted[0, 2]).max()) > 0.1
