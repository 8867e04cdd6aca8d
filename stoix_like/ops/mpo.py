"""Maximum a posteriori policy optimisation over particles: target weights, dual variables and the policy's loss.

The E-step tilts a base distribution b over P particles by their advantages A, q proportional to b exp(A / temperature)
(SPO, Macfarlane et al., arXiv 2402.07963, eq. 6; MPO, Abdolmaleki et al., arXiv 1806.06920). The temperature is the
dual variable of E[KL(q || b)] <= epsilon: descended by its loss (eq. 7) or solved for by bisection. The M-step draws
the policy to q by cross-entropy and holds it near an older one with the dual variable alpha.

Dual variables come in positive; how they are parametrised and floored is the caller's. Temperatures and advantages are
in reward units, all KLs in nats. A state in which there is nothing to choose has KL 0 at every temperature and would
drag the mean constraint towards temperature 0: `is_valid` leaves it out of every mean. Its weights are still a target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from stoix_like.ops.groups import summed
from stoix_like.types import Array


class MPOTemperature(NamedTuple):
    """Target weights and the dual of their KL constraint."""

    weights: Array  # [B, P], sum to 1 over P, constants under differentiation
    loss: Array  # [], reward units; its gradient by the temperature is epsilon - kl
    kl: Array  # [], nats, mean over valid states


def weights_and_temperature_loss(
    advantage: Array, log_prior_ratio: Array, is_valid: Array, temperature: Array, epsilon: Array | float
) -> MPOTemperature:
    """Weights of the particles, the convex dual of the temperature, and the KL that the dual constrains.

    loss = temperature * (epsilon + mean log sum_p b_p exp(A_p / temperature)), b = softmax(log_prior_ratio): SPO eq. 7,
    rlax's `mpo_compute_weights_and_temperature_loss` where the base is uniform, and acme's `CategoricalMPO` where the
    particles are all actions and log_prior_ratio are the policy's logits. Only the temperature has a gradient.

    Without a valid state loss, gradient and KL are 0: the dual does not move.

    Args:
        advantage: [B, P].
        log_prior_ratio: log of what the weights began with, up to a constant per state, finite [B, P].
        is_valid: False where a state is left out of loss and KL, whatever it contains [B].
        temperature: > 0, [].
        epsilon: nats, [].
    """
    _assert_shapes(advantage, log_prior_ratio, is_valid)
    advantage, log_prior_ratio = jax.lax.stop_gradient((advantage, log_prior_ratio))
    held = jax.lax.stop_gradient(temperature)
    weights = jnp.exp(_log_weights(advantage, log_prior_ratio, held))
    kl = mean_kl(advantage, log_prior_ratio, is_valid, held)
    advantage, log_prior_ratio = _without_invalid(advantage, log_prior_ratio, is_valid)
    # The best advantage stays outside: 1e4 / 1e-6 would leave no digit of the differences, in value or in gradient.
    best = jnp.max(advantage, axis=-1, keepdims=True)  # [B, 1]
    tilted = jax.nn.log_softmax(log_prior_ratio) + (advantage - best) / temperature  # [B, P]
    log_normalizer = jax.nn.logsumexp(tilted, axis=-1)  # [B]
    loss = temperature * _mean_over_valid(epsilon + log_normalizer, is_valid) + _mean_over_valid(best[:, 0], is_valid)
    return MPOTemperature(weights, loss, kl)


def mean_kl(
    advantage: Array, log_prior_ratio: Array, is_valid: Array, temperature: Array, groups: Array | None = None
) -> Array:
    """KL of the weights from their base at this temperature, nats, mean over valid states, []; 0 if none is valid.

    Arguments as of `weights_and_temperature_loss`. With `groups` [B, P] it is the KL of the marginals over groups (see
    `root_kl`). Without, it never rises with the temperature; with groups it may.
    """
    _assert_shapes(advantage, log_prior_ratio, is_valid)
    advantage, log_prior_ratio = _without_invalid(advantage, log_prior_ratio, is_valid)
    log_weights = _log_weights(advantage, log_prior_ratio, temperature)
    log_base = jax.nn.log_softmax(log_prior_ratio)
    if groups is None:
        kl = jnp.sum(jnp.exp(log_weights) * (log_weights - log_base), axis=-1)  # [B]
    else:
        kl = root_kl(jnp.exp(log_weights), jnp.exp(log_base), groups)
    return _mean_over_valid(kl, is_valid)


def advantage_spread(advantage: Array, log_prior_ratio: Array, is_valid: Array) -> Array:
    """Base-weighted standard deviation of the advantage over particles, reward units, mean over valid states, [].

    The natural unit of the temperature: floors and starting values are multiples of it. 0 if no state is valid. Shapes
    as of `weights_and_temperature_loss`; no gradient flows through it.
    """
    _assert_shapes(advantage, log_prior_ratio, is_valid)
    advantage, log_prior_ratio = jax.lax.stop_gradient(_without_invalid(advantage, log_prior_ratio, is_valid))
    base = jax.nn.softmax(log_prior_ratio)  # [B, P]
    shifted = advantage - jnp.max(advantage, axis=-1, keepdims=True)  # equal advantages become exactly 0
    centred = shifted - jnp.sum(base * shifted, axis=-1, keepdims=True)
    return _mean_over_valid(jnp.sqrt(jnp.sum(base * jnp.square(centred), axis=-1)), is_valid)


def root_kl(weights: Array, base: Array, groups: Array) -> Array:
    """KL of the marginals over equal root actions, nats [B]: sum_a W_a (log W_a - log B_a), W_a = sum_{p does a} w_p.

    At most the KL of the particles themselves. A base that underflows to 0 counts as the smallest normal float32, so
    that the KL stays below 88 nats instead of becoming infinite.

    Args:
        weights: probabilities that sum to 1 over P [B, P].
        base: likewise, what the weights are measured from [B, P].
        groups: equal numbers in [0, P) for particles with equal root actions (`groups.action_groups`) [B, P].
    """
    chex.assert_equal_shape([weights, base, groups])
    weight_of_root, base_of_root = (summed(x, groups, groups.shape[1]) for x in (weights, base))  # [B, P], by action
    tiny = jnp.finfo(jnp.float32).tiny
    log_ratio = jnp.log(jnp.maximum(weight_of_root, tiny)) - jnp.log(jnp.maximum(base_of_root, tiny))
    return jnp.sum(weight_of_root * log_ratio, axis=-1)


def temperature_loss_of_kl(temperature: Array, kl: Array, epsilon: Array | float) -> Array:
    """A loss [] whose gradient by the temperature is epsilon - kl, for a KL with no dual function, such as the root's.

    Its value means nothing. A KL that is 0 because no state was valid still lowers the temperature: mask it then.
    """
    return temperature * jax.lax.stop_gradient(epsilon - kl)


def solve_temperature(
    kl_of: Callable[[Array], Array],
    epsilon: Array | float,
    low: Array | float,
    high: Array | float,
    num_iterations: int = 30,
) -> Array:
    """The temperature in [low, high] at which kl_of equals epsilon, by bisection of its logarithm, []; no gradient.

    Where even `low` stays within epsilon the constraint is slack: `low`, exactly. That includes a batch without a valid
    state, after which the caller had better keep the temperature it had. Where even `high` exceeds it: `high`, exactly.
    In between the answer is the upper end of the last interval, log(high / low) / 2 ** num_iterations above a crossing.

    Args:
        kl_of: temperature [] -> KL in nats []; usually `mean_kl` of one batch. If it does not fall everywhere (a root
            KL need not), the answer is one of the crossings.
        low: above 0, reward units.
        high: above `low`, reward units.
    """
    low, high = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)

    def halve(_: int, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        below, above = interval
        middle = jnp.sqrt(below) * jnp.sqrt(above)
        is_within = kl_of(middle) <= epsilon
        return jnp.where(is_within, below, middle), jnp.where(is_within, middle, above)

    _, above = jax.lax.fori_loop(0, num_iterations, halve, (low, high))
    return jax.lax.stop_gradient(jnp.where(kl_of(low) <= epsilon, low, above))


def alpha_loss(kl: Array, alpha: Array, epsilon: Array | float) -> tuple[Array, Array]:
    """The penalty on the policy and the loss of its dual variable, both [] (MPO, arXiv 1806.06920).

    penalty = alpha * mean(kl) moves the policy alone; alpha * (epsilon - mean(kl)) moves alpha alone, up where the KL
    exceeds epsilon.

    Args:
        kl: of the older policy from the policy trained, nats [B].
        alpha: > 0, [].
        epsilon: nats, [].
    """
    mean = jnp.mean(kl)
    return jax.lax.stop_gradient(alpha) * mean, alpha * jax.lax.stop_gradient(epsilon - mean)


def weighted_cross_entropy(logits: Array, actions: Array, weights: Array, *, factored: bool) -> Array:
    """-sum_p w_p log pi(a_p), nats [B]: the policy's loss against weighted particles.

    Args:
        logits: masked, [B, A] or, factored, [B, F, A].
        actions: [B, P] or [B, P, F]; legal where the weight is not 0.
        weights: [B, P].
    """
    chex.assert_rank([logits, actions], 3 if factored else 2)
    log_policy = jax.nn.log_softmax(logits, axis=-1)
    # A gather, not distributions.log_prob: that compares every particle with every action, [B, P, A].
    if factored:
        each = jnp.take_along_axis(log_policy, jnp.swapaxes(actions, 1, 2), axis=-1)  # [B, F, P]
        log_prob = jnp.sum(each, axis=1)
    else:
        log_prob = jnp.take_along_axis(log_policy, actions, axis=-1)  # [B, P]
    chex.assert_equal_shape([log_prob, weights])
    return -jnp.sum(weights * log_prob, axis=-1)


def _assert_shapes(advantage: Array, log_prior_ratio: Array, is_valid: Array) -> None:
    chex.assert_rank([advantage, log_prior_ratio, is_valid], [2, 2, 1])
    chex.assert_equal_shape([advantage, log_prior_ratio])
    chex.assert_equal_shape_prefix([advantage, is_valid], 1)


def _log_weights(advantage: Array, log_prior_ratio: Array, temperature: Array) -> Array:
    """Log-probabilities of the tilted base [B, P]."""
    best = jnp.max(advantage, axis=-1, keepdims=True)
    return jax.nn.log_softmax(log_prior_ratio + (advantage - best) / temperature)


def _without_invalid(advantage: Array, log_prior_ratio: Array, is_valid: Array) -> tuple[Array, Array]:
    """Both with zeros in invalid states, before anything is computed: a NaN would reach gradients through `where`."""
    keep = is_valid[:, None]
    return jnp.where(keep, advantage, 0.0), jnp.where(keep, log_prior_ratio, 0.0)


def _mean_over_valid(x: Array, is_valid: Array) -> Array:
    """Mean of x [B] over valid states, []; 0 if there is none."""
    return jnp.sum(jnp.where(is_valid, x, 0.0)) / jnp.maximum(jnp.sum(is_valid), 1)
