"""Proximal Policy Optimisation: rollout, advantages, epochs of shuffled minibatches, all in one pure `update`.

Sources: Schulman et al. 2017 (arXiv 1707.06347); Andrychowicz et al. 2021 (arXiv 2006.05990) for which details matter.
Left out: recurrent networks, continuous actions, observation normalisation.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms import minibatch, rollout
from stoix_like.algorithms.optimizer import OptimizerState, apply_gradients, init_optimizer, linear_decay
from stoix_like.algorithms.rollout import RolloutState, Transition
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.envs.auto_reset import AutoReset, auto_reset_for
from stoix_like.errors import ConfigError
from stoix_like.ops import distributions, losses, returns, trees
from stoix_like.ops.environment_contract import check_environment
from stoix_like.ops.phases import phase
from stoix_like.types import (
    Array,
    Environment,
    EnvState,
    Key,
    Learner,
    Metrics,
    Network,
    NetworkParams,
    Observation,
    role_key,
)

VALUE_ROWS = 8192  # rows per critic call after a rollout: large enough for full speed, small enough for memory


class PPOHyper(NamedTuple):
    """Numbers that may differ between lanes of a vmap and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array
    max_grad_norm: Array
    clip_eps: Array
    value_clip_eps: Array  # read only if the configuration sets it
    ent_coef: Array
    vf_coef: Array
    gamma: Array
    gae_lambda: Array
    reward_scale: Array
    num_updates: Array  # updates over which the rates fall to 0


class PPOState(NamedTuple):
    """Everything that an update reads and writes; a checkpoint is this and nothing else."""

    params: NetworkParams
    hyper: PPOHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    rollout: RolloutState


class PPOSettings(NamedTuple):
    """What the compiled program is made for."""

    rollout_length: int
    epochs: int
    num_minibatches: int
    num_shards: int
    factored: bool
    clips_value: bool
    decays_rates: bool
    standardization: str  # "batch", "minibatch" or "none"


class PPOBatch(NamedTuple):
    """What a gradient step needs. [T, N, ...] after `compute_batch`, [B, ...] as a minibatch."""

    observation: Observation
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


def make(env: Environment, network: Network, config: PPOConfig) -> Learner:
    """A PPO learner for the environment: `init(key)`, `update(state)`, and the network's own policy.

    The state's leaves over environments have leading axis N = num_envs. Both functions are pure.

    Raises:
        ConfigError: a configuration of another algorithm.
        UnsupportedEnvironmentError: see `check_environment`.
    """
    if not isinstance(config, PPOConfig):
        raise ConfigError(
            f"ppo.make: a {type(config).__name__} is of another algorithm", "make it with ppo_config(...)"
        )
    check_environment(env)
    settings = settings_of(env, config)
    environment, length = config.environment, config.training_core.rollout_length
    auto_reset = auto_reset_for(env, environment.num_envs, length, environment.reset_pool_size)
    policy = functools.partial(act, network, settings.factored)
    return Learner(
        init=functools.partial(init, auto_reset, network, make_hyper(config)),
        update=functools.partial(update, auto_reset, network, settings),
        policy=policy,
        network_policy=policy,
        sharded=rollout.SHARDED,
    )


def settings_of(env: Environment, config: PPOConfig) -> PPOSettings:
    """The fixed part of the program for this environment and configuration."""
    core, optimization, num_envs = config.training_core, config.optimization, config.environment.num_envs
    return PPOSettings(
        rollout_length=core.rollout_length,
        epochs=core.epochs,
        num_minibatches=core.num_minibatches,
        num_shards=minibatch.num_logical_shards(num_envs, core.rollout_length, core.num_minibatches),
        factored=env.action_spec.num_factors is not None,
        clips_value=optimization.value_clip_eps is not None,
        decays_rates=optimization.decay_learning_rates,
        standardization=optimization.standardize_advantages,
    )


def make_hyper(config: PPOConfig) -> PPOHyper:
    """The numbers of the configuration, float32 on the host; a null one becomes 0 and is not read."""
    values: dict[str, Any] = {name: np.float32(get_leaf(config, name) or 0.0) for name in PPOHyper._fields}
    return PPOHyper(**values)


def init(auto_reset: AutoReset, network: Network, hyper: PPOHyper, key: Key) -> PPOState:
    """A fresh state from the root key. Use under jit: eager resets alias buffers, which breaks donation."""
    playing = rollout.start(auto_reset, role_key(key, "reset"))
    params = network.init(role_key(key, "params"), playing.observation)
    return PPOState(
        params=params,
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(params),
        rollout=playing,
    )


def act(
    network: Network,
    factored: bool,
    params: NetworkParams,
    _env_state: EnvState,
    observation: Observation,
    key: Key,
    deterministic: bool,
) -> Array:
    """Actions [N] or [N, F] of the network alone; the environment's state is not looked at."""
    return distributions.act(key, network.actor(params, observation), deterministic, factored=factored)


def update(auto_reset: AutoReset, network: Network, settings: PPOSettings, state: PPOState) -> tuple[PPOState, Metrics]:
    """(the state one update later, metrics): play `rollout_length` steps, then `epochs` passes over them."""
    playing, transitions, episode_metrics = collect(auto_reset, network, settings, state)
    batch = compute_batch(network, settings, state, transitions, playing.observation)
    with phase("optimise"):
        params, optimizer, metrics = optimize(network, settings, state, batch)
    metrics |= episode_metrics
    metrics["trainer/explained_variance"] = losses.explained_variance(batch.value, batch.target)
    metrics["trainer/learning_rate"] = state.hyper.actor_lr * rate_factor(settings, state)
    state = state._replace(params=params, optimizer=optimizer, rollout=playing, step=state.step + 1)
    return state, metrics


