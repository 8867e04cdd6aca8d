"""The loss of PPO over tokens.

Sources: Schulman et al. 2017 (arXiv 1707.06347); the upper clip of its own from DAPO (Yu et al. 2025, arXiv
2503.14476); the bound on ratios of negative advantages from Ye et al. 2020 (arXiv 1912.09729, equation 5); the value
clip as in verl; the divergence from a reference as in GRPO (Shao et al. 2024, arXiv 2402.03300,
equation 4).
"""

from __future__ import annotations

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp

from stoix_like.algorithms.text.batches import TokenRows
from stoix_like.algorithms.text.reading import read_rows
from stoix_like.algorithms.text.token_state import Setup, TokenPPOHyper
from stoix_like.ops import losses, masked
from stoix_like.types import Array, Metrics, NetworkParams

ANSWER_ENTROPY, REFERENCE_KL, VALUE_LOSS = "trainer/answer_entropy", "trainer/reference_kl", "trainer/value_loss"
ANSWER_TOKENS = "trainer/answer_tokens"  # of a minibatch, by which the entropy is divided; not reported


def loss_sum(
    setup: Setup, hyper: TokenPPOHyper, prompt: Array, params: NetworkParams, rows: TokenRows
) -> tuple[Array, Metrics]:
    """(the scalar to minimise, its parts as metrics), each a sum over the chosen tokens of rows."""
    agent = setup.agent
    logits, found = read_rows(agent.model, params, prompt, rows.packed)
    value = cast(Array, found)
    log_probs = jax.nn.log_softmax(logits / agent.temperature, axis=-1)
    log_prob = jnp.take_along_axis(log_probs, rows.chosen[..., None], axis=-1)[..., 0]
    log_prob = jnp.where(rows.is_chosen, log_prob, rows.log_prob)
    entropy = -jnp.sum(jnp.exp(log_probs) * jnp.where(log_probs > -1e9, log_probs, 0.0), axis=-1)
    ratio = jnp.exp(log_prob - rows.log_prob)
    held = jnp.clip(ratio, 1.0 - hyper.clip_eps, 1.0 + hyper.clip_eps_high)
    reference = jnp.where(rows.is_chosen, rows.reference, log_prob)
    objective = jnp.minimum(ratio * rows.advantage, held * rows.advantage)
    if setup.settings.clips_twice:
        objective = jnp.maximum(objective, jnp.where(rows.advantage < 0.0, hyper.dual_clip * rows.advantage, -jnp.inf))
    per_token = {
        "trainer/policy_loss": -objective,
        "trainer/entropy": entropy,
        "trainer/approx_kl": losses.approximate_kl(log_prob, rows.log_prob),
        "trainer/clip_fraction": (held != ratio).astype(jnp.float32),
    }
    if setup.settings.learns_values:
        per_token[VALUE_LOSS] = _squared_errors(setup, hyper, value, rows)
    if setup.settings.has_reference:
        per_token[REFERENCE_KL] = losses.approximate_kl(reference, log_prob)
    sums: dict[str, Any] = {name: jnp.where(rows.is_chosen, x, 0.0).sum() for name, x in per_token.items()}
    sums[ANSWER_ENTROPY] = jnp.where(rows.is_answer, entropy, 0.0).sum()
    sums[ANSWER_TOKENS] = rows.is_answer.sum().astype(jnp.float32)
    bonus = sums["trainer/entropy" if setup.settings.entropy_of == "all" else ANSWER_ENTROPY]
    loss = sums["trainer/policy_loss"] + hyper.vf_coef * sums.get(VALUE_LOSS, 0.0)
    if setup.settings.has_reference:
        loss += hyper.kl_coef * sums[REFERENCE_KL]
    return loss - hyper.ent_coef * bonus, sums


def _squared_errors(setup: Setup, hyper: TokenPPOHyper, value: Array, rows: TokenRows) -> Array:
    if setup.settings.clips_value:
        return losses.clipped_squared_error(value, rows.value, rows.target, hyper.value_clip_eps)
    return losses.squared_error(value, rows.target)


def explained_variance(rows: TokenRows) -> Array:
    """1 - Var(target - value) / Var(target) over the chosen tokens."""
    mean = functools.partial(masked.masked_mean, mask=rows.is_chosen)

    def variance(x: Array) -> Array:
        return mean(jnp.square(x - mean(x)))

    return 1.0 - variance(rows.target - rows.value) / jnp.maximum(variance(rows.target), 1e-8)
