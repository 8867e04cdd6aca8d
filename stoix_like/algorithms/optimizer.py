"""Adam with a gradient clip and a rate per network; a shared torso goes with the actor. The door to optax.

Rates and clips are arrays of the state, not constants of the program, so a sweep may vmap over them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

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


def _adam(learning_rate: Array | float, max_grad_norm: Array | float) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=ADAM_EPS), optax.scale(-learning_rate)
    )


def init_optimizer(params: NetworkParams) -> OptimizerState:
    """Fresh moments for both networks."""
    adam = _adam(0.0, 1.0)
    return OptimizerState(adam.init((params.torso, params.actor)), adam.init(params.critic))


def apply_gradients(
    params: NetworkParams, state: OptimizerState, gradients: NetworkParams, rates: Rates, factor: Array
) -> tuple[NetworkParams, OptimizerState]:
    """(parameters, optimiser state) one step later; `factor` multiplies both rates."""

    def step(rate: Array, values: Any, slopes: Any, moments: optax.OptState) -> tuple[Any, optax.OptState]:
        changes, moments = _adam(rate * factor, rates.max_grad_norm).update(slopes, moments)
        return optax.apply_updates(values, changes), moments

    policy_values, policy_slopes = (params.torso, params.actor), (gradients.torso, gradients.actor)
    (torso, actor), actor_state = step(rates.actor_lr, policy_values, policy_slopes, state.actor)
    critic, critic_state = step(rates.critic_lr, params.critic, gradients.critic, state.critic)
    return NetworkParams(torso, actor, critic), OptimizerState(actor_state, critic_state)
