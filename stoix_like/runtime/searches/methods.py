"""The methods that `compare_search.py` compares: what each is at a budget of model steps, and how it plays a level set.

A model step is one step of the environment's rules that is only thought: by a particle whose episode goes on, or in an
episode that is played to be looked at. Budgets are nominal, per decision; what was really used is counted.
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

MOST_PARTICLES = 16_384  # in play at a time, over all environments


class SearchShape(NamedTuple):
    """A search but for its size."""

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
    particles: int  # or whole episodes; 0 where nothing is thought
    num_envs: int  # levels played at a time
    seconds: float  # of playing; compiling is not in it
    returns: np.ndarray
    lengths: np.ndarray  # decisions
    model_steps: np.ndarray  # of the whole episode

    @property
    def model_steps_per_decision(self) -> float:
        """Over all decisions on all levels."""
        return float(self.model_steps.sum() / self.lengths.sum())


#: Plays the levels with some parameters; the key is consumed. One program gives the rows of one or several budgets.
PlayMethod = Callable[[Params, Key], Iterator[MethodResult]]


def descriptions(env: Environment, settings: ComparisonSettings) -> dict[str, str]:
    """{search: what it does}, of those that are played."""
    excluded, found = left_out(env, settings.methods), {}
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
    """Of searches to the end the best path decides; within a few steps values and prior must be weighed."""
    return settings.temperature if method == "smc" else policies.DEFAULT_TEMPERATURE


def left_out(env: Environment, methods: tuple[str, ...]) -> dict[str, str]:
    """{method: why it cannot be played on the environment}."""
    reasons = {}
    for method in methods:
        search = SEARCHES.get(method)
        if search is not None and search.depth == "full" and env.time_limit is None:
            reasons[method] = f"it searches to the end of the episode, and {env.task_id} states no time limit"
        elif search is not None and search.root == "topk" and env.action_spec.num_factors is not None:
            reasons[method] = f"it takes distinct first actions, and those of {env.task_id} have several factors"
        elif (method == "best_of" or (search is not None and search.follows_plan)) and not env.deterministic:
            reasons[method] = f"the path it finds could not be followed: steps of {env.task_id} are stochastic"
    return reasons


def players(saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings) -> list[PlayMethod]:
    """Everything that can be compared on the run's environment, in the order of `METHODS`; greedy is always there."""
    excluded = left_out(saved.env, settings.methods)
    chosen = [method for method in settings.methods if method not in excluded]
    found = [_greedy(saved, level_set, settings)]
    samples = [("sampled", 0, 1)] if "sampled" in chosen else []
    samples += [("best_of", budget, budget) for budget in settings.budgets] if "best_of" in chosen else []
    if samples:
        found.append(_best_of(saved, level_set, settings, samples))
    for method in (method for method in SEARCHES if method in chosen):
        by_size = itertools.groupby(settings.budgets, functools.partial(particles_at, saved.env, method))
        found += [_searching(saved, level_set, settings, method, size, tuple(budgets)) for size, budgets in by_size]
    return [*found, _own(saved, level_set, settings)] if has_own(saved, settings.methods) else found


def has_own(saved: SavedRun, methods: tuple[str, ...]) -> bool:
    """Whether the run has a search of its own and it is to be played."""
    return "own" in methods and saved.meta.algorithm == "spo"


def particles_at(env: Environment, method: str, budget: int) -> int:
    """The most particles that take no more than `budget` model steps per decision, at least 1."""
    depth = SEARCHES[method].depth
    most_steps = env.time_limit or 1 if isinstance(depth, str) else depth
    return max(1, budget // most_steps)


def _greedy(saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings) -> PlayMethod:
    num_envs = envs_at_a_time(level_set, settings, 1)
    program = CompiledPolicy(saved.env, saved.learner.network_policy, level_set.keys, num_envs, deterministic=True)

    def play(params: Params, key: Key) -> Iterator[MethodResult]:
        returns, lengths, _, seconds = program(params, key)
        yield MethodResult("greedy", 0, 0, num_envs, seconds, returns, lengths, model_steps=0 * lengths)

    return play


def _best_of(
    saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings, rows: list[tuple[str, int, int]]
) -> PlayMethod:
    """Rows of (method, budget, whole sampled episodes per level), ascending: each goes on with what is there.

    Episode k of all levels has the key fold_in(key, k). The episode followed in the end is the best; what all of them
    took, spread over its decisions, is the cost of one. A single episode was not thought but played.
    """
    num_envs = envs_at_a_time(level_set, settings, 1)
    program = CompiledPolicy(saved.env, saved.learner.network_policy, level_set.keys, num_envs, deterministic=False)

    def play(params: Params, key: Key) -> Iterator[MethodResult]:
        best = np.full(level_set.keys.shape, -np.inf, np.float32)
        lengths, steps, seconds, done = np.zeros(best.shape, np.int32), np.zeros(best.shape, np.int64), 0.0, 0
        for method, budget, num_samples in rows:
            for sample in range(done, num_samples):
                one = program(params, jax.random.fold_in(key, sample))
                lengths = np.where(one.returns > best, one.lengths, lengths)
                best, steps, seconds = np.maximum(best, one.returns), steps + one.lengths, seconds + one.seconds
            done = num_samples
            thought = (0, 0 * steps) if method == "sampled" else (num_samples, steps)
            yield MethodResult(method, budget, thought[0], num_envs, seconds, best, lengths, thought[1])

    return play


def _searching(
    saved: SavedRun,
    level_set: LevelSet,
    settings: ComparisonSettings,
    method: str,
    particles: int,
    budgets: tuple[int, ...],
) -> PlayMethod:
    """A search of so many particles, whatever the budgets it is the search of: its row is told for each."""
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

    def play(params: Params, key: Key) -> Iterator[MethodResult]:
        returns, lengths, memory, seconds = program(params, key)
        for budget in budgets:
            yield MethodResult(method, budget, particles, num_envs, seconds, returns, lengths, memory.model_steps)

    return play


def _own(saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings) -> PlayMethod:
    """The search that an SPO run was trained with; its budget is what its particles may take."""
    config, _ = policies.search_config(saved, SearchChoice())
    particles, budget = config.num_particles, config.num_particles * depth_of(config)
    program, num_envs = _program(saved, level_set, settings, SearchChoice(), follows_plan=False)

    def play(params: Params, key: Key) -> Iterator[MethodResult]:
        returns, lengths, memory, seconds = program(params, key)
        yield MethodResult("own", budget, particles, num_envs, seconds, returns, lengths, memory.model_steps)

    return play


def _program(
    saved: SavedRun, level_set: LevelSet, settings: ComparisonSettings, choice: SearchChoice, follows_plan: bool
) -> tuple[CompiledPolicy, int]:
    """(a search that counts its model steps on the levels, how many are played at a time)."""
    config, temperature = policies.search_config(saved, choice)
    model = policies.search_model(saved)
    policy = counting_policy(saved.env, model, config, saved.network_params, temperature, follows_plan=follows_plan)
    num_envs = envs_at_a_time(level_set, settings, config.num_particles)
    return CompiledPolicy(saved.env, policy, level_set.keys, num_envs, deterministic=True), num_envs


def envs_at_a_time(level_set: LevelSet, settings: ComparisonSettings, particles: int) -> int:
    """How many levels are played at a time: as asked, but no more than there are, or than keep the particles few."""
    asked = settings.num_envs or DEFAULT_NUM_ENVS
    return max(1, min(asked, level_set.keys.shape[0], MOST_PARTICLES // particles))