def collect(
    auto_reset: AutoReset, network: Network, settings: PPOSettings, state: PPOState
) -> tuple[RolloutState, Transition, Metrics]:
    """One rollout of the current policy: (where playing stopped, transitions [T, N, ...], `actor/` metrics)."""

    def sample_action(_env_state: EnvState, observation: Observation, key: Key) -> tuple[Array, Array]:
        with phase("network"):
            logits = network.actor(state.params, observation)
            action = distributions.sample_rows(key, logits, factored=settings.factored)
            return action, distributions.log_prob(logits, action, factored=settings.factored)

    play_key = role_key(state.key, "rollout", state.step)
    pool_key = role_key(state.key, "pool", state.step)
    return rollout.collect(auto_reset, sample_action, state.rollout, play_key, pool_key, settings.rollout_length)


def compute_batch(
    network: Network,
    settings: PPOSettings,
    state: PPOState,
    transitions: Transition,
    final_observation: Observation,
) -> PPOBatch:
    """The rollout with values, advantages (standardised if over the batch) and value targets, [T, N, ...]."""
    values = batched_values(network, state.params, transitions.observation)  # [T, N]
    if transitions.next_observation is None:
        last_value = network.critic(state.params, final_observation)
        next_values = jnp.concatenate([values[1:], last_value[None]])  # a terminal step's discount hides the next level
    else:
        next_values = batched_values(network, state.params, transitions.next_observation)
    hyper = state.hyper
    advantage, target = returns.gae(
        transitions.reward * hyper.reward_scale,
        transitions.discount * hyper.gamma,
        transitions.is_last,
        values,
        next_values,
        hyper.gae_lambda,
    )
    if settings.standardization == "batch":
        advantage = returns.standardize(advantage)
    return PPOBatch(transitions.observation, transitions.action, transitions.record, values, advantage, target)


def batched_values(network: Network, params: NetworkParams, observations: Observation) -> Array:
    """Values [T, N] of observations [T, N, ...], in calls of about `VALUE_ROWS` rows."""
    steps_per_call = max(1, VALUE_ROWS // observations.action_mask.shape[1])
    with phase("network"):
        return jax.lax.map(lambda o: network.critic(params, o), observations, batch_size=steps_per_call)


def rate_factor(settings: PPOSettings, state: PPOState) -> Array:
    """What the learning rates are multiplied by in this update: 1, falling linearly to 0 if rates decay."""
    return linear_decay(settings.decays_rates, state.step, state.hyper.num_updates)


class _Learning(NamedTuple):
    params: NetworkParams
    optimizer: OptimizerState


def optimize(
    network: Network, settings: PPOSettings, state: PPOState, batch: PPOBatch
) -> tuple[NetworkParams, OptimizerState, Metrics]:
    """(parameters, optimiser state, mean metrics) after `epochs` passes of shuffled minibatches over [T, N, ...]."""
    sharded = minibatch.shard_rows(batch, settings.num_shards)
    rows = sharded.action.shape[1]
    factor, hyper = rate_factor(settings, state), state.hyper

    def gradient_step(learning: _Learning, indices: Array) -> tuple[_Learning, Metrics]:
        with phase("gather"):
            rows_taken = minibatch.take_minibatch(sharded, indices)
        gradients, metrics = jax.grad(loss, has_aux=True)(learning.params, network, settings, hyper, rows_taken)
        metrics["trainer/global_grad_norm"] = jnp.sqrt(trees.squared_norm(gradients))
        params, optimizer = apply_gradients(learning.params, learning.optimizer, gradients, hyper, factor)
        return _Learning(params, optimizer), metrics

    def epoch(learning: _Learning, key: Key) -> tuple[_Learning, Metrics]:
        indices = minibatch.shuffled_indices(key, settings.num_shards, rows, settings.num_minibatches)
        return jax.lax.scan(gradient_step, learning, indices)

    epoch_keys = jax.random.split(role_key(state.key, "shuffle", state.step), settings.epochs)
    learning, metrics = jax.lax.scan(epoch, _Learning(state.params, state.optimizer), epoch_keys)
    return learning.params, learning.optimizer, jax.tree.map(jnp.mean, metrics)


def loss(
    params: NetworkParams, network: Network, settings: PPOSettings, hyper: PPOHyper, batch: PPOBatch
) -> tuple[Array, Metrics]:
    """(the scalar to minimise, its parts as metrics) of a minibatch [B, ...]."""
    logits, value = network.actor_critic(params, batch.observation)
    log_prob = distributions.log_prob(logits, batch.action, factored=settings.factored)
    entropy = jnp.mean(distributions.entropy(logits, factored=settings.factored))
    advantage = batch.advantage
    if settings.standardization == "minibatch":
        advantage = returns.standardize(advantage)
    policy_loss = jnp.mean(losses.clipped_surrogate(log_prob, batch.log_prob, advantage, hyper.clip_eps))
    if settings.clips_value:
        errors = losses.clipped_squared_error(value, batch.value, batch.target, hyper.value_clip_eps)
    else:
        errors = losses.squared_error(value, batch.target)
    value_loss = jnp.mean(errors)
    ratio_error = jnp.abs(jnp.exp(log_prob - batch.log_prob) - 1.0)
    metrics = {
        "trainer/policy_loss": policy_loss,
        "trainer/value_loss": value_loss,
        "trainer/entropy": entropy,
        "trainer/approx_kl": jnp.mean(losses.approximate_kl(log_prob, batch.log_prob)),
        "trainer/clip_fraction": jnp.mean(ratio_error > hyper.clip_eps),
    }
    return policy_loss + hyper.vf_coef * value_loss - hyper.ent_coef * entropy, metrics
