"""Evaluation of one or several seeds, on fresh levels or on a frozen level set."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from stoix_like.evaluation import episodes, levels
from stoix_like.evaluation.levels import LevelSet
from stoix_like.runtime.evaluators.episode_player import (
    MEMORY_HINT,
    EpisodePlayer,
    PlayProgress,
    fresh_levels,
    frozen_levels,
    play_to_end,
)
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.telemetry import Clock, Report
from stoix_like.runtime.telemetry.metrics import EvaluationMode, evaluation_prefix, evaluation_values
from stoix_like.types import Environment, Key, MemoryPolicy, Params, Policy, role_key


class Levels(NamedTuple):
    """The levels that an evaluation plays: fresh ones, or those of a frozen set."""

    num_episodes: int
    frozen: LevelSet | None = None
    level_hash: str | None = None  # of the frozen set

    @property
    def level_set_id(self) -> dict[str, str | None]:
        """Identifies the levels, as plain JSON values. Only scores on the same levels can be compared."""
        return {"levels": self.frozen.name if self.frozen else "fresh", "level_hash": self.level_hash}


def make_levels(env: Environment, level_set: str | None, num_episodes: int) -> Levels:
    """The levels of the frozen set of that name, whatever `num_episodes`; fresh ones if it is None.

    Raises ConfigError as `levels.level_set`, and RunError if the set does not fit into memory.
    """
    if level_set is None:
        return Levels(num_episodes)
    with reraise_device_errors(f"level set {level_set} cannot be made", "name a smaller set"):
        frozen = levels.level_set(level_set, env.task_id)
        states, _ = jax.jit(jax.vmap(env.evaluation_reset))(frozen.keys)
        level_hash = levels.fingerprint((jax.random.key_data(frozen.keys), states))
        return Levels(frozen.keys.shape[0], frozen, level_hash)


class Scores(NamedTuple):
    """One evaluation. Arrays are [S, E, ...]: seeds, episodes."""

    results: dict[str, np.ndarray]  # episode_return, episode_length and the environment's own, [S, E]
    memory: Any  # of the policy after the last decision of each episode
    seconds: float  # of playing, without compilation
    level_hash: str | None  # of the frozen level set, else None

    def mean_return(self) -> np.ndarray:
        """Mean return per seed, [S]."""
        return self.results["episode_return"].mean(axis=1)

    def cut_warning(self) -> str | None:
        """What to say if episodes were cut: their returns are not of whole episodes, and so is the mean."""
        cut = int(np.sum(self.results.get("unfinished", 0)))
        if cut == 0:
            return None
        total = self.results["episode_return"].size
        return (
            f"{cut:,} of {total:,} episodes of the evaluation were cut after {episodes.MOST_STEPS:,} steps: the scores"
            " are not of whole episodes; --max-episode-steps ends them"
        )

    def report(self, mode: EvaluationMode, clock: Clock, seeds: Sequence[int]) -> Report:
        """The report of this evaluation; it ended at `clock`."""
        texts = {f"{evaluation_prefix(mode)}/level_hash": self.level_hash} if self.level_hash else {}
        return Report(clock, evaluation_values(self.results, mode, self.seconds), texts, seeds)


class Evaluator:
    """Scores parameters with programs that are compiled once, by `compile` or at the first call.

    Args:
        env: without auto-reset.
        policy, levels: what is evaluated, and on which levels, see `make_levels`.
        num_envs: episodes played at a time.
        num_seeds: S. With several, parameters and keys have a leading axis [S].
        mode: what is evaluated. Actions are drawn if it is `sampled`, else the most probable.
        seeds: how several seeds are computed, see `trees.over_seeds`.
    """

    def __init__(
        self,
        env: Environment,
        policy: Policy | MemoryPolicy,
        levels: Levels,
        num_envs: int,
        num_seeds: int = 1,
        *,
        mode: EvaluationMode = "deterministic",
        seeds: Literal["vmap", "map"] = "vmap",
    ) -> None:
        self.mode, self.levels = mode, levels
        self._env, self._num_seeds = env, num_seeds
        num_envs = min(levels.num_episodes, num_envs)
        frozen = levels.frozen
        self._level_keys = (
            frozen_levels(frozen.keys, num_envs) if frozen else fresh_levels(levels.num_episodes, num_envs)
        )
        self._player = EpisodePlayer(
            env,
            policy,
            self._level_keys,
            num_episodes=levels.num_episodes,
            num_envs=num_envs,
            num_seeds=num_seeds,
            deterministic=mode != "sampled",
            seeds=seeds,
        )

    def compile(self, params: Params, root: Key) -> None:
        """Compiles the programs before the first evaluation. Raises RunError if that runs out of memory."""
        self._player.compile(params, root)

    def ceiling(self, root: Key, update: int) -> float | None:
        """The solve rate of the best player on the levels that `__call__` plays, exactly.

        None if nothing computes it, or if several seeds play, each on its own levels.
        """
        if self._env.ceiling is None or self._num_seeds > 1:
            return None
        keys, _ = jax.jit(self._level_keys)(role_key(root, "evaluation", update))
        return float(levels.ceilings(self._env, keys.reshape(-1)[: self.levels.num_episodes]).mean())

    def __call__(self, params: Params, root: Key, update: int, report: Callable[[str], None] | None = None) -> Scores:
        """Scores of the parameters, see `play`. `report` receives the progress every ten seconds."""
        return play_to_end(self.play(params, root, update), report)

    def play(self, params: Params, root: Key, update: int) -> Generator[PlayProgress, int, Scores]:
        """A player, as `EpisodePlayer.play`, with the evaluation key of this update, made from the run's root key.

        Raises RunError if memory runs out, and UnsupportedEnvironmentError as `episodes.refuse_breaches`.
        """

        def evaluation_key(root: Key) -> Key:
            return role_key(root, "evaluation", update)

        keys_of = evaluation_key if self._num_seeds == 1 else jax.vmap(evaluation_key)
        return self.play_with_key(params, keys_of(root))

    def play_with_key(self, params: Params, key: Key) -> Generator[PlayProgress, int, Scores]:
        """`play` with the key of the levels and actions, [] or [S]. It is consumed."""
        self.compile(params, key)
        began = time.monotonic()
        with reraise_device_errors("the evaluation cannot be played", MEMORY_HINT):
            played = yield from self._player.play(params, key)
        results, memory = played if self._num_seeds > 1 else jax.tree.map(lambda x: x[None], played)
        episodes.refuse_breaches(self._env, results)
        metrics: dict[str, Any] = {"episode_return": results.episode_return, "episode_length": results.episode_length}
        metrics |= results.env_metrics
        if results.is_unfinished.any():
            metrics["unfinished"] = results.is_unfinished.astype(np.float32)
        return Scores(metrics, memory, time.monotonic() - began, self.levels.level_hash)
