"""Supervised learning of what was written in episodes: the loss of fine-tuning on worlds, and of pretraining.

Source: SPA (arXiv 2510.15047), equations 1 and 2, where every token of an answer counts, states included.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.text.reading import read_rows
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, Metrics, NetworkParams


def supervised_loss_sum(
    model: LanguageModel,
    slots: Slots,
    prompt: Array,
    params: NetworkParams,
    tokens: Array,
    is_valid: Array,
    has_loss: Array,
) -> tuple[Array, Metrics]:
    """(cross entropy, how many tokens were the most probable), each a sum over the tokens with loss, in nats.

    Rows `tokens`, `is_valid` [B, L]; `has_loss` [B, T', G] of the slots of the answers.
    """
    logits, _ = read_rows(model._replace(critic=None), params, slots, prompt, tokens, is_valid)
    written = tokens.reshape(tokens.shape[0], -1, slots.per_turn)[:, :, slots.state :]
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    log_prob = jnp.take_along_axis(log_probs, written[..., None], axis=-1)[..., 0]
    is_right = jnp.argmax(logits, axis=-1) == written
    loss = -jnp.where(has_loss, log_prob, 0.0).sum()
    return loss, {"trainer/loss": loss, "trainer/accuracy": (has_loss & is_right).sum().astype(jnp.float32)}
