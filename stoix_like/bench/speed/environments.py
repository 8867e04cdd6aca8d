"""Environments under random legal actions: compared with Jumanji's, by episode length, and by number.

Ours and Jumanji's run alternately in one process. Episode lengths are set by the time limit of Maze, so that no policy
has to be computed during the measurement. All environments start together, and many end together at the time limit. The
length of a Maze rollout is a multiple of the limit, so that every rollout has the same number of ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.bench.speed import binpack
from stoix_like.bench.timing.measure import Measurement, comparison_row, peak_bytes, time_interleaved
from stoix_like.envs import registry
from stoix_like.envs.auto_reset import ResetDraws, auto_reset_for
from stoix_like.envs.importing import jumanji_auto_reset
from stoix_like.ops import distributions
from stoix_like.types import Array, Environment, Key

NUM_ENVS = (64, 1024)
ROLLOUTS = 5  # per timed call: levels are made in batches, and single rollouts may differ by one batch
SCALES = (64, 256, 1024, 4096, 16384)
WRAPPER = "reference: jumanji VmapAutoResetWrapper"


def env_suite() -> list[Measurement]:
    """Steps, new levels, and both together, compared with Jumanji's; the cost of fresh levels by episode length."""
    tasks = (("maze", "Maze-v0", 100), ("binpack", "BinPack-v2", 20))
    return [
        *binpack.step_rows(),
        binpack.compile_row(),
        *(_level_row(f"{name}_levels", task_id, n) for name, task_id, _ in tasks for n in NUM_ENVS),
        *(
            _auto_reset_row(f"{name}_autoreset", task_id, n, length)
            for name, task_id, length in tasks
            for n in NUM_ENVS
        ),
        _auto_reset_row("maze_autoreset_15_steps", "Maze-v0", 1024, 120, {"time_limit": 15}),
        *(_cost_row(length) for length in (5, 20, 80)),
    ]


def scale_suite() -> Iterator[Measurement]:
    """Steps per second from 64 to 16,384 environments, and the memory of the compiled rollout."""
    for name, task_id, length in (("maze", "Maze-v0", 100), ("binpack", "BinPack-v2", 20)):
        for num_envs in SCALES:
            rollout = _our_rollout(registry.make(task_id), num_envs, length)
            timing = time_interleaved({"ours": rollout}, repetitions=5)["ours"]
            note = f"peak memory {rollout.peak_bytes() / 2**20:,.0f} MiB"
            rate = num_envs * length * ROLLOUTS / timing.seconds
            yield Measurement(f"{name}_autoreset_scale/{num_envs}", rate, "steps/s", timing.spread, note=note)


def _level_row(name: str, task_id: str, num_envs: int) -> Measurement:
    functions = {}
    for who, exact in (("ours", False), ("theirs", True)):
        functions[who] = _levels(registry.make(task_id, exact_reference=exact), num_envs)
    timings = time_interleaved(functions, repetitions=15)
    return comparison_row(
        f"{name}/{num_envs}", timings, num_envs, "levels/s", "reference: Jumanji's own reset, same levels"
    )


def _levels(env: Environment, num_envs: int) -> Callable[[], Any]:
    """A function that makes new levels at each call."""
    reset = jax.jit(lambda key: jax.vmap(env.reset)(jax.random.split(key, num_envs)))
    calls = itertools.count()
    return lambda: reset(jax.random.key(next(calls)))


def _auto_reset_row(
    name: str, task_id: str, num_envs: int, length: int, kwargs: Mapping[str, Any] | None = None
) -> Measurement:
    ours = _our_rollout(registry.make(task_id, kwargs=kwargs), num_envs, length)
    theirs = _jumanji_rollout(task_id, num_envs, length, kwargs or {})
    timings = time_interleaved({"ours": ours, "theirs": theirs}, repetitions=5)
    reused = int(np.sum(ours()[1]))
    note = WRAPPER if reused == 0 else f"{WRAPPER}; {reused} levels were handed out twice"
    return comparison_row(f"{name}/{num_envs}", timings, num_envs * length * ROLLOUTS, "steps/s", note)


