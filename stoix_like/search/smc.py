"""Sequential Monte Carlo search: particles walk through a model, are weighed by their advantages and drawn anew.

Source: SPO (Macfarlane et al. 2024, arXiv 2402.07963), Algorithm 1, with these differences: actions are masked; they
are drawn after a resampling, never before it; terminal states end the sum; nothing is resampled at the last depth,
which would only add noise; weights and temperature see the same sum of advantages. The search knows neither environment
nor network: both arrive as functions of `SearchModel`, and states are whatever pytrees those functions take.

A resampling makes each particle a copy of its ancestor in all but three things, which belong to the first draw of the
search and not to what became of it: the advantage, the log prior ratio and the initial root action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from stoix_like.errors import ConfigError
from stoix_like.ops import distributions, trees
from stoix_like.ops.phases import phase
from stoix_like.search import resampling, roots
from stoix_like.search.diagnostics import SearchDiagnostics, action_groups, diagnose, summed
from stoix_like.types import Array, EnvState, Key, Observation, Params, TimeStep

StepFunction = Callable[[EnvState, Array], tuple[EnvState, TimeStep]]
#: The temperature, or how it follows from the advantages [N, P] accumulated so far: -> [N].
Temperature = Array | float | Callable[[Array], Array]


class SearchModel(NamedTuple):
    """What is searched, as functions over M = N * P rows.

    Attributes:
        step: (states [M, ...], actions [M] or [M, F]) -> (states, TimeStep). Raw: it never resets.
        logits: (params, observations) -> masked logits [M, A] or [M, F, A].
        value: (params, observations) -> [M].
        rekey: (states, keys [M]) -> states with their own randomness replaced, at every depth: clones would share
            their future otherwise, and all particles the future that will come true. None if `step` is deterministic.
        logits_and_value: (params, observations) -> both, for networks that share a torso. Default: one after the other.
    """

    step: StepFunction
    logits: Callable[[Params, Observation], Array]
    value: Callable[[Params, Observation], Array]
    rekey: Callable[[EnvState, Key], EnvState] | None = None
    logits_and_value: Callable[[Params, Observation], tuple[Array, Array]] | None = None


class Root(NamedTuple):
    """Where N searches begin. Whether the step that led there ended an episode does not matter."""

    env_state: EnvState  # [N, ...]
    observation: Observation  # [N, ...]


class SearchConfig(NamedTuple):
    """How is searched. The numbers with a point may be traced scalars; the rest shapes the program."""

    num_particles: int = 16
    search_depth: int | Literal["full"] = 4  # model steps; full: until all particles are finished
    max_depth: int | None = None  # steps after which `full` gives up; needed by it
    gamma: Array | float = 0.99
    gae_lambda: Array | float = 1.0
    root: roots.RootKind = "iid"
    continuation: Literal["sampled", "greedy"] = "sampled"
    dirichlet_alpha: Array | float = 1.0
    dirichlet_fraction: Array | float = 0.0  # the number 0.0 leaves the noise out of the program
    root_noise_correction: bool = False
    resampling: Literal["period", "ess", "none"] = "period"
    resampling_period: int = 4  # depths
    resampling_ess_threshold: Array | float = 0.5  # share of P
    resampler: Literal["systematic", "multinomial"] = "systematic"
    record_paths: bool = False


class Paths(NamedTuple):
    """What every particle did, as it ended; zeros after its end. H is the depth."""

    actions: Array  # [N, P, H] or [N, P, H, F] int32
    rewards: Array  # [N, P, H]
    num_steps: Array  # [N, P] int32
    is_finished: Array  # [N, P] bool: the episode ended, within the depth


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


class Particles(NamedTuple):
    """N searches of P particles each; every leaf is [N, P, ...]."""

    env_state: EnvState
    logits: Array  # [N, P, A] or [N, P, F, A], of the next action
    value: Array
    root_action: Array
    score: Array  # advantages accumulated since the last resampling
    log_prior: Array  # what the weights began with; 0 after a resampling
    scale: Array  # product of gamma * lambda * discount so far
    alive: Array  # bool: the episode goes on
    resampled: Array  # bool: a resampling happened
    advantage: Array  # advantages accumulated up to the first resampling; never gathered
    num_steps: Array  # int32
    paths: Paths | None


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
        ConfigError: a depth or a number of particles below 1, `full` without an end, or distinct roots for a factored
            action.
    """
    horizon = depth_of(config)
    root_key, walk_key, action_key = jax.random.split(key, 3)
    particles, drawn, value = _start(model, params, root_key, root, config)

    def advance(carry: _Carry) -> _Carry:
        return _advance(model, params, walk_key, temperature, config, carry)

    num_envs = value.shape[0]
    full_size = jnp.full((horizon, num_envs), config.num_particles, jnp.float32)
    carry = _Carry(jnp.int32(0), particles, full_size, jnp.zeros((num_envs,), jnp.int32))
    if config.search_depth == "full":
        carry = jax.lax.while_loop(lambda c: jnp.any(c.particles.alive) & (c.depth < horizon), advance, carry)
    else:
        carry = jax.lax.fori_loop(0, horizon, lambda _, c: advance(c), carry)
    return _read_out(action_key, carry, drawn, value, temperature)


