"""Stepping many environments that restart by themselves, with fresh levels taken from a pool.

Under `vmap` a conditional reset becomes a select, so every environment makes a level at every step: on Maze that is
99 % of the time. Here levels are made in batches once per rollout, by a loop that runs only as often as levels were
consumed, and are handed out as episodes end. Left out: a `cond` around the reset (a select again when seeds are
vmapped) and a cyclic pool (it hands out the same level twice with one key).

The step that ends an episode carries the terminal reward and discount; the observation and the mask beside it belong to
the next episode ("One-Strike").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.config.checks.values import LARGEST_WHOLE
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.ops.phases import phase
from stoix_like.types import Array, Environment, EnvState, Key, Observation, TimeStep


class LevelPool(NamedTuple):
    """Levels ready to be played. Slots [0, stock) are fresh, the others were handed out before."""

    states: EnvState  # [S, ...]
    observations: Observation  # [S, ...], the first of each level
    stock: Array  # [] int32


class ResetDraws(NamedTuple):
    """What is random when environments restart at one step, whether any of them does."""

    slots: Array  # [N] int32, of a level that is handed out again if none is fresh
    keys: Key | None  # [N], for `Environment.rekey`; None if it has none


class AutoReset(NamedTuple):
    """N environments that restart by themselves.

    Attributes:
        init: key -> (states [N, ...], first time steps [N, ...], full pool). Use under jit.
        refill: (pool, key) -> pool, with whole batches of fresh levels in the slots that were consumed. Leftovers stay.
        draw: (key, length T) -> (a key for each step's actions [T], draws of its restarts [T, ...]). Called before
            a rollout's scan: in it they are hundreds of small operations a step, one after the other.
        step: (states, actions, pool, draws) -> (states, time steps, pool, levels reused [] int32). Where an episode
            ends, the state and the observation are those of the next level, all else is the finished episode's.
            Each state handed out is rekeyed; of an environment without `rekey` a level reused is played as before.
            `extras["episode_metrics"]` holds the environment's metrics, of use where the step is LAST;
            `extras["next_obs"]` the true next observation, only if the environment can truncate.
    """

    init: Callable[[Key], tuple[EnvState, TimeStep, LevelPool]]
    refill: Callable[[LevelPool, Key], LevelPool]
    draw: Callable[[Key, int], tuple[Key, ResetDraws]]
    step: Callable[[EnvState, Array, LevelPool, ResetDraws], tuple[EnvState, TimeStep, LevelPool, Array]]


def auto_reset_for(
    env: Environment, num_envs: int, rollout_length: int, pool_size: int | Literal["auto"] = "auto"
) -> AutoReset:
    """Auto-reset for a learner that refills once per rollout; `pool_size` as in the leaf `reset_pool_size`.

    An environment that is neither deterministic nor has a `rekey` gets a level for every step: one that is handed out
    twice would repeat its randomness.

    Raises:
        ConfigError: fewer levels were asked for than such an environment needs, or see `make_auto_reset`.
    """
    needed = 0 if env.deterministic or env.rekey is not None else _never_empty(num_envs, num_envs * rollout_length)
    if pool_size != "auto" and pool_size < needed:
        raise ConfigError(
            f"environment.reset_pool_size: {pool_size:,} levels may run out, and a level of {env.task_id} that is"
            " played twice repeats its randomness: it has no rekey",
            f"leave it auto, ask for {needed:,}, or give the Environment rekey=lambda state, key: ...",
        )
    size = max(needed, auto_pool_size(num_envs, rollout_length)) if pool_size == "auto" else pool_size
    return make_auto_reset(env, num_envs, size, refill_batch_size(num_envs))


def refill_batch_size(num_envs: int) -> int:
    """Levels made at once, [32, 1024]: enough to be vectorised, few enough that little is made beyond what was used."""
    return min(max(num_envs, 32), 1024)


def auto_pool_size(num_envs: int, rollout_length: int) -> int:
    """Levels kept in stock, in number a multiple of the refill batch.

    A small run gets one for every step it plays, so a level is never reused. A large one gets a quarter of that, as
    its stock only runs out if episodes last less than four steps on average; the pool's memory would matter otherwise.
    """
    num_steps = num_envs * rollout_length
    size = num_steps if num_steps <= 4096 else max(4096, num_envs * -(-rollout_length // 4))
    return _never_empty(num_envs, size)


def _never_empty(num_envs: int, num_levels: int) -> int:
    """Slots of a pool that has `num_levels` levels after every refill, which may stop one short of a batch."""
    batch_size = refill_batch_size(num_envs)
    return _round_up(num_levels + batch_size - 1, batch_size)


def make_auto_reset(env: Environment, num_envs: int, pool_size: int, batch_size: int) -> AutoReset:
    """Auto-reset of `num_envs` environments from a pool of at least `pool_size` levels.

    It is refilled `batch_size` levels at a time and rounded up to whole batches; a batch larger than the pool is cut
    down to it. An empty pool hands out levels again, with new randomness from `env.rekey`. Without it the randomness
    repeats unless the environment is deterministic; `auto_reset_for` refuses such sizes.

    Raises:
        ConfigError: a size below 1, or a pool that int32 cannot count.
    """
    if min(num_envs, pool_size, batch_size) < 1:
        what = f"auto-reset: num_envs = {num_envs}, pool_size = {pool_size}, batch_size = {batch_size} must be positive"
        raise ConfigError(what, "raise environment.num_envs or environment.reset_pool_size to at least 1")
    batch_size = min(batch_size, pool_size)
    num_slots = _round_up(pool_size, batch_size)
    if num_slots + batch_size > LARGEST_WHOLE:  # the sum is formed on the device, in `has_room`
        raise ConfigError(
            f"environment.reset_pool_size: a pool of {num_slots:,} levels is more than can be counted",
            "lower --reset-pool-size, --num-envs or --rollout-length",
        )

    def init(key: Key) -> tuple[EnvState, TimeStep, LevelPool]:
        return _init(env, num_envs, num_slots, batch_size, key)

    def refill(pool: LevelPool, key: Key) -> LevelPool:
        return _refill(env, batch_size, pool, key)

    def draw(key: Key, length: int) -> tuple[Key, ResetDraws]:
        act_keys, reset_keys = jnp.moveaxis(jax.vmap(jax.random.split)(jax.random.split(key, length)), 1, 0)
        return act_keys, jax.vmap(lambda of_step: _draw(env, num_envs, num_slots, of_step))(reset_keys)

    def step(
        states: EnvState, actions: Array, pool: LevelPool, draws: ResetDraws
    ) -> tuple[EnvState, TimeStep, LevelPool, Array]:
        return _step(env, states, actions, pool, draws)

    return AutoReset(init, refill, draw, step)


def _init(
    env: Environment, num_envs: int, num_slots: int, batch_size: int, key: Key
) -> tuple[EnvState, TimeStep, LevelPool]:
    level_key, pool_key = jax.random.split(key)
    states, timesteps = jax.vmap(env.reset)(jax.random.split(level_key, num_envs))

    def empty(x: Array) -> Array:
        return jnp.broadcast_to(x[:1], (num_slots, *x.shape[1:]))  # a key array cannot be made of zeros

    pool = LevelPool(jax.tree.map(empty, states), jax.tree.map(empty, timesteps.observation), jnp.int32(0))
    timesteps = _with_extras(env, states, timesteps)
    return states, timesteps, _refill(env, batch_size, pool, pool_key)


def _refill(env: Environment, batch_size: int, pool: LevelPool, key: Key) -> LevelPool:
    num_slots = pool.observations.action_mask.shape[0]

    def has_room(carry: tuple[LevelPool, Array]) -> Array:
        return carry[0].stock + batch_size <= num_slots

    def add_batch(carry: tuple[LevelPool, Array]) -> tuple[LevelPool, Array]:
        pool, batch = carry
        keys = jax.random.split(jax.random.fold_in(key, batch), batch_size)
        states, timesteps = jax.vmap(env.reset)(keys)
        stored = (pool.states, pool.observations)
        made = (states, timesteps.observation)
        write = jax.lax.dynamic_update_slice_in_dim
        states, observations = jax.tree.map(lambda old, new: write(old, new, pool.stock, 0), stored, made)
        return LevelPool(states, observations, pool.stock + batch_size), batch + 1

    with phase("generate"):
        return jax.lax.while_loop(has_room, add_batch, (pool, jnp.int32(0)))[0]


def _draw(env: Environment, num_envs: int, num_slots: int, key: Key) -> ResetDraws:
    slot_key, state_key = jax.random.split(key)
    slots = jax.random.randint(slot_key, (num_envs,), 0, num_slots)
    if env.rekey is None:
        return ResetDraws(slots, None)
    return ResetDraws(slots, jax.vmap(jax.random.fold_in, (None, 0))(state_key, jnp.arange(num_envs)))


def _step(
    env: Environment, states: EnvState, actions: Array, pool: LevelPool, draws: ResetDraws
) -> tuple[EnvState, TimeStep, LevelPool, Array]:
    with phase("step"):
        states, timesteps = jax.vmap(env.step)(states, actions)
        timesteps = _with_extras(env, states, timesteps)
    with phase("gather"):
        return _replace_ended(env, states, timesteps, pool, draws)


def _replace_ended(
    env: Environment, states: EnvState, timesteps: TimeStep, pool: LevelPool, draws: ResetDraws
) -> tuple[EnvState, TimeStep, LevelPool, Array]:
    is_last = timesteps.last()  # [N]
    slots, pool, num_reused = _take_slots(pool, is_last, draws.slots)
    level_states, level_observations = jax.tree.map(
        lambda x: x.at[slots].get(mode="promise_in_bounds"), (pool.states, pool.observations)
    )
    if env.rekey is not None and draws.keys is not None:
        level_states = jax.vmap(env.rekey)(level_states, draws.keys)
    states = trees.where(is_last, level_states, states)
    observation = trees.where(is_last, level_observations, timesteps.observation)
    return states, timesteps._replace(observation=observation), pool, num_reused


def _take_slots(pool: LevelPool, is_last: Array, used: Array) -> tuple[Array, LevelPool, Array]:
    """(slot for each environment [N], pool with less stock, levels reused []). Fresh slots go from the top down.

    Where none is left it is the one of `used` [N].
    """
    rank = jnp.cumsum(is_last, dtype=jnp.int32) - 1  # [N], of the ended ones
    fresh = pool.stock - 1 - rank
    slots = jnp.where(is_last, jnp.where(fresh >= 0, fresh, used), 0)
    num_ended = jnp.sum(is_last, dtype=jnp.int32)
    num_fresh = jnp.minimum(num_ended, pool.stock)
    return slots, pool._replace(stock=pool.stock - num_fresh), num_ended - num_fresh


def _with_extras(env: Environment, states: EnvState, timesteps: TimeStep) -> TimeStep:
    extras: dict[str, Any] = dict(timesteps.extras)
    extras["episode_metrics"] = jax.vmap(env.episode_metrics)(states, timesteps)
    if env.can_truncate:
        extras["next_obs"] = timesteps.observation
    return timesteps._replace(extras=extras)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
