"""Evaluation of one or several seeds, on fresh levels or on a frozen level set."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.sections import EvaluationConfig
from stoix_like.evaluation import episodes, levels
from stoix_like.evaluation.levels import LevelSet
from stoix_like.runtime.console.text import Value
from stoix_like.runtime.evaluators.episode_player import (
    EpisodePlayer,
    LevelKeys,
    PlayProgress,
    fresh_levels,
    frozen_levels,
    play_to_end,
)
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.telemetry import Row
from stoix_like.runtime.telemetry.rows import EVALUATION_PREFIXES, EvaluationMode, evaluation_values
from stoix_like.types import Environment, Key, MemoryPolicy, Params, Policy, role_key

_MEMORY_HINT = "play fewer episodes at a time: --num-eval-envs in training, --num-envs in an evaluation"


class Scores(NamedTuple):
    """One evaluation. Arrays are [S, E]: seeds, episodes."""

    results: dict[str, np.ndarray]  # episode_return, episode_length and the environment's own
    seconds: float
    level_hash: str | None  # of the frozen level set, else None

    def mean_return(self) -> np.ndarray:
        """Mean return per seed, [S]."""
        return self.results["episode_return"].mean(axis=1)

    def rows(self, mode: EvaluationMode, at: tuple[int, int, float], seeds: Sequence[int]) -> list[Row]:
        """One EVALUATOR row per seed; `at` is (update, timesteps, elapsed seconds)."""
        rows = []
        for index, seed in enumerate(seeds):
            of_seed = {name: values[index] for name, values in self.results.items()}
            values: dict[str, Value] = dict(evaluation_values(of_seed, mode, self.seconds))
            if self.level_hash:
                values[f"{EVALUATION_PREFIXES[mode]}/level_hash"] = self.level_hash
            rows.append(Row("EVALUATOR", *at, seed, values))
        return rows


class Evaluator:
    """Scores parameters with programs that are compiled once, by `compile` or at the first call."""

    def __init__(
        self,
        env: Environment,
        policy: Policy | MemoryPolicy,
        config: EvaluationConfig,
        num_seeds: int,
        *,
        mode: EvaluationMode = "deterministic",
    ) -> None:
        self.mode = mode
        self._env = env
        with reraise_device_errors(f"level set {config.level_set} cannot be made", "name a smaller set"):
            self._level_set = levels.level_set(config.level_set, env.task_id) if config.level_set else None
            self.level_hash = level_hash(env, self._level_set) if self._level_set else None
        #: Identifies the levels, as plain JSON values. Only scores on the same levels can be compared.
        self.level_set_id = {"levels": config.level_set or "fresh", "level_hash": self.level_hash}
        num_episodes = config.num_eval_episodes if self._level_set is None else self._level_set.keys.shape[0]
        num_envs = min(num_episodes, config.num_eval_envs)
        self._player = EpisodePlayer(
            env,
            policy,
            _level_keys_fn(config, self._level_set, num_envs),
            num_episodes=num_episodes,
            num_envs=num_envs,
            num_seeds=num_seeds,
            deterministic=mode != "sampled",
            memory_hint=_MEMORY_HINT,
        )
        self._num_seeds = num_seeds

    def compile(self, params: Params, root: Key) -> None:
        """Compiles the programs, so that the first evaluation is timed without compilation.

        Raises RunError if compilation runs out of memory.
        """
        self._player.compile(params, root, self._updates(0))

    def __call__(self, params: Params, root: Key, update: int, report: Callable[[str], None] | None = None) -> Scores:
        """Scores of the parameters, see `play`. `report` receives the progress every ten seconds."""
        return play_to_end(self.play(params, root, update), report)

    def play(self, params: Params, root: Key, update: int) -> Generator[PlayProgress, int, Scores]:
        """A player, as `EpisodePlayer.play`, of the parameters with the evaluation key of this update.

        Args:
            params: of the policy, [S, ...] for several seeds.
            root: root key of the run, [] or [S].
            update: the update they are scored at.

        Raises:
            RunError: memory ran out.
            UnsupportedEnvironmentError: see `episodes.refuse_undeclared`.
        """
        began = time.monotonic()
        with reraise_device_errors("the evaluation cannot be played", _MEMORY_HINT):
            results, _ = yield from self._player.play(params, root, self._updates(update))
        episodes.refuse_undeclared(self._env, results)
        metrics = {
            "episode_return": results.episode_return,
            "episode_length": results.episode_length,
            **results.env_metrics,
        }
        if results.is_unfinished.any():
            metrics["unfinished"] = results.is_unfinished.astype(np.float32)
        arrays = {name: np.asarray(value) for name, value in metrics.items()}
        if self._num_seeds == 1:
            arrays = {name: value[None] for name, value in arrays.items()}
        return Scores(arrays, time.monotonic() - began, self.level_hash)

    def _updates(self, update: int) -> Any:
        return np.int32(update) if self._num_seeds == 1 else np.full(self._num_seeds, update, np.int32)


def _level_keys_fn(config: EvaluationConfig, level_set: LevelSet | None, num_envs: int) -> LevelKeys:
    keys_fn = (
        fresh_levels(config.num_eval_episodes, num_envs)
        if level_set is None
        else frozen_levels(level_set.keys, num_envs)
    )
    return lambda root, update: keys_fn(role_key(root, "evaluation", update))


def level_hash(env: Environment, level_set: LevelSet) -> str:
    """The fingerprint of a level set, as evaluations report it."""
    states, _ = jax.jit(jax.vmap(env.reset))(level_set.keys)
    return levels.fingerprint((jax.random.key_data(level_set.keys), states))
