"""What a model says of recorded episodes: the training pass over the very slots that were sampled in."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.algorithms.agent import slots as layout
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.networks.transformer.decoder import Context
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, NetworkParams


def read_rows(
    model: LanguageModel, params: NetworkParams, slots: Slots, prompt: Array, tokens: Array, is_valid: Array
) -> tuple[Array, Array | None]:
    """(logits [B, T', G, V] of each slot of the answers, values [B, T', G] before it) of rows [B, L] after a prompt.

    Both are read one slot before, from what the model knew when the token was chosen. There are no values without a
    critic. T' is the number of turns in a row.
    """
    place = layout.positions(slots, is_valid)
    mask = layout.attention_mask(slots, is_valid, jnp.arange(slots.per_row))
    hidden, _ = model.hidden(params, tokens, place, mask, Context(prefix=model.prompt(params, prompt)))
    logits = model.logits(params, layout.before_answers(slots, hidden))
    if model.critic is None:
        return logits, None
    states = model.critic_hidden(params, hidden, tokens, place, mask, prompt)
    return logits, model.value(params, layout.before_answers(slots, states))
