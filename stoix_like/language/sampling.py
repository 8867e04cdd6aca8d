"""The next token of each row, drawn with a key of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.types import Array, Key


def sample_token(keys: Key, logits: Array, temperature: Array | float) -> tuple[Array, Array]:
    """(tokens [N] int32, their log-probabilities [N]) from logits [N, V] over a temperature, by keys [N].

    A row depends on its own key and logits alone, so neither the order of rows nor their division over devices changes
    it. The log-probabilities are those of the distribution that is drawn from.
    """
    log_probs = jax.nn.log_softmax(logits / temperature, axis=-1)
    tokens = jax.vmap(jax.random.categorical)(keys, log_probs).astype(jnp.int32)
    return tokens, jnp.take_along_axis(log_probs, tokens[:, None], axis=1)[:, 0]
