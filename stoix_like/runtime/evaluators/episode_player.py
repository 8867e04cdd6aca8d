"""Whole episodes as the runtime plays them: by one compiled program in pieces of about two seconds.

Between the pieces the host can tell how far it is, and can stop: an episode has thousands of steps in some tasks, and
of a policy that searches each may take seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.evaluation import episodes
from stoix_like.evaluation.episodes import EpisodeResults
from stoix_like.runtime.console.messages import Heartbeat
from stoix_like.runtime.evaluators.pace import ChunkSizer
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.types import Array, Environment, Key, MemoryPolicy, Params, Policy

#: Is told after each piece how many episodes have finished, of how many, all seeds counted, and at which step the
#: present round is. It may raise.
OnProgress = Callable[[int, int, int], None]
#: Is asked before each piece how many steps of each episode it may have, given how many are wanted; 0 ends the round.
#: At its end 0 are wanted. It may raise.
StepBudget = Callable[[int], int]
#: What decides the episodes, any arrays, to ([R, N] keys of levels, [R] keys of rounds). Traced.
LevelKeys = Callable[..., tuple[Key, Key]]


class _Programs(NamedTuple):
    begin: Callable[..., tuple[episodes.Playing, Key]]  # (round, *what decides) -> (start, key of the round)
    advance: Callable[..., tuple[episodes.Playing, Array]]  # (params, playing, key, steps) -> (playing, finished)


def report_progress(say: Callable[[str], None]) -> OnProgress:
    """Reports every ten seconds how many episodes have finished."""
    heartbeat = Heartbeat(say)

    def on_progress(finished: int, episodes: int, step: int) -> None:
        if finished < episodes:
            heartbeat(f"{finished:,} of {episodes:,} episodes have finished; step {step:,} of those being played")

    return on_progress


class EpisodePlayer:
    """Plays E episodes in R rounds of N, compiled by `compile` or at the first call.

    Args:
        env: raw.
        policy: plays.
        schedule: the keys of levels and rounds.
        num_episodes, num_envs: E and N; R is E / N rounded up, and what fills the last round up is not told.
        num_seeds: S; with several, params and what decides the episodes have a leading axis [S].
        deterministic: most probable actions, or sampled ones.
        less_memory: the hint where it does not fit into memory.
    """

    def __init__(
        self,
        env: Environment,
        policy: Policy | MemoryPolicy,
        schedule: LevelKeys,
        *,
        num_episodes: int,
        num_envs: int,
        num_seeds: int = 1,
        deterministic: bool = True,
        less_memory: str,
    ) -> None:
        def begin(index: Array, *deciding: Any) -> tuple[episodes.Playing, Key]:
            level_keys, round_keys = schedule(*deciding)
            return episodes.begin(env, policy, level_keys[index]), round_keys[index]

        def advance(params: Params, playing: episodes.Playing, key: Key, steps: Array) -> episodes.Playing:
            return episodes.advance(env, policy, params, playing, key, steps, deterministic=deterministic)

        self._begin, self._advance = begin, advance
        self._num_episodes, self._num_envs, self._num_seeds = num_episodes, num_envs, num_seeds
        self._less_memory = less_memory
        self._programs: _Programs | None = None
        self._pace = ChunkSizer()

    def compile(self, params: Params, *deciding: Any) -> None:
        """Makes the programs now, unless there are any, so that playing is timed alone.

        Raises:
            RunError: they are too large to be compiled.
        """
        if self._programs is not None:
            return
        with reraise_device_errors("the evaluation cannot be compiled", self._less_memory):
            beginning = jax.jit(self._of_seeds(self._begin, None, *[0] * len(deciding)))
            begin = beginning.lower(np.int32(0), *deciding).compile()
            placed = begin.output_shardings  # a round comes back where it was, to be given in again
            start, key = jax.tree.map(_placed, jax.eval_shape(beginning, np.int32(0), *deciding), placed)
            advancing = self._of_seeds(self._advance, 0, 0, 0, None)

            def advance(params: Params, playing: episodes.Playing, key: Key, steps: Array) -> Any:
                playing = advancing(params, playing, key, steps)
                return playing, playing.done.sum()

            jitted = jax.jit(advance, donate_argnums=1, out_shardings=(placed[0], None))
            self._programs = _Programs(begin, jitted.lower(params, start, key, np.int32(0)).compile())

    def _of_seeds(self, function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
        """The function, of several seeds over these axes of its arguments."""
        return function if self._num_seeds == 1 else jax.vmap(function, in_axes=axes)

    def __call__(
        self, params: Params, *deciding: Any, watch: OnProgress | None = None, allow: StepBudget | None = None
    ) -> tuple[EpisodeResults, Any]:
        """(results, the policy's memory as the last decision of each episode left it) on the host, [E] or [S, E].

        Raises:
            JaxRuntimeError: out of memory. Whatever `watch` and `allow` raise comes through.
        """
        self.compile(params, *deciding)
        num_rounds = -(-self._num_episodes // self._num_envs)
        rounds = [self._round(index, params, deciding, watch, allow or _all) for index in range(num_rounds)]
        axis = 0 if self._num_seeds == 1 else 1

        def join(*parts: np.ndarray) -> np.ndarray:
            return np.concatenate(parts, axis).take(np.arange(self._num_episodes), axis)

        joined: tuple[EpisodeResults, Any] = jax.tree.map(join, *rounds)
        return joined

    def _round(
        self, index: int, params: Params, deciding: Any, watch: OnProgress | None, allow: StepBudget
    ) -> tuple[EpisodeResults, Any]:
        assert self._programs is not None  # narrows the type
        per_round = self._num_envs * self._num_seeds
        playing, key = self._programs.begin(np.int32(index), *deciding)
        step = finished = 0
        while True:
            goes_on = finished < per_round and step < episodes.MOST_STEPS
            steps = allow(self._pace.length(episodes.MOST_STEPS - step) if goes_on else 0)
            if steps == 0:
                break
            began = time.monotonic()
            playing, count = self._programs.advance(params, playing, key, np.int32(steps))
            jax.block_until_ready(count)  # a signal comes through here, and not through int(count)
            finished, now = int(count), int(np.max(jax.device_get(playing.step)))
            if now > step:  # else all had finished: another process may have asked for more
                self._pace.update(now - step, time.monotonic() - began)
            step = now
            if watch is not None:
                total = self._num_episodes * self._num_seeds
                watch(min(index * per_round + finished, total), total, step)
        results, memory = jax.device_get((playing.results, playing.memory))
        return results, memory


def _all(wanted: int) -> int:
    return wanted


def _placed(shape: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


def fresh_levels(num_episodes: int, num_envs: int) -> Callable[[Key], tuple[Key, Key]]:
    """The keys of levels and rounds as `episodes.evaluate` makes them of its key."""
    num_rounds = num_episodes // num_envs

    def schedule(key: Key) -> tuple[Key, Key]:
        level_key, play_key = jax.random.split(key)
        level_keys = jax.random.split(level_key, num_episodes)
        return level_keys.reshape(num_rounds, num_envs), jax.random.split(play_key, num_rounds)

    return schedule


def frozen_levels(level_keys: Key, num_envs: int) -> Callable[[Key], tuple[Key, Key]]:
    """As `episodes.evaluate_levels` makes them of its key, for levels [E]; the last round is filled up."""
    num_levels = level_keys.shape[0]
    num_rounds = -(-num_levels // num_envs)

    def schedule(key: Key) -> tuple[Key, Key]:
        padded = jnp.arange(num_rounds * num_envs) % num_levels
        return level_keys[padded].reshape(num_rounds, num_envs), jax.random.split(key, num_rounds)

    return schedule
