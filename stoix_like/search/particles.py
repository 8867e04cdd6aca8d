"""The particles of a search: how they are weighed by their advantages, drawn anew, and what they remember.

Resampling draws by the score alone, which is what the search has found. The prior stays in the weights: if resampling
drew by it too, all first actions of a sharp policy would become its favourite at the first resampling.

Each particle becomes a copy of its ancestor in all but three values, which describe the first draw of the search: the
advantage, and in the output the log prior ratio and the initial root action.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.search import resampling
from stoix_like.search.model import SearchConfig, Temperature, depth_of, may_resample
from stoix_like.search.roots import Roots
from stoix_like.types import Array, EnvState, Key


class Paths(NamedTuple):
    """What every particle did, as it ended; zeros after its end. H is the depth."""

    actions: Array  # [N, P, H] or [N, P, H, F] int32
    rewards: Array  # [N, P, H]
    num_steps: Array  # [N, P] int32
    is_finished: Array  # [N, P] bool: the episode ended, within the depth


class Particles(NamedTuple):
    """N searches of P particles each; every leaf is [N, P, ...]."""

    env_state: EnvState
    logits: Array  # [N, P, A] or [N, P, F, A], of the next action
    value: Array
    root_action: Array
    score: Array  # advantages accumulated since the last resampling
    log_prior: Array  # what the weights began with
    scale: Array  # product of gamma * lambda * discount so far
    alive: Array  # bool: the episode goes on
    resampled: Array  # bool: a resampling happened
    advantage: Array  # advantages accumulated up to the first resampling; never gathered
    num_steps: Array  # int32
    paths: Paths | None


def start(env_state: EnvState, logits: Array, value: Array, drawn: Roots, config: SearchConfig) -> Particles:
    """P particles in each of N root states, with the first actions that were drawn for them.

    Args:
        env_state: of the roots, leading axis N.
        logits: of the roots, likewise.
        value: of the roots [N].
        drawn: their first actions and log-weights, see `roots.propose`.
        config: of the search.
    """

    def spread(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], (x.shape[0], config.num_particles, *x.shape[1:]))

    zeros = jnp.zeros_like(drawn.log_weights)
    return Particles(
        env_state=jax.tree.map(spread, env_state),
        logits=spread(logits),
        value=spread(value),
        root_action=drawn.actions,
        score=zeros,
        log_prior=drawn.log_weights,
        scale=jnp.ones_like(zeros),
        alive=jnp.ones_like(zeros, dtype=bool),
        resampled=jnp.zeros_like(zeros, dtype=bool),
        advantage=zeros,
        num_steps=jnp.zeros_like(zeros, dtype=jnp.int32),
        paths=_empty_paths(drawn.actions, depth_of(config)) if config.record_paths else None,
    )


def _empty_paths(actions: Array, horizon: int) -> Paths:
    rows, (num_envs, num_particles, *factors) = (horizon,), actions.shape
    return Paths(
        jnp.zeros((num_envs, num_particles, *rows, *factors), jnp.int32),
        jnp.zeros((num_envs, num_particles, *rows), jnp.float32),
        jnp.zeros((num_envs, num_particles), jnp.int32),
        jnp.zeros((num_envs, num_particles), bool),
    )


def log_weights(particles: Particles, temperature: Temperature) -> Array:
    """Log-weights [N, P], not normalised: the prior and the evidence."""
    return particles.log_prior + log_evidence(particles, temperature)


def log_evidence(particles: Particles, temperature: Temperature) -> Array:
    """Score over temperature [N, P], which is what particles are resampled by and how many of them count.

    0 for the best of a search: a prior beside a score of millions would be lost in float32.
    """
    given = temperature(particles.score) if callable(temperature) else temperature
    given = jnp.asarray(given, jnp.float32)
    score = particles.score - jnp.max(particles.score, axis=1, keepdims=True)
    return score / (given[:, None] if given.ndim else given)


def resample_if_due(
    key: Key, depth: Array, particles: Particles, temperature: Temperature, config: SearchConfig
) -> Particles:
    """The particles drawn anew by evidence, in the searches where it is time; never before the first depth."""
    if not may_resample(config):
        return particles
    current = log_evidence(particles, temperature)
    if config.resampling == "period":
        due = jnp.broadcast_to(depth % config.resampling_period == 0, current.shape[:1])
    else:
        sizes = resampling.effective_sample_size(current)
        due = sizes < config.resampling_ess_threshold * config.num_particles
    due &= (depth > 0) & jnp.any(particles.alive, axis=1)  # at the end it would only add noise
    draw = resampling.systematic if config.resampler == "systematic" else resampling.multinomial

    def resample(particles: Particles) -> Particles:
        stay = jnp.arange(config.num_particles, dtype=jnp.int32)[None]
        ancestors = jnp.where(due[:, None], draw(key, current), stay)  # [N, P]
        gathered = gather_particles(particles, ancestors)
        return gathered._replace(
            score=jnp.where(due[:, None], 0.0, gathered.score),
            resampled=gathered.resampled | due[:, None],
        )

    return jax.lax.cond(jnp.any(due), resample, lambda p: p, particles)  # a real branch: nothing is gathered in vain


def gather_particles(particles: Particles, ancestors: Array) -> Particles:
    """Every particle as a copy of its ancestor [N, P], but for the advantage, which belongs to the first draw."""

    def take(of_one: Particles, chosen: Array) -> Particles:
        return jax.tree.map(lambda x: x.at[chosen].get(mode="promise_in_bounds"), of_one)

    # By vmap: the environments may be spread over devices, and each takes of its own alone.
    gathered: Particles = jax.vmap(take)(particles, ancestors)
    return gathered._replace(advantage=particles.advantage)


def advantage_of_step(
    reward: Array, discount: Array, next_value: Array, value: Array, alive: Array, gamma: Array | float
) -> Array:
    """r + gamma * discount * V(s') - V(s) [N, P]; 0 for particles that had ended, V(s') unread after a termination."""
    bootstrap = jnp.where(discount > 0.0, gamma * discount * next_value, 0.0)
    return jnp.where(alive, reward + bootstrap - value, 0.0)


def weigh(particles: Particles, delta: Array, alive: Array, discount: Array, config: SearchConfig) -> Particles:
    """The particles with a step's advantage [N, P] added; `alive` and `discount` are those before and of the step."""
    step = particles.scale * delta
    factor = jnp.asarray(config.gamma * config.gae_lambda, jnp.float32) * discount
    return particles._replace(
        score=particles.score + step,
        advantage=particles.advantage + jnp.where(particles.resampled, 0.0, step),
        scale=jnp.where(alive, particles.scale * factor, particles.scale),
    )


def remember(particles: Particles, depth: Array, action: Array, reward: Array, alive: Array) -> Particles:
    """The particles with the step they took at this depth in their paths, if paths are recorded."""
    paths = particles.paths
    if paths is None:
        return particles
    shown = alive.reshape(alive.shape + (1,) * (action.ndim - 2))
    longer = Paths(
        paths.actions.at[:, :, depth].set(jnp.where(shown, action, 0)),
        paths.rewards.at[:, :, depth].set(jnp.where(alive, reward, 0.0)),
        particles.num_steps,
        ~particles.alive,
    )
    return particles._replace(paths=longer)
