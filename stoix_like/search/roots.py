"""What a search begins with: the first action of every particle, and the weight that makes the choice fair.

`iid` draws the first actions independently from the policy, as the SPO paper does. A sharp policy then gives nearly all
particles the same one. `gumbel_topk` draws them without replacement (Kool, van Hoof and Welling 2019, arXiv
1903.06059) and divides each by the probability of being among those drawn, so that sums over the particles still
estimate sums over all actions. `topk` takes the most probable: no noise, and no claim to be fair.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.ops import distributions
from stoix_like.types import Array, Key

RootKind = Literal["iid", "gumbel_topk", "topk"]


class Noise(NamedTuple):
    """Dirichlet noise over the legal actions, mixed into the proposal as probabilities."""

    alpha: Array | float  # concentration
    fraction: Array | float  # share of the noise, in [0, 1]; 0.0 itself leaves the noise out of the program


class Roots(NamedTuple):
    """First actions and log-weights."""

    actions: Array  # [N, P] or [N, P, F] int32
    log_weights: Array  # [N, P]


def propose(
    key: Key, logits: Array, mask: Array, num_particles: int, kind: RootKind, noise: Noise, corrected: bool
) -> Roots:
    """The roots of N searches from masked logits [N, A] or [N, F, A]. The key is consumed.

    Args:
        key: consumed.
        logits: of the policy, masked.
        mask: True where legal, of the same shape.
        num_particles: P.
        kind: how they are drawn; `iid` where actions have factors.
        noise: mixed into what is drawn from. `topk` takes none.
        corrected: `iid` weighs the noise out again: log p - log of what was drawn from.
    """
    noise_key, draw_key = jax.random.split(key)
    log_policy = jax.nn.log_softmax(logits, axis=-1)
    log_proposal = log_policy if kind == "topk" else _mixed(noise_key, log_policy, mask, noise)
    if kind == "iid":
        return _independent(draw_key, log_policy, log_proposal, num_particles, corrected)
    return _distinct(draw_key, log_policy, log_proposal, mask, num_particles, kind)


def _mixed(key: Key, log_policy: Array, mask: Array, noise: Noise) -> Array:
    """Log of (1 - fraction) p + fraction * Dirichlet over the legal actions; others keep the finite fill."""
    if isinstance(noise.fraction, (int, float)) and noise.fraction == 0.0:
        return log_policy
    # Of a small alpha most gamma variates underflow; their logarithms do not.
    log_gamma = jax.random.loggamma(key, jnp.asarray(noise.alpha, jnp.float32), log_policy.shape)
    log_dirichlet = jax.nn.log_softmax(distributions.masked_logits(log_gamma, mask), axis=-1)
    fraction = jnp.asarray(noise.fraction, jnp.float32)
    mixed = jnp.logaddexp(jnp.log1p(-fraction) + log_policy, jnp.log(fraction) + log_dirichlet)
    has_choice = jnp.any(mask, axis=-1, keepdims=True)  # a row without a legal action stays uniform
    return jnp.where(has_choice, jnp.where(mask, mixed, distributions.MASK_FILL), log_policy)


def _independent(key: Key, log_policy: Array, log_proposal: Array, num_particles: int, corrected: bool) -> Roots:
    factored = log_policy.ndim == 3
    actions = distributions.sample_many(key, log_proposal, num_particles, factored=factored)
    if not corrected:
        return Roots(actions, jnp.zeros(actions.shape[:2], jnp.float32))
    return Roots(actions, _of_actions(log_policy, actions) - _of_actions(log_proposal, actions))


def _of_actions(log_probs: Array, actions: Array) -> Array:
    """Log-probabilities [N, P] of actions [N, P] or [N, P, F], summed over factors."""
    if actions.ndim == 2:
        return jnp.take_along_axis(log_probs, actions, axis=-1)
    chosen = jnp.take_along_axis(log_probs[:, None], actions[..., None], axis=-1)  # [N, P, F, 1]
    return jnp.sum(chosen[..., 0], axis=-1)


def _distinct(
    key: Key, log_policy: Array, log_proposal: Array, mask: Array, num_particles: int, kind: RootKind
) -> Roots:
    """The `num_particles` first of a ranking, each action once; with fewer legal ones each is repeated.

    Copies stand side by side. In turn, their weights would repeat with a period, and systematic resampling, whose
    points are evenly spaced, could hit the same action every time.
    """
    num_values = log_policy.shape[-1]
    most = min(num_particles, num_values)
    score = log_proposal + jax.random.gumbel(key, log_policy.shape) if kind == "gumbel_topk" else log_proposal
    score = jnp.where(mask, score, distributions.MASK_FILL)
    best, ranked = jax.lax.top_k(score, min(most + 1, num_values))  # [N, K + 1]
    num_distinct = jnp.clip(jnp.sum(mask, axis=-1), 1, most)[:, None]  # [N, 1]
    ranks = jnp.arange(num_particles)[None] * num_distinct // num_particles  # [N, P], ascending
    actions = jnp.take_along_axis(ranked, ranks, axis=-1).astype(jnp.int32)
    copies = _first_of(ranks + 1, num_particles, num_distinct) - _first_of(ranks, num_particles, num_distinct)
    log_weights = _of_actions(log_policy, actions) - jnp.log(copies.astype(jnp.float32))
    if kind == "gumbel_topk" and num_values > most:
        threshold = best[:, most, None]  # of the first that was left out; the finite fill if all legal ones are in
        log_weights -= _log_inclusion(_of_actions(log_proposal, actions) - threshold)
    return Roots(actions, log_weights)


def _first_of(ranks: Array, num_particles: int, num_distinct: Array) -> Array:
    """The first particle of a rank, ceil(rank * P / K)."""
    return -(-ranks * num_particles // num_distinct)


def _log_inclusion(x: Array) -> Array:
    """log(1 - exp(-exp(x))), the log-probability that a Gumbel at location x exceeds 0; x itself where x is small."""
    return jnp.where(x < -15.0, x, jnp.log(-jnp.expm1(-jnp.exp(jnp.maximum(x, -15.0)))))
