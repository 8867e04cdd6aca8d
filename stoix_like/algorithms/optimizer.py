"""Adam with a gradient clip and a rate per network; a shared torso goes with the actor. The door to optax.

Rates and clips are arrays of the state, not constants of the program, so a sweep may vmap over them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from stoix_like.types import Array, NetworkParams

ADAM_EPS = 1e-5  # as in the PPO literature; optax's default 1e-8 makes first steps of sparse gradients full-sized


class OptimizerState(NamedTuple):
    """One optax state per network."""

    actor: optax.OptState  # of (torso, actor)
    critic: optax.OptState


class Rates(Protocol):
    """The part of a learner's `hyper` that is read here."""

    @property
    def actor_lr(self) -> Array: ...
    @property
    def critic_lr(self) -> Array: ...
    @property
    def max_grad_norm(self) -> Array: ...


Betas = tuple[Array | float, Array | float]
ADAM_BETAS: Betas = (0.9, 0.999)


def _adam(
    learning_rate: Array | float, max_grad_norm: Array | float, betas: Betas = ADAM_BETAS
) -> optax.GradientTransformation:
    moments = optax.scale_by_adam(*betas, eps=ADAM_EPS)
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), moments, optax.scale(-learning_rate))


def init_optimizer(params: NetworkParams) -> OptimizerState:
    """Fresh moments for both networks."""
    adam = _adam(0.0, 1.0)
    return OptimizerState(adam.init((params.torso, params.actor)), adam.init(params.critic))


def apply_gradients(
    params: NetworkParams,
    state: OptimizerState,
    gradients: NetworkParams,
    rates: Rates,
    factor: Array,
    weight_decay: Array | None = None,
    is_kernel: NetworkParams | None = None,
    betas: Betas = ADAM_BETAS,
) -> tuple[NetworkParams, OptimizerState]:
    """(parameters, optimiser state) one step later; `factor` multiplies both rates.

    With a `weight_decay`, kernels also shrink by rate * factor * weight_decay of themselves, apart from the gradient
    (AdamW, Loshchilov & Hutter 2019, arXiv 1711.05101, algorithm 2); biases and scales do not. By default these are the
    vectors; else `is_kernel` says of each array whether it is a kernel.
    """
    shrinks = jax.tree.map(lambda w: w.ndim > 1, params) if is_kernel is None else is_kernel

    def step(
        rate: Array, values: Any, slopes: Any, moments: optax.OptState, shrinks: Any
    ) -> tuple[Any, optax.OptState]:
        changes, moments = _adam(rate * factor, rates.max_grad_norm, betas).update(slopes, moments)
        if weight_decay is not None:
            shrinking = rate * factor * weight_decay
            changes = jax.tree.map(lambda x, w, may: x - shrinking * w if may else x, changes, values, shrinks)
        return optax.apply_updates(values, changes), moments

    policy_values, policy_slopes = (params.torso, params.actor), (gradients.torso, gradients.actor)
    of_policy = (shrinks.torso, shrinks.actor)
    (torso, actor), actor_state = step(rates.actor_lr, policy_values, policy_slopes, state.actor, of_policy)
    critic, critic_state = step(rates.critic_lr, params.critic, gradients.critic, state.critic, shrinks.critic)
    return NetworkParams(torso, actor, critic), OptimizerState(actor_state, critic_state)


def linear_decay(decays: bool, step: Array, num_updates: Array) -> Array:
    """What rates are multiplied by at an update: 1, or falling linearly from 1 to 0 over `num_updates`. By the update's
    index and not the optimiser's count, so that resuming and chunking agree."""
    return jnp.maximum(0.0, 1.0 - step / num_updates) if decays else jnp.float32(1.0)


def init_dual_optimizer(duals: Any) -> optax.OptState:
    """Fresh moments for the duals."""
    return optax.scale_by_adam().init(duals)


def apply_dual_gradients(duals: Any, state: optax.OptState, gradients: Any, rate: Array) -> tuple[Any, optax.OptState]:
    """(duals, optimiser state) one step of Adam later: no clip, for each is a single number."""
    changes, state = optax.scale_by_adam().update(gradients, state)
    return jax.tree.map(lambda value, change: value - rate * change, duals, changes), state
