"""Sequential Monte Carlo search: particles walk through a model, are weighed by their advantages and drawn anew.

Source: SPO (Macfarlane et al. 2024, arXiv 2402.07963), Algorithm 1, with these differences: actions are masked; they
are drawn after a resampling, never before it; terminal states end the sum; nothing is resampled at the last depth,
which would only add noise; weights and temperature see the same sum of advantages. The search knows neither environment
nor network: both arrive as functions of `SearchModel`, and states are whatever pytrees those functions take.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from stoix_like.ops import distributions, trees
from stoix_like.ops.groups import action_groups, summed
from stoix_like.ops.phases import phase
from stoix_like.search import particles as cloud
from stoix_like.search import resampling, roots
from stoix_like.search.diagnostics import SearchDiagnostics, diagnose
from stoix_like.search.model import (
    Root,
    SearchConfig,
    SearchModel,
    Temperature,
    check,
    check_call,
    check_model,
    depth_of,
)
from stoix_like.search.particles import Particles, Paths
from stoix_like.types import Array, Key, Observation, Params


class SearchOutput(NamedTuple):
    """What a search found. The first of two root actions of a particle is what it was drawn with."""

    action: Array  # [N] or [N, F], drawn from `root_actions` by `root_weights`
    root_actions: Array  # [N, P] or [N, P, F], of the particles as they ended
    root_weights: Array  # [N, P], sums to 1
    initial_root_actions: Array  # [N, P] or [N, P, F], beside the next two
    sampled_advantages: Array  # [N, P] reward units, up to the first resampling
    log_prior_ratio: Array  # [N, P] nats, what the weights began with
    value: Array  # [N], of the root
    diagnostics: SearchDiagnostics
    paths: Paths | None  # if `record_paths`


class _Carry(NamedTuple):
    depth: Array  # []
    particles: Particles
    effective_sample_size: Array  # [H, N]
    model_steps: Array  # [N] int32


def search(
    model: SearchModel, params: Params, key: Key, root: Root, temperature: Temperature, config: SearchConfig
) -> SearchOutput:
    """N independent searches from the root states. Pure; the states passed in are not changed. The key is consumed.

    Every particle draws an action from its own policy, steps, and adds the advantage of that step, so that after d
    steps its weight is exp(sum of (gamma * lambda)^d * (r + gamma * V(s') - V(s)) / temperature). A termination ends
    the sum without V(s'), a truncation with it; finished particles keep their weight and state.

    Args:
        model: what is searched.
        params: of the model's networks.
        key: consumed.
        root: leading axis N.
        temperature: reward units; a scalar, [N], or a function of the accumulated advantages.
        config: how.

    Raises:
        ConfigError: see `model.check`, `model.check_model` and `model.check_call`.
    """
    check(config, factored=root.observation.action_mask.ndim == 3)
    check_model(model)
    check_call(root, temperature)
    with phase("search"):
        return _search(model, params, key, root, temperature, config)


def _search(
    model: SearchModel, params: Params, key: Key, root: Root, temperature: Temperature, config: SearchConfig
) -> SearchOutput:
    horizon = depth_of(config)
    root_key, walk_key, action_key = jax.random.split(key, 3)
    particles, drawn, value = _start(model, params, root_key, root, config)

    def advance(carry: _Carry) -> _Carry:
        return _advance(model, params, walk_key, temperature, config, carry)

    num_envs = value.shape[0]
    unreached = jnp.zeros((horizon, num_envs), jnp.float32)
    carry = _Carry(jnp.int32(0), particles, unreached, jnp.zeros((num_envs,), jnp.int32))
    if config.search_depth == "full":
        carry = jax.lax.while_loop(lambda c: jnp.any(c.particles.alive) & (c.depth < horizon), advance, carry)
    else:
        carry = jax.lax.fori_loop(0, horizon, lambda _, c: advance(c), carry)
    return _read_out(action_key, carry, drawn, value, temperature)


def _start(
    model: SearchModel, params: Params, key: Key, root: Root, config: SearchConfig
) -> tuple[Particles, roots.Roots, Array]:
    """(particles at the root, their first actions and log-weights, root values [N])."""
    with phase("network"):
        logits, value = _logits_and_value(model, params, root.observation)
        chex.assert_rank(value, 1)
        noise = roots.Noise(config.dirichlet_alpha, config.dirichlet_fraction)
        mask = root.observation.action_mask
        drawn = roots.propose(key, logits, mask, config.num_particles, config.root, noise, config.root_noise_correction)
    return cloud.start(root.env_state, logits, value, drawn, config), drawn, value


def _logits_and_value(model: SearchModel, params: Params, observation: Observation) -> tuple[Array, Array]:
    if model.logits_and_value is not None:
        return model.logits_and_value(params, observation)
    return model.logits(params, observation), model.value(params, observation)


def _advance(
    model: SearchModel, params: Params, key: Key, temperature: Temperature, config: SearchConfig, carry: _Carry
) -> _Carry:
    """One depth: resample where due, draw actions, step, weigh."""
    depth, particles = carry.depth, carry.particles
    resample_key, action_key, rekey_key = jax.random.split(jax.random.fold_in(key, depth), 3)
    with phase("gather"):
        particles = cloud.resample_if_due(resample_key, depth, particles, temperature, config)
    with phase("network"):
        action = _next_action(action_key, depth, particles, config)
    alive_before = particles.alive
    particles, observation, reward, discount = _step_model(model, rekey_key, particles, action)
    is_last_depth = depth == depth_of(config) - 1
    with phase("network"):
        logits, value = _evaluate(model, params, observation, particles.logits, is_last_depth)
    delta = cloud.advantage_of_step(reward, discount, value, particles.value, alive_before, config.gamma)
    particles = cloud.weigh(particles, delta, alive_before, discount, config)
    particles = particles._replace(
        logits=logits,
        value=jnp.where(alive_before, value, particles.value),
        num_steps=particles.num_steps + alive_before,
    )
    particles = cloud.remember(particles, depth, action, reward, alive_before)
    num_moved = jnp.sum(alive_before, axis=1, dtype=jnp.int32)
    sizes = resampling.effective_sample_size(cloud.log_evidence(particles, temperature))
    sizes = jnp.where(num_moved > 0, sizes, 0.0)
    return _Carry(depth + 1, particles, carry.effective_sample_size.at[depth].set(sizes), carry.model_steps + num_moved)


def _next_action(key: Key, depth: Array, particles: Particles, config: SearchConfig) -> Array:
    """Actions [N, P] or [N, P, F]: the root's at depth 0, then what the particle's own logits give."""
    logits = trees.merge_leading(particles.logits)  # [N * P, ...]
    factored = logits.ndim == 3
    if config.continuation == "greedy":
        action = distributions.mode(logits)
    else:
        action = distributions.sample_many(key, logits, 1, factored=factored)[:, 0]
    return jnp.where(depth == 0, particles.root_action, action.reshape(particles.root_action.shape))


def _step_model(
    model: SearchModel, key: Key, particles: Particles, action: Array
) -> tuple[Particles, Observation, Array, Array]:
    """(particles in their next states, observations [N * P, ...], rewards and discounts [N, P]); ended ones stay."""
    shape = particles.alive.shape
    states, actions = trees.merge_leading((particles.env_state, action))
    with phase("model"):
        if model.rekey is not None:
            states = model.rekey(states, jax.random.split(key, shape[0] * shape[1]))
        stepped, timestep = model.step(states, actions)
        kept = trees.where(particles.alive.reshape(-1), stepped, states)
    rewards, discounts, is_last = (x.reshape(shape) for x in (timestep.reward, timestep.discount, timestep.last()))
    kept = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), kept)
    moved = particles._replace(env_state=kept, alive=particles.alive & ~is_last)
    return moved, timestep.observation, rewards, discounts


def _evaluate(
    model: SearchModel, params: Params, observation: Observation, old_logits: Array, is_last_depth: Array
) -> tuple[Array, Array]:
    """(logits [N, P, ...], values [N, P]); at the last depth the policy is not asked, for nobody acts on it."""

    def both(observation: Observation) -> tuple[Array, Array]:
        logits, value = _logits_and_value(model, params, observation)
        return logits.reshape(old_logits.shape), value

    def value_alone(observation: Observation) -> tuple[Array, Array]:
        return old_logits, model.value(params, observation)

    logits, value = jax.lax.cond(is_last_depth, value_alone, both, observation)
    return logits, value.reshape(old_logits.shape[:2])


def _read_out(key: Key, carry: _Carry, drawn: roots.Roots, value: Array, temperature: Temperature) -> SearchOutput:
    particles = carry.particles
    final = cloud.log_weights(particles, temperature)
    weights = jax.nn.softmax(final, axis=-1)
    chosen = distributions.sample_many(key, final, 1)  # [N, 1]
    return SearchOutput(
        action=jnp.take_along_axis(particles.root_action, _beside(chosen, particles.root_action), axis=1)[:, 0],
        root_actions=particles.root_action,
        root_weights=weights,
        initial_root_actions=drawn.actions,
        sampled_advantages=particles.advantage,
        log_prior_ratio=drawn.log_weights,
        value=value,
        diagnostics=diagnose(
            particles.root_action,
            drawn.actions,
            weights,
            jax.nn.softmax(particles.log_prior, axis=-1),
            jax.nn.softmax(drawn.log_weights, axis=-1),
            carry.effective_sample_size,
            carry.model_steps,
        ),
        paths=particles.paths,
    )


def _beside(indices: Array, x: Array) -> Array:
    return indices.reshape(indices.shape + (1,) * (x.ndim - indices.ndim))


def best_action(output: SearchOutput) -> Array:
    """The root action with the largest weight in all, [N] or [N, F]; the first particle's among equals."""
    groups = action_groups(output.root_actions)
    total = summed(output.root_weights, groups, groups.shape[1])
    total = jnp.take_along_axis(total, groups, axis=1)  # [N, P]
    best = jnp.argmax(total, axis=-1)[:, None]
    return jnp.take_along_axis(output.root_actions, _beside(best, output.root_actions), axis=1)[:, 0]