def depth_of(config: SearchConfig) -> int:
    """The most model steps a particle takes.

    Raises:
        ConfigError: as `search`.
    """
    horizon = config.max_depth if config.search_depth == "full" else config.search_depth
    if horizon is None:
        raise ConfigError(
            "search_depth: full needs an end, and this environment states no time limit",
            "give a number of model steps, or max_episode_steps",
        )
    if min(horizon, config.num_particles, config.resampling_period) < 1:
        sizes = f"search_depth {horizon}, num_particles {config.num_particles}, period {config.resampling_period}"
        raise ConfigError(f"search: {sizes} must be at least 1", "raise what is below 1")
    return horizon


def may_resample(config: SearchConfig) -> bool:
    """Whether particles can be resampled within the search, so that their root actions may differ from those drawn."""
    if config.resampling == "none" or depth_of(config) < 2:
        return False
    return config.resampling == "ess" or config.resampling_period < depth_of(config)


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

    def spread(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], (x.shape[0], config.num_particles, *x.shape[1:]))

    zeros = jnp.zeros_like(drawn.log_weights)
    particles = Particles(
        env_state=jax.tree.map(spread, root.env_state),
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
    return particles, drawn, value


def _logits_and_value(model: SearchModel, params: Params, observation: Observation) -> tuple[Array, Array]:
    if model.logits_and_value is not None:
        return model.logits_and_value(params, observation)
    return model.logits(params, observation), model.value(params, observation)


def _empty_paths(actions: Array, horizon: int) -> Paths:
    rows, (num_envs, num_particles, *factors) = (horizon,), actions.shape
    return Paths(
        jnp.zeros((num_envs, num_particles, *rows, *factors), jnp.int32),
        jnp.zeros((num_envs, num_particles, *rows), jnp.float32),
        jnp.zeros((num_envs, num_particles), jnp.int32),
        jnp.zeros((num_envs, num_particles), bool),
    )


def _advance(
    model: SearchModel, params: Params, key: Key, temperature: Temperature, config: SearchConfig, carry: _Carry
) -> _Carry:
    """One depth: resample where due, draw actions, step, weigh."""
    depth, particles = carry.depth, carry.particles
    resample_key, action_key, rekey_key = jax.random.split(jax.random.fold_in(key, depth), 3)
    with phase("gather"):
        particles = _resample_if_due(resample_key, depth, particles, temperature, config)
    with phase("network"):
        action = _next_action(action_key, depth, particles, config)
    alive_before = particles.alive
    particles, observation, reward, discount = _step_model(model, rekey_key, particles, action)
    is_last_depth = depth == depth_of(config) - 1
    with phase("network"):
        logits, value = _evaluate(model, params, observation, particles.logits, is_last_depth)
    delta = _delta(reward, discount, value, particles.value, alive_before, config.gamma)
    particles = _weigh(particles, delta, alive_before, discount, config)
    particles = particles._replace(
        logits=logits,
        value=jnp.where(alive_before, value, particles.value),
        num_steps=particles.num_steps + alive_before,
    )
    if particles.paths is not None:
        particles = particles._replace(paths=_extend(particles, depth, action, reward, alive_before))
    sizes = resampling.effective_sample_size(log_weights(particles, temperature))
    model_steps = carry.model_steps + jnp.sum(alive_before, axis=1, dtype=jnp.int32)
    return _Carry(depth + 1, particles, carry.effective_sample_size.at[depth].set(sizes), model_steps)


def log_weights(particles: Particles, temperature: Temperature) -> Array:
    """Log-weights [N, P], not normalised."""
    given = temperature(particles.score) if callable(temperature) else temperature
    given = jnp.asarray(given, jnp.float32)
    return particles.log_prior + particles.score / (given[:, None] if given.ndim else given)


def _resample_if_due(
    key: Key, depth: Array, particles: Particles, temperature: Temperature, config: SearchConfig
) -> Particles:
    if not may_resample(config):
        return particles
    current = log_weights(particles, temperature)
    if config.resampling == "period":
        due = jnp.broadcast_to(depth % config.resampling_period == 0, current.shape[:1])
    else:
        sizes = resampling.effective_sample_size(current)
        due = sizes < config.resampling_ess_threshold * config.num_particles
    due &= depth > 0
    draw = resampling.systematic if config.resampler == "systematic" else resampling.multinomial

    def resample(particles: Particles) -> Particles:
        stay = jnp.arange(config.num_particles, dtype=jnp.int32)[None]
        ancestors = jnp.where(due[:, None], draw(key, current), stay)  # [N, P]
        gathered = gather_particles(particles, ancestors)
        return gathered._replace(
            score=jnp.where(due[:, None], 0.0, gathered.score),
            log_prior=jnp.where(due[:, None], 0.0, gathered.log_prior),
            resampled=gathered.resampled | due[:, None],
        )

    return jax.lax.cond(jnp.any(due), resample, lambda p: p, particles)  # a real branch: nothing is gathered in vain


def gather_particles(particles: Particles, ancestors: Array) -> Particles:
    """Every particle as a copy of its ancestor [N, P], but for the advantage, which belongs to the first draw."""

    def take(x: Array) -> Array:
        rows = jnp.arange(ancestors.shape[0])[:, None]
        return x.at[rows, ancestors].get(mode="promise_in_bounds")

    return jax.tree.map(take, particles)._replace(advantage=particles.advantage)


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
    with phase("step"):
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


def _delta(
    reward: Array, discount: Array, next_value: Array, value: Array, alive: Array, gamma: Array | float
) -> Array:
    """r + gamma * discount * V(s') - V(s) [N, P]; 0 for particles that had ended, V(s') unread after a termination."""
    bootstrap = jnp.where(discount > 0.0, gamma * discount * next_value, 0.0)
    return jnp.where(alive, reward + bootstrap - value, 0.0)


def _weigh(particles: Particles, delta: Array, alive: Array, discount: Array, config: SearchConfig) -> Particles:
    step = particles.scale * delta
    factor = jnp.asarray(config.gamma * config.gae_lambda, jnp.float32) * discount
    return particles._replace(
        score=particles.score + step,
        advantage=particles.advantage + jnp.where(particles.resampled, 0.0, step),
        scale=jnp.where(alive, particles.scale * factor, particles.scale),
    )


def _extend(particles: Particles, depth: Array, action: Array, reward: Array, alive: Array) -> Paths | None:
    paths = particles.paths
    if paths is None:
        return None
    shown = alive.reshape(alive.shape + (1,) * (action.ndim - 2))
    return Paths(
        paths.actions.at[:, :, depth].set(jnp.where(shown, action, 0)),
        paths.rewards.at[:, :, depth].set(jnp.where(alive, reward, 0.0)),
        particles.num_steps,
        ~particles.alive,
    )


def _read_out(key: Key, carry: _Carry, drawn: roots.Roots, value: Array, temperature: Temperature) -> SearchOutput:
    particles = carry.particles
    final = log_weights(particles, temperature)
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
    total = jnp.take_along_axis(summed(output.root_weights, groups), groups, axis=1)  # [N, P]
    best = jnp.argmax(total, axis=-1)[:, None]
    return jnp.take_along_axis(output.root_actions, _beside(best, output.root_actions), axis=1)[:, 0]