def _cost_row(episode_length: int, num_envs: int = 1024, length: int = 80) -> Measurement:
    """Microseconds per step for fresh levels: the time with auto-reset minus the time without."""
    env = registry.make("Maze-v0", kwargs={"time_limit": episode_length})
    functions = {"all": _our_rollout(env, num_envs, length), "bare": _bare_rollout(env, num_envs, length)}
    timings = time_interleaved(functions, repetitions=9)
    steps = num_envs * length * ROLLOUTS
    cost, bare = timings["all"].seconds - timings["bare"].seconds, timings["bare"].seconds
    spread = (timings["all"].spread * timings["all"].seconds + timings["bare"].spread * bare) / max(cost, 1e-12)
    note = f"on top of {bare / steps * 1e6:.2f} us for the step itself; {num_envs} environments"
    return Measurement(f"maze_fresh_levels/{episode_length}_steps", cost / steps * 1e6, "us/step", spread, note=note)


class _Rollout:
    """Rollouts that continue where the last call stopped, with a new key at each call."""

    def __init__(self, rollout: Callable[[Any, Key], Any], carry: Any) -> None:
        def several(carry: Any, key: Key) -> Any:
            return jax.lax.scan(rollout, carry, jax.random.split(key, ROLLOUTS))

        self._program = jax.jit(several, donate_argnums=0).lower(carry, jax.random.key(0)).compile()
        self._carry = carry
        self._calls = 0

    def __call__(self) -> Any:
        self._calls += 1
        self._carry, result = self._program(self._carry, jax.random.key(self._calls))
        return result

    def peak_bytes(self) -> int:
        """The peak memory of the program."""
        return peak_bytes(self._program)


def _random_action(env: Environment, mask: Array, key: Key) -> Array:
    logits = distributions.masked_logits(jnp.zeros(mask.shape), mask)
    return distributions.sample(key, logits, factored=env.action_spec.num_factors is not None)


def _our_rollout(env: Environment, num_envs: int, length: int) -> _Rollout:
    auto_reset = auto_reset_for(env, num_envs, length)

    def step(carry: Any, drawn: tuple[Key, ResetDraws]) -> Any:
        (states, observation, pool), (act_key, draws) = carry, drawn
        action = _random_action(env, observation.action_mask, act_key)
        states, timestep, pool, reused = auto_reset.step(states, action, pool, draws)
        return (states, timestep.observation, pool), (jnp.mean(timestep.reward), reused)

    def rollout(carry: Any, key: Key) -> Any:
        states, observation, pool = carry
        refill_key, play_key = jax.random.split(key)
        carry = states, observation, auto_reset.refill(pool, refill_key)
        return jax.lax.scan(step, carry, auto_reset.draw(play_key, length))

    states, timestep, pool = jax.jit(auto_reset.init)(jax.random.key(0))
    return _Rollout(rollout, (states, timestep.observation, pool))


def _bare_rollout(env: Environment, num_envs: int, length: int) -> _Rollout:
    """A rollout without auto-reset: episodes that have ended are stepped further."""

    def step(carry: Any, key: Key) -> Any:
        states, observation = carry
        states, timestep = jax.vmap(env.step)(states, _random_action(env, observation.action_mask, key))
        return (states, timestep.observation), jnp.mean(timestep.reward)

    def rollout(carry: Any, key: Key) -> Any:
        return jax.lax.scan(step, carry, jax.random.split(key, length))

    states, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), num_envs))
    return _Rollout(rollout, (states, timestep.observation))


def _jumanji_rollout(task_id: str, num_envs: int, length: int, kwargs: Mapping[str, Any]) -> _Rollout:
    env = jumanji_auto_reset(task_id, **kwargs)

    def step(carry: Any, key: Key) -> Any:
        states, observation = carry
        mask = observation.action_mask
        logits = distributions.masked_logits(jnp.zeros(mask.shape), mask).reshape(num_envs, -1)
        action = distributions.sample(key, logits)
        if mask.ndim == 3:  # BinPack takes the pair
            action = jnp.stack(jnp.unravel_index(action, mask.shape[1:]), axis=-1).astype(jnp.int32)
        states, timestep = env.step(states, action)
        return (states, timestep.observation), jnp.mean(timestep.reward)

    def rollout(carry: Any, key: Key) -> Any:
        return jax.lax.scan(step, carry, jax.random.split(key, length))

    states, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), num_envs))
    return _Rollout(rollout, (states, timestep.observation))
