"""Evaluation as the runtime does it: compiled once, for one or several seeds, on fresh levels or a frozen set."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.config import EvaluationConfig
from stoix_like.evaluation import episodes, levels
from stoix_like.runtime.devices import plain_errors
from stoix_like.runtime.report import EvaluationMode
from stoix_like.types import Environment, Key, MemoryPolicy, Params, Policy, role_key

_LESS_MEMORY = "let fewer play at a time: --num-eval-envs of a training, --num-envs of evaluate.py"


class Scores(NamedTuple):
    """One evaluation. Arrays are [S, E]: seeds, episodes."""

    results: dict[str, np.ndarray]  # episode_return, episode_length and the environment's own
    seconds: float
    level_hash: str | None  # of the frozen set, else None

    def mean_return(self) -> np.ndarray:
        """Mean return per seed, [S]."""
        return self.results["episode_return"].mean(axis=1)


class Evaluator:
    """Scores parameters by one compiled program, made by `compile` or at the first call."""

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
        deterministic = mode != "sampled"
        with plain_errors(f"level set {config.level_set} cannot be made", "name a smaller set"):
            self._level_set = levels.level_set(config.level_set, env.task_id) if config.level_set else None
            self.level_hash = _fingerprint(env, self._level_set)
        #: What scores are means over, as plain JSON values: only scores on the same levels can be compared.
        self.scored_on = {"levels": config.level_set or "fresh", "level_hash": self.level_hash}
        one = _one_seed(env, policy, config, self._level_set, deterministic)
        self._jitted = jax.jit(one if num_seeds == 1 else jax.vmap(one, in_axes=(0, 0, None)))
        self._play: Callable[..., episodes.EpisodeResults] = self._jitted
        self._num_seeds = num_seeds

    def compile(self, params: Params, root: Key) -> None:
        """Makes the program now, so that the first evaluation's duration is its own.

        Raises:
            RunError: it is too large to be compiled.
        """
        with plain_errors("the evaluation cannot be compiled", _LESS_MEMORY):
            self._play = self._jitted.lower(params, root, np.int32(0)).compile()

    def __call__(self, params: Params, root: Key, update: int) -> Scores:
        """Scores of the parameters, with the evaluation key of this update. `root` is [] or [S].

        Raises:
            RunError: out of memory.
        """
        began = time.monotonic()
        with plain_errors("the evaluation cannot be played", _LESS_MEMORY):
            played = jax.device_get(self._play(params, root, np.int32(update)))
        arrays = {"episode_return": played.episode_return, "episode_length": played.episode_length, **played.own}
        unfinished = played.episode_length >= episodes.MOST_STEPS
        if unfinished.any():
            arrays["unfinished"] = unfinished.astype(np.float32)
        if self._num_seeds == 1:
            arrays = {name: value[None] for name, value in arrays.items()}
        return Scores(arrays, time.monotonic() - began, self.level_hash)


def _fingerprint(env: Environment, level_set: levels.LevelSet | None) -> str | None:
    if level_set is None:
        return None
    states, _ = jax.jit(jax.vmap(env.reset))(level_set.keys)
    return levels.fingerprint((jax.random.key_data(level_set.keys), states))


def _one_seed(
    env: Environment,
    policy: Policy | MemoryPolicy,
    config: EvaluationConfig,
    level_set: levels.LevelSet | None,
    deterministic: bool,
) -> Callable[[Params, Key, Any], episodes.EpisodeResults]:
    def fresh(params: Params, root: Key, update: Any) -> episodes.EpisodeResults:
        return episodes.evaluate(
            env,
            policy,
            params,
            role_key(root, "evaluation", update),
            num_episodes=config.num_eval_episodes,
            num_envs=config.num_eval_envs,
            deterministic=deterministic,
        )

    def frozen(params: Params, root: Key, update: Any) -> episodes.EpisodeResults:
        assert level_set is not None  # narrows the type: `frozen` is chosen only with a set
        num_levels = level_set.keys.shape[0]
        num_envs = min(num_levels, config.num_eval_envs)
        padded = jnp.arange(-(-num_levels // num_envs) * num_envs) % num_levels  # the last round is filled up
        results = episodes.evaluate_levels(
            env,
            policy,
            params,
            level_set.keys[padded],
            role_key(root, "evaluation", update),
            num_envs=num_envs,
            deterministic=deterministic,
        )
        return jax.tree.map(lambda x: x[:num_levels], results)

    return fresh if level_set is None else frozen
