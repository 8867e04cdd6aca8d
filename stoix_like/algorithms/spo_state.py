"""What SPO learns and remembers: its parameters, duals, hyper-parameters and the steps it replays."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from stoix_like.algorithms.optimizer import OptimizerState
from stoix_like.algorithms.rollout import RolloutState
from stoix_like.search.model import SearchConfig, may_resample
from stoix_like.search.smc import SearchOutput
from stoix_like.types import Array, Key, NetworkParams, Observation

LEAST_LOG = -18.0  # of a dual: below, exp would leave what float32 can divide by


class Duals(NamedTuple):
    """The Lagrange multipliers by their logarithms, so that a rate is a share of them and they stay positive. [] each.

    The sources pass them through a softplus, which is the same for small ones and needs another rate for large ones.
    """

    log_temperature: Array  # of the search target's KL constraint, log of reward units
    log_alpha: Array  # of the policy step's KL constraint

    @property
    def temperature(self) -> Array:
        return jnp.exp(self.log_temperature)

    @property
    def alpha(self) -> Array:
        return jnp.exp(self.log_alpha)


class SPOParams(NamedTuple):
    """Everything the policies read, and the targets that go with it."""

    online: NetworkParams
    target: NetworkParams  # follows `online` at rate tau
    duals: Duals


class SPOHyper(NamedTuple):
    """Numbers that may differ between lanes of a vmap and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array
    dual_lr: Array
    max_grad_norm: Array
    ent_coef: Array
    vf_coef: Array
    gamma: Array
    gae_lambda: Array
    reward_scale: Array
    tau: Array
    epsilon: Array
    epsilon_policy: Array
    fixed_temperature: Array
    temperature_floor: Array
    search_gamma: Array
    search_gae_lambda: Array
    root_exploration_dirichlet_alpha: Array
    root_exploration_dirichlet_fraction: Array  # read only if the configuration's is above 0
    resampling_ess_threshold: Array
    num_updates: Array  # updates over which the rates fall to 0


class SPOSettings(NamedTuple):
    """What the compiled program is made for."""

    rollout_length: int
    gradient_steps: int
    sequence_length: int
    factored: bool
    can_truncate: bool
    decays_rates: bool
    constrains_root: bool
    temperature_mode: Literal["dual", "solve", "fixed", "std"]
    search: SearchConfig


class SPOState(NamedTuple):
    """Everything that an update reads and writes; a checkpoint is this, with or without `replay`."""

    params: SPOParams
    hyper: SPOHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    dual_optimizer: Any
    rollout: RolloutState
    replay: Any


class SearchTargets(NamedTuple):
    """What a search leaves to be learned from, as small as it gets: [N, P] each, actions [N, P] or [N, P, F]."""

    root_actions: Array  # in the smallest unsigned type
    root_weights: Array
    initial_root_actions: Array | None  # None if nothing is resampled: then they are the root actions
    advantages: Array
    log_prior_ratio: Array | None  # None if it is always 0


class ReplayStep(NamedTuple):
    """One stored step of one environment."""

    observation: Observation
    reward: Array
    discount: Array
    is_last: Array
    targets: SearchTargets
    next_observation: Observation | None  # the true final one; None if the environment cannot truncate


def targets_of(output: SearchOutput, config: SearchConfig, num_values: int) -> SearchTargets:
    """The part of a search that is stored."""
    small = smallest_unsigned(num_values)
    return SearchTargets(
        root_actions=output.root_actions.astype(small),
        root_weights=output.root_weights,
        initial_root_actions=output.initial_root_actions.astype(small) if may_resample(config) else None,
        advantages=output.sampled_advantages,
        log_prior_ratio=output.log_prior_ratio if is_weighted(config) else None,
    )


def is_weighted(config: SearchConfig) -> bool:
    """Whether particles begin with different weights, so that the log prior ratio must be kept."""
    return config.root != "iid" or config.root_noise_correction


def smallest_unsigned(num_values: int) -> Any:
    """The smallest type that holds the actions 0 .. num_values - 1."""
    return next(t for t in (jnp.uint8, jnp.uint16, jnp.uint32) if num_values - 1 <= jnp.iinfo(t).max)
