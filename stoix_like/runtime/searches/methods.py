"""The methods that `compare_search.py` compares: their size at a budget of model steps, and how they play a level set.

A model step is one step of the environment that is simulated before a decision: by a particle whose episode has not
ended, or in a whole sampled episode. Budgets are nominal, per decision; the steps really taken are counted.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from stoix_like.evaluation.levels import LevelSet
from stoix_like.runtime.evaluators import policies
from stoix_like.runtime.evaluators.policies import SearchChoice
from stoix_like.runtime.runs.saved import SavedRun
from stoix_like.runtime.searches.play import CompiledPolicy, counting_policy
from stoix_like.runtime.searches.settings import DEFAULT_NUM_ENVS, ComparisonSettings
from stoix_like.search.model import depth_of
from stoix_like.types import Environment, Key, Params

MAX_PARTICLES = 16_384  # at a time, over all environments


class SearchShape(NamedTuple):
    """The settings of a search, without the number of particles."""

    root: str
    continuation: str
    depth: int | str
    follows_plan: bool
    period: int | None  # depths between resamplings; None: none


SEARCHES = {
    "smc": SearchShape("iid", "sampled", 4, False, 2),
    "distinct": SearchShape("topk", "greedy", "full", False, None),
    "plan": SearchShape("topk", "sampled", "full", True, None),
}


class MethodResult(NamedTuple):
    """One method at one budget on every level of a set. Arrays are [E]."""

    method: str
    budget: int  # nominal model steps per decision
    particles: int  # or whole episodes; 0 for policies without search
    num_envs: int  # levels played at a time
    seconds: float  # of playing, without compilation
    returns: np.ndarray
    lengths: np.ndarray  # decisions
    model_steps: np.ndarray  # of the whole episode

    @property
    def model_steps_per_decision(self) -> float:
        """The mean over all decisions on all levels."""
        return float(self.model_steps.sum() / self.lengths.sum())


#: Plays the levels with some parameters, and yields the results of one or several budgets. The key is consumed; the
#: function receives the progress.
PlayMethod = Callable[[Params, Key, Callable[[str], None]], Iterator[MethodResult]]


def describe_searches(env: Environment, settings: ComparisonSettings) -> dict[str, str]:
    """{search: description} of the searches that are played."""
    excluded, found = excluded_methods(env, settings.methods), {}
    for method, search in SEARCHES.items():
        if method in settings.methods and method not in excluded:
            temperature = _temperature(method, settings)
            parts = [f"root {search.root}", search.continuation]
            parts.append(f"depth {env.time_limit if search.depth == 'full' else search.depth}")
            parts.append(f"resampling {'none' if search.period is None else f'every {search.period}'}")
            parts.append("learned temperature" if temperature is None else f"temperature {temperature:g}")
            found[method] = ", ".join([*parts, "incumbent plan"] if search.follows_plan else parts)
    return found


def _temperature(method: str, settings: ComparisonSettings) -> float | None:
    """The temperature of a method.

    Only smc takes the one of the settings: it searches a few steps deep and must weigh values against the prior.
    Searches to the end of the episode select the best path.
    """
    return settings.temperature if method == "smc" else policies.DEFAULT_TEMPERATURE


def excluded_methods(env: Environment, methods: tuple[str, ...]) -> dict[str, str]:
    """{method: reason} of the methods that cannot be played on the environment."""
    reasons = {}
    for method in methods:
        search = SEARCHES.get(method)
        if search is not None and search.depth == "full" and env.time_limit is None:
            reasons[method] = f"it searches to the end of the episode, and {env.task_id} states no time limit"
        elif search is not None and env.rekey is None and not env.deterministic:
            reasons[method] = (
                f"it would see the randomness to come: steps of {env.task_id} are stochastic without rekey"
            )
        elif search is not None and search.root == "topk" and env.action_spec.num_factors is not None:
            reasons[method] = f"it takes distinct first actions, and those of {env.task_id} have several factors"
        elif (method == "best_of" or (search is not None and search.follows_plan)) and not env.deterministic:
            reasons[method] = f"the path it finds could not be followed: steps of {env.task_id} are stochastic"
    return reasons


def play_methods(saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings) -> list[PlayMethod]:
    """The methods of the settings that can be played on the run's environment, greedy first, then as in `METHODS`."""
    excluded = excluded_methods(saved.env, settings.methods)
    chosen = [method for method in settings.methods if method not in excluded]
    found = [_greedy(saved, level_set, settings)]
    samples = [("sampled", 0, 1)] if "sampled" in chosen else []
    samples += [("best_of", budget, budget) for budget in settings.budgets] if "best_of" in chosen else []
    if samples:
        found.append(_best_of(saved, level_set, settings, samples))
    for method in (method for method in SEARCHES if method in chosen):
        by_size = itertools.groupby(settings.budgets, functools.partial(num_particles, saved.env, method))
        found += [_searching(saved, level_set, settings, method, size, tuple(budgets)) for size, budgets in by_size]
    return [*found, _own(saved, level_set, settings)] if plays_own_search(saved, settings.methods) else found


