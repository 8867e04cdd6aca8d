"""The methods that `compare_search.py` compares: their size at a budget of model steps, and how they play a level set.

A model step is one step of the environment that is simulated before a decision: by a particle whose episode has not
ended, or in a whole sampled episode. Budgets are nominal, per decision in the mean over an episode; the steps really
taken are counted.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from stoix_like.algorithms.searching import SearchMemory
from stoix_like.runtime.evaluators import policies
from stoix_like.runtime.evaluators.episode_player import play_to_end
from stoix_like.runtime.evaluators.policies import SearchChoice
from stoix_like.runtime.evaluators.scores import Evaluator, Levels
from stoix_like.runtime.runs.saved import SavedRun
from stoix_like.runtime.searches.settings import DEFAULT_NUM_ENVS, ComparisonSettings
from stoix_like.search.model import depth_of
from stoix_like.types import Environment, Key, MemoryPolicy, Params, Policy

MAX_PARTICLES = 16_384  # at a time, over all environments

SEARCHES = {
    "smc": SearchChoice(root="iid", continuation="sampled", depth=4, resampling="period", period=2),
    "distinct": SearchChoice(root="topk", continuation="greedy", depth="full", resampling="none"),
    "plan": SearchChoice(root="topk", continuation="sampled", depth="full", resampling="none", incumbent=True),
}


class RunOnLevels(NamedTuple):
    """A saved run and the frozen levels on which its searches play."""

    saved: SavedRun
    levels: Levels


class Episodes(NamedTuple):
    """One episode of each level of a set, [E]."""

    returns: np.ndarray
    lengths: np.ndarray  # decisions
    solved: np.ndarray | None  # 0 or 1; None if the task does not say what that means


class MethodResult(NamedTuple):
    """One method at one budget on every level of a set."""

    method: str
    budget: int  # nominal model steps per decision
    particles: int  # or whole episodes; 0 for policies without search
    num_envs: int  # levels played at a time
    seconds: float  # of playing, without compilation
    episodes: Episodes
    model_steps: np.ndarray  # [E], of the whole episode

    @property
    def model_steps_per_decision(self) -> float:
        """The mean over all decisions on all levels."""
        return float(self.model_steps.sum() / self.episodes.lengths.sum())


#: Plays the levels with some parameters, and yields the results of one or several budgets. The key is consumed.
PlayMethod = Callable[[Params, Key], Iterator[MethodResult]]
Report = Callable[[str], None]


def describe_searches(env: Environment, settings: ComparisonSettings) -> dict[str, str]:
    """{search: description} of the searches that are played."""
    excluded, found = excluded_methods(env, settings.methods), {}
    for method, search in SEARCHES.items():
        if method in settings.methods and method not in excluded:
            temperature = _temperature(method, settings)
            parts = [f"root {search.root}", f"{search.continuation}"]
            parts.append(f"depth {env.time_limit if search.depth == 'full' else search.depth}")
            parts.append(f"resampling {'none' if search.period is None else f'every {search.period}'}")
            parts.append("learned temperature" if temperature is None else f"temperature {temperature:g}")
            found[method] = ", ".join([*parts, "incumbent plan"] if search.incumbent else parts)
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
        elif (method == "best_of" or (search is not None and search.incumbent)) and not env.deterministic:
            reasons[method] = f"the path it finds could not be followed: steps of {env.task_id} are stochastic"
    return reasons


def play_methods(run: RunOnLevels, settings: ComparisonSettings, report: Report | None = None) -> list[PlayMethod]:
    """The methods of the settings that can be played on the run's environment, greedy first, then as in `METHODS`.

    `report` receives the progress.
    """
    saved = run.saved
    excluded = excluded_methods(saved.env, settings.methods)
    chosen = [method for method in settings.methods if method not in excluded]
    make = functools.partial(_play_once, run, settings, report)
    found = [make("greedy", saved.learner.policies[1], 0, (0,))]
    samples = [("sampled", 0, 1)] if "sampled" in chosen else []
    samples += [("best_of", budget, budget) for budget in settings.budgets] if "best_of" in chosen else []
    if samples:
        found.append(_best_of(run, settings, report, samples))
    for method in (method for method in SEARCHES if method in chosen):
        for size, budgets in itertools.groupby(settings.budgets, functools.partial(num_particles, saved.env, method)):
            choice = SEARCHES[method]._replace(particles=size, temperature=_temperature(method, settings))
            found.append(make(method, _searching(saved, choice), size, tuple(budgets)))
    if plays_own_search(saved, settings.methods):
        config, _ = policies.search_config(saved, SearchChoice())
        budget = config.num_particles * depth_of(config)
        found.append(make("own", _searching(saved, SearchChoice()), config.num_particles, (budget,)))
    return found


def plays_own_search(saved: SavedRun, methods: tuple[str, ...]) -> bool:
    """Whether `own` is among the methods and the run has a search of its own."""
    return "own" in methods and saved.meta.algorithm == "spo"


def num_particles(env: Environment, method: str, budget: int) -> int:
    """The largest number of particles that takes at most `budget` model steps per decision, at least 1.

    To the end of an episode of T steps a particle walks T steps at the first decision and 1 at the last, (T + 1) / 2 in
    the mean.
    """
    depth = SEARCHES[method].depth
    if isinstance(depth, int):
        return max(1, budget // depth)
    return max(1, 2 * budget // ((env.time_limit or 1) + 1))


def _searching(saved: SavedRun, choice: SearchChoice) -> Policy | MemoryPolicy:
    return policies.select_policy(saved, choice, network=False, deterministic=True).policy


def _play_once(
    run: RunOnLevels,
    settings: ComparisonSettings,
    report: Report | None,
    method: str,
    policy: Policy | MemoryPolicy,
    particles: int,
    budgets: tuple[int, ...],
) -> PlayMethod:
    """The most probable actions of a policy. It is played once, and its result is yielded for each of the budgets."""
    num_envs = envs_at_a_time(run.levels, settings, max(1, particles))
    evaluator = Evaluator(run.saved.env, policy, run.levels, num_envs)

    def play(params: Params, key: Key) -> Iterator[MethodResult]:
        scores = play_to_end(evaluator.play_with_key(params, key), report)
        episodes = _episodes(scores.results)
        counted = isinstance(scores.memory, SearchMemory)
        model_steps = np.asarray(scores.memory.model_steps[0]) if counted else 0 * episodes.lengths
        for budget in budgets:
            yield MethodResult(method, budget, particles, num_envs, scores.seconds, episodes, model_steps)

    return play


def _best_of(
    run: RunOnLevels, settings: ComparisonSettings, report: Report | None, rows: list[tuple[str, int, int]]
) -> PlayMethod:
    """The best of several sampled episodes. Rows are (method, budget, episodes per level), ascending in the last.

    Each row continues with the episodes of the previous one. Episode k of all levels has the key fold_in(key, k). The
    best episode counts; its cost per decision is the steps of all episodes over its own decisions. The method `sampled`
    plays its single episode, so it takes no model steps.
    """
    num_envs = envs_at_a_time(run.levels, settings, 1)
    evaluator = Evaluator(run.saved.env, run.saved.learner.policies[1], run.levels, num_envs, mode="sampled")

    def play(params: Params, key: Key) -> Iterator[MethodResult]:
        nothing = np.zeros(run.levels.num_episodes, np.int64)
        best = Episodes(np.full(nothing.shape, -np.inf, np.float32), nothing, None)
        steps, seconds, done = nothing, 0.0, 0
        for method, budget, num_samples in rows:
            for sample in range(done, num_samples):
                one = play_to_end(evaluator.play_with_key(params, jax.random.fold_in(key, sample)), report)
                episodes = _episodes(one.results)
                best = _better(best, episodes)
                steps, seconds = steps + episodes.lengths, seconds + one.seconds
            done = num_samples
            size, model_steps = (0, 0 * steps) if method == "sampled" else (num_samples, steps)
            yield MethodResult(method, budget, size, num_envs, seconds, best, model_steps)

    return play


def _episodes(results: Mapping[str, np.ndarray]) -> Episodes:
    """The episodes of the first seed of an evaluation."""
    solved = results.get("solve_rate")
    return Episodes(results["episode_return"][0], results["episode_length"][0], None if solved is None else solved[0])


def _better(best: Episodes, other: Episodes) -> Episodes:
    """Of each level the episode with the higher return, the former if both have the same."""
    is_better = other.returns > best.returns
    solved = other.solved
    if solved is not None and best.solved is not None:
        solved = np.where(is_better, solved, best.solved)
    returns, lengths = np.maximum(best.returns, other.returns), np.where(is_better, other.lengths, best.lengths)
    return Episodes(returns, lengths, solved)


def best_of_beside(search: MethodResult, played: Sequence[MethodResult]) -> MethodResult | None:
    """The best of whole episodes at the budget of a search, if it was played before it."""
    if search.method not in SEARCHES:
        return None
    return next((one for one in played if (one.method, one.budget) == ("best_of", search.budget)), None)


def envs_at_a_time(levels: Levels, settings: ComparisonSettings, particles: int) -> int:
    """The number of levels played at a time: as requested, but limited by their number and by `MAX_PARTICLES`."""
    requested = settings.num_envs or DEFAULT_NUM_ENVS
    return max(1, min(requested, levels.num_episodes, MAX_PARTICLES // particles))
