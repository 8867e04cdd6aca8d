"""Whole episodes played by one compiled program, in pieces of about two seconds.

A player is a generator: between the pieces its caller decides how many steps to play, reports progress, or stops. Some
tasks have thousands of steps per episode, and a step of a policy that searches may take seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.evaluation import episodes
from stoix_like.evaluation.episodes import EpisodeResults
from stoix_like.ops import trees
from stoix_like.runtime.console.messages import Heartbeat
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.types import Array, Environment, Key, MemoryPolicy, Params, Policy

T = TypeVar("T")
LevelKeys = Callable[[Key], tuple[Key, Key]]  # (key) -> ([R, N] keys of levels, [R] keys of rounds); traced
MEMORY_HINT = "play fewer episodes at a time: --num-eval-envs in training, --num-envs in an evaluation"


class _Programs(NamedTuple):
    begin: Callable[..., tuple[episodes.Playing, Key]]  # (round, key) -> (start, key of the round)
    advance: Callable[..., tuple[episodes.Playing, Array]]  # (params, playing, key, steps) -> (playing, finished)


class PlayProgress(NamedTuple):
    """The progress of a player before a piece. Episodes are counted over all seeds."""

    finished: int  # episodes that have ended
    episodes: int  # all
    step: int  # of the round
    is_round_over: bool  # all episodes of the round have ended, or it has MOST_STEPS
    wanted: int  # steps that take about two seconds, as the player expects; 0 if the round is over


class EpisodePlayer:
    """Plays E episodes in R rounds of N, compiled by `compile` or at the first call.

    Args:
        env, policy: an environment without auto-reset, and who acts in it.
        level_keys_fn: makes the keys of levels and rounds.
        num_episodes, num_envs: E and N. R is E / N rounded up; results exclude the padding of the last round.
        num_seeds: S. With several, parameters and keys have a leading axis [S].
        deterministic: most probable actions, or sampled ones.
        seeds: how several are computed, see `trees.over_seeds`.
    """

    def __init__(
        self,
        env: Environment,
        policy: Policy | MemoryPolicy,
        level_keys_fn: LevelKeys,
        *,
        num_episodes: int,
        num_envs: int,
        num_seeds: int = 1,
        deterministic: bool = True,
        seeds: Literal["vmap", "map"] = "vmap",
    ) -> None:
        def begin(index: Array, key: Key) -> tuple[episodes.Playing, Key]:
            level_keys, round_keys = level_keys_fn(key)
            return episodes.begin(env, policy, level_keys[index]), round_keys[index]

        def advance(params: Params, playing: episodes.Playing, key: Key, steps: Array) -> episodes.Playing:
            return episodes.advance(env, policy, params, playing, key, steps, deterministic=deterministic)

        self._begin, self._advance = begin, advance
        self._num_episodes, self._num_envs, self._num_seeds, self._seeds = num_episodes, num_envs, num_seeds, seeds
        self._programs: _Programs | None = None
        self._chunk_sizer = ChunkSizer()

    def compile(self, params: Params, key: Key) -> None:
        """Compiles the programs once, so that playing is timed alone. Raises RunError if that runs out of memory."""
        if self._programs is not None:
            return
        with reraise_device_errors("the evaluation cannot be compiled", MEMORY_HINT):
            beginning = jax.jit(self._of_seeds(self._begin, None, 0))
            begin = beginning.lower(np.int32(0), key).compile()
            placed = begin.output_shardings  # a round keeps its placement: it is the input of the next piece
            shapes = jax.eval_shape(beginning, np.int32(0), key)
            start = jax.tree.map(lambda x, at: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at), shapes, placed)
            advancing = self._of_seeds(self._advance, 0, 0, 0, None)

            def advance(params: Params, playing: episodes.Playing, key: Key, steps: Array) -> Any:
                playing = advancing(params, playing, key, steps)
                return playing, playing.done.sum()

            jitted = jax.jit(advance, donate_argnums=1, out_shardings=(placed[0], None))
            self._programs = _Programs(begin, jitted.lower(params, *start, np.int32(0)).compile())

    def _of_seeds(self, function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
        """The function, mapped over these axes of its arguments if there are several seeds."""
        return function if self._num_seeds == 1 else trees.over_seeds(function, self._seeds, axes)

    def play(self, params: Params, key: Key) -> Generator[PlayProgress, int, tuple[EpisodeResults, Any]]:
        """Yields the progress before each piece, and is sent the number of steps to play; 0 ends the round.

        A round that is over plays on if it is sent a number, and its results stay what they are. With several processes
        of one run, all must be sent the same numbers. Raises JaxRuntimeError if memory runs out.

        Returns:
            (results, memory of the policy after the last decision of each episode) on the host, [E] or [S, E].
        """
        self.compile(params, key)
        rounds = []
        for index in range(-(-self._num_episodes // self._num_envs)):
            rounds.append((yield from self._round(index, params, key)))  # noqa: PERF401  # it yields
        axis = 0 if self._num_seeds == 1 else 1

        def join(*parts: np.ndarray) -> np.ndarray:
            return np.concatenate(parts, axis).take(np.arange(self._num_episodes), axis)

        joined: tuple[EpisodeResults, Any] = jax.tree.map(join, *rounds)
        return joined

    def _round(self, index: int, params: Params, key: Key) -> Generator[PlayProgress, int, tuple[EpisodeResults, Any]]:
        assert self._programs is not None  # narrows the type
        per_round, total = self._num_envs * self._num_seeds, self._num_episodes * self._num_seeds
        playing, round_key = self._programs.begin(np.int32(index), key)
        step = finished = 0
        while True:
            is_over = finished == per_round or step >= episodes.MOST_STEPS
            wanted = 0 if is_over else self._chunk_sizer.next_length(episodes.MOST_STEPS - step)
            ended = min(index * per_round + finished, total)
            steps = yield PlayProgress(ended, total, step, is_over, wanted)
            if steps == 0:
                break
            began = time.monotonic()
            playing, count = self._programs.advance(params, playing, round_key, np.int32(steps))
            jax.block_until_ready(count)  # a signal can interrupt this, but not int(count)
            finished, now = int(count), int(np.max(jax.device_get(playing.step)))
            if now > step:  # else all episodes had finished, and it was played on
                self._chunk_sizer.record(now - step, time.monotonic() - began)
            step = now
        result: tuple[EpisodeResults, Any] = jax.device_get((playing.results, playing.memory))
        return result


def play_to_end(
    playing: Generator[PlayProgress, int, T],
    report: Callable[[str], None] | None = None,
    agree: Callable[[int], int] = lambda steps: steps,
) -> T:
    """The result of a player, played in pieces of about two seconds.

    Args:
        playing: a player, not yet started.
        report: receives every ten seconds how many episodes have finished.
        agree: called before each piece with the number of steps wanted, 0 if the round is over; returns the number to
            play. What it raises abandons the evaluation.
    """
    with contextlib.closing(playing):
        try:
            progress = next(playing)
            heartbeat = Heartbeat(report or (lambda _text: None))
            while True:
                progress = playing.send(agree(progress.wanted))
                if progress.finished < progress.episodes:
                    heartbeat(
                        f"{progress.finished:,} of {progress.episodes:,} episodes have finished;"
                        f" step {progress.step:,} of those being played"
                    )
        except StopIteration as end:
            result: T = end.value
            return result


def fresh_levels(num_episodes: int, num_envs: int) -> LevelKeys:
    """Keys of levels and rounds, split from a key as in `episodes.evaluate`; the last round is padded."""

    def level_keys_fn(key: Key) -> tuple[Key, Key]:
        level_key, play_key = jax.random.split(key)
        return frozen_levels(jax.random.split(level_key, num_episodes), num_envs)(play_key)

    return level_keys_fn


def frozen_levels(level_keys: Key, num_envs: int) -> LevelKeys:
    """Keys of levels [E] and rounds, as in `episodes.evaluate_levels`; the last round is padded."""
    num_levels = level_keys.shape[0]
    num_rounds = -(-num_levels // num_envs)

    def level_keys_fn(key: Key) -> tuple[Key, Key]:
        padded = jnp.arange(num_rounds * num_envs) % num_levels
        return level_keys[padded].reshape(num_rounds, num_envs), jax.random.split(key, num_rounds)

    return level_keys_fn