def plays_own_search(saved: SavedRun, methods: tuple[str, ...]) -> bool:
    """Whether `own` is among the methods and the run has a search of its own."""
    return "own" in methods and saved.meta.algorithm == "spo"


def num_particles(env: Environment, method: str, budget: int) -> int:
    """The largest number of particles that takes at most `budget` model steps per decision, at least 1."""
    depth = SEARCHES[method].depth
    max_steps = env.time_limit or 1 if isinstance(depth, str) else depth
    return max(1, budget // max_steps)


def _greedy(saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings) -> PlayMethod:
    num_envs = envs_at_a_time(level_set, settings, 1)
    program = CompiledPolicy(saved.env, saved.learner.network_policy, level_set.keys, num_envs, deterministic=True)

    def play(params: Params, key: Key, report: Callable[[str], None]) -> Iterator[MethodResult]:
        returns, lengths, _, seconds = program(params, key, report)
        yield MethodResult("greedy", 0, 0, num_envs, seconds, returns, lengths, model_steps=0 * lengths)

    return play


def _best_of(
    saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings, rows: list[tuple[str, int, int]]
) -> PlayMethod:
    """The best of several sampled episodes. Rows are (method, budget, episodes per level), ascending in the last.

    Each row continues with the episodes of the previous one. Episode k of all levels has the key fold_in(key, k). The
    best episode counts; its cost per decision is the steps of all episodes over its own decisions. The method `sampled`
    plays its single episode, so it takes no model steps.
    """
    num_envs = envs_at_a_time(level_set, settings, 1)
    program = CompiledPolicy(saved.env, saved.learner.network_policy, level_set.keys, num_envs, deterministic=False)

    def play(params: Params, key: Key, report: Callable[[str], None]) -> Iterator[MethodResult]:
        best = np.full(level_set.keys.shape, -np.inf, np.float32)
        lengths, steps, seconds, done = np.zeros(best.shape, np.int32), np.zeros(best.shape, np.int64), 0.0, 0
        for method, budget, num_samples in rows:
            for sample in range(done, num_samples):
                one = program(params, jax.random.fold_in(key, sample), report)
                lengths = np.where(one.returns > best, one.lengths, lengths)
                best, steps, seconds = np.maximum(best, one.returns), steps + one.lengths, seconds + one.seconds
            done = num_samples
            size, model_steps = (0, 0 * steps) if method == "sampled" else (num_samples, steps)
            yield MethodResult(method, budget, size, num_envs, seconds, best, lengths, model_steps)

    return play


def _searching(
    saved: SavedRun,
    level_set: LevelSet,
    settings: ComparisonSettings,
    method: str,
    particles: int,
    budgets: tuple[int, ...],
) -> PlayMethod:
    """A search with `particles` particles. It is played once, and its result is yielded for each of the budgets."""
    search = SEARCHES[method]
    choice = SearchChoice(
        particles=particles,
        depth=search.depth,
        root=search.root,
        continuation=search.continuation,
        temperature=_temperature(method, settings),
        resampling="none" if search.period is None else "period",
        period=search.period,
    )
    program, num_envs = _program(saved, level_set, settings, choice, search.follows_plan)

    def play(params: Params, key: Key, report: Callable[[str], None]) -> Iterator[MethodResult]:
        returns, lengths, memory, seconds = program(params, key, report)
        for budget in budgets:
            yield MethodResult(method, budget, particles, num_envs, seconds, returns, lengths, memory.model_steps)

    return play


def _own(saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings) -> PlayMethod:
    """The search that an SPO run was trained with. Its budget is its particles times its depth."""
    config, _ = policies.search_config(saved, SearchChoice())
    particles, budget = config.num_particles, config.num_particles * depth_of(config)
    program, num_envs = _program(saved, level_set, settings, SearchChoice(), follows_plan=False)

    def play(params: Params, key: Key, report: Callable[[str], None]) -> Iterator[MethodResult]:
        returns, lengths, memory, seconds = program(params, key, report)
        yield MethodResult("own", budget, particles, num_envs, seconds, returns, lengths, memory.model_steps)

    return play


def _program(
    saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings, choice: SearchChoice, follows_plan: bool
) -> tuple[CompiledPolicy, int]:
    """(compiled search that counts its model steps, levels played at a time)."""
    config, temperature = policies.search_config(saved, choice)
    model = policies.search_model(saved)
    policy = counting_policy(saved.env, model, config, saved.network_params, temperature, follows_plan=follows_plan)
    num_envs = envs_at_a_time(level_set, settings, config.num_particles)
    return CompiledPolicy(saved.env, policy, level_set.keys, num_envs, deterministic=True), num_envs


def envs_at_a_time(level_set: LevelSet, settings: ComparisonSettings, particles: int) -> int:
    """The number of levels played at a time: as requested, but limited by the level set and by `MAX_PARTICLES`."""
    requested = settings.num_envs or DEFAULT_NUM_ENVS
    return max(1, min(requested, level_set.keys.shape[0], MAX_PARTICLES // particles))
