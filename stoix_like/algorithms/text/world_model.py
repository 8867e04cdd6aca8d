"""Supervised learning of what was written in episodes: the loss of fine-tuning on worlds, and of pretraining.

Source: SPA (arXiv 2510.15047), equations 1 and 2, where every token of an answer counts, states included.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.algorithms.text.reading import PackedRows, read_rows
from stoix_like.language.spans import SPANS
from stoix_like.networks.transformer.model import LanguageModel
from stoix_like.types import Array, Metrics, NetworkParams


def supervised_loss_sum(
    model: LanguageModel, prompt: Array, params: NetworkParams, rows: PackedRows, written: Array, has_loss: Array
) -> tuple[Array, Metrics]:
    """(cross entropy, how many tokens were the most probable), each a sum over the tokens with loss, in nats.

    Of packed rows [B, ...]: the tokens `written` [B, T', G] in the slots of the answers, and which of these have loss.
    """
    log_prob, is_right = _read(model, prompt, params, rows, written)
    loss = -jnp.where(has_loss, log_prob, 0.0).sum()
    return loss, {"trainer/loss": loss, "trainer/accuracy": (has_loss & is_right).sum().astype(jnp.float32)}


def sums_by_span(
    model: LanguageModel, prompt: Array, params: NetworkParams, rows: PackedRows, written: Array, spans: Array
) -> tuple[Array, Array]:
    """(losses in nats, how many tokens were the most probable) [B, len(SPANS)], sums over the tokens of each span.

    `spans` [B, T', G] are those of `language.spans`.
    """
    log_prob, is_right = _read(model, prompt, params, rows, written)
    of_span = jnp.stack([spans == index for index in range(len(SPANS))], axis=-1)  # [B, T', G, spans]
    losses = -jnp.where(of_span, log_prob[..., None], 0.0).sum(axis=(1, 2))
    return losses, (of_span & is_right[..., None]).sum(axis=(1, 2)).astype(jnp.float32)


def _read(
    model: LanguageModel, prompt: Array, params: NetworkParams, rows: PackedRows, written: Array
) -> tuple[Array, Array]:
    """(log-probabilities [B, T', G] of what is written, whether it was the most probable)."""
    logits, _ = read_rows(model._replace(critic=None), params, prompt, rows)
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    log_prob = jnp.take_along_axis(log_probs, written[..., None], axis=-1)[..., 0]
    return log_prob, jnp.argmax(logits, axis=-1) == written
