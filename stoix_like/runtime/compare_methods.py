"""The methods that `compare_search.py` compares: what each is at a budget of model steps, and how it plays a level set.

A model step is one step of the environment's rules that is only thought: by a particle whose episode goes on, or in an
episode that is played to be looked at. Budgets are nominal, per decision; what was really used is counted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms import searching
from stoix_like.evaluation import episodes
from stoix_like.evaluation.levels import LevelSet
from stoix_like.ops import trees
from stoix_like.runtime import search_choice
from stoix_like.runtime.devices import plain_errors
from stoix_like.runtime.saved_run import SavedRun
from stoix_like.search import smc
from stoix_like.search.plan import Plan, after_step, better_plan, no_plan
from stoix_like.search.smc import Root, SearchConfig, SearchModel, Temperature
from stoix_like.types import (
    Array,
    Environment,
    EnvState,
    Key,
    MemoryPolicy,
    NetworkParams,
    Observation,
    Params,
    Policy,
)

DEFAULT_NUM_ENVS = 128
MOST_PARTICLES = 16_384  # in play at a time, over all environments
_LESS_MEMORY = "let fewer levels be played at a time: --num-envs"


class Search(NamedTuple):
    """A search but for its size."""

    root: str
    continuation: str
    depth: int | str
    follows_plan: bool


SEARCHES = {
    "smc": Search("iid", "sampled", 4, False),
    "distinct": Search("topk", "greedy", "full", False),
    "plan": Search("topk", "sampled", "full", True),
}
METHODS = ("greedy", "sampled", "best_of", *SEARCHES)


class Settings(NamedTuple):
    """What is compared and how it is played."""

    methods: tuple[str, ...] = METHODS
    budgets: tuple[int, ...] = (16, 64, 256, 1024)  # model steps per decision, ascending
    temperature: float | None = 0.005  # of smc, reward units; None: the one an SPO run has learned
    num_envs: int | None = None  # levels played at a time; None: 128, and fewer where there are many particles
    seed: int = 0  # of sampling


class Played(NamedTuple):
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
Player = Callable[[Params, Key], Iterator[Played]]


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


def players(saved: SavedRun, levels: LevelSet, settings: Settings) -> list[Player]:
    """Everything that can be compared on the run's environment, in the order of `METHODS`; greedy is always there."""
    excluded = left_out(saved.env, settings.methods)
    chosen = [method for method in settings.methods if method not in excluded]
    found = [_greedy(saved, levels, settings)]
    samples = [("sampled", 0, 1)] if "sampled" in chosen else []
    samples += [("best_of", budget, budget) for budget in settings.budgets] if "best_of" in chosen else []
    if samples:
        found.append(_best_of(saved, levels, settings, samples))
    for method in (method for method in SEARCHES if method in chosen):
        sizes = itertools.groupby(settings.budgets, lambda budget, m=method: particles_at(m, budget, saved.env))  # type: ignore[misc]
        found += [_searching(saved, levels, settings, method, size, tuple(same)) for size, same in sizes]
    return found


def particles_at(method: str, budget: int, env: Environment) -> int:
    """How many particles take about `budget` model steps per decision, at least 1."""
    depth = SEARCHES[method].depth
    return max(1, budget // (env.time_limit or 1 if isinstance(depth, str) else depth))


def _greedy(saved: SavedRun, levels: LevelSet, settings: Settings) -> Player:
    num_envs = envs_at_a_time(levels, settings, 1)
    program = _Program(saved.env, saved.learner.network_policy, levels.keys, num_envs, deterministic=True)

    def play(params: Params, key: Key) -> Iterator[Played]:
        results, _, seconds = program(params, key)
        nothing = np.zeros_like(results.episode_length)
        yield Played(
            "greedy", 0, 0, num_envs, seconds, results.episode_return, results.episode_length, model_steps=nothing
        )

    return play


def _best_of(saved: SavedRun, levels: LevelSet, settings: Settings, rows: list[tuple[str, int, int]]) -> Player:
    """Rows of (method, budget, whole sampled episodes per level), ascending: each goes on with what is there.

    Episode k of all levels has the key fold_in(key, k). The episode followed in the end is the best; what all of them
    took, spread over its decisions, is the cost of one. A single episode was not thought but played.
    """
    num_envs = envs_at_a_time(levels, settings, 1)
    program = _Program(saved.env, saved.learner.network_policy, levels.keys, num_envs, deterministic=False)

    def play(params: Params, key: Key) -> Iterator[Played]:
        best, best_length, steps, seconds, done = np.float32(-np.inf), np.int32(0), np.int64(0), 0.0, 0
        for method, budget, num_samples in rows:
            for sample in range(done, num_samples):
                results, _, duration = program(params, jax.random.fold_in(key, sample))
                best_length = np.where(results.episode_return > best, results.episode_length, best_length)
                best = np.maximum(best, results.episode_return)
                steps = steps + results.episode_length
                seconds += duration
            done = num_samples
            thought = (0, np.zeros_like(steps)) if method == "sampled" else (num_samples, steps)
            yield Played(method, budget, thought[0], num_envs, seconds, best, best_length, thought[1])

    return play


def _searching(
    saved: SavedRun, levels: LevelSet, settings: Settings, method: str, particles: int, budgets: tuple[int, ...]
) -> Player:
    """A search of so many particles, whatever the budgets it is the search of: its row is told for each."""
    search = SEARCHES[method]
    choice = search_choice.SearchChoice(
        particles=particles,
        depth=search.depth,
        root=search.root,
        continuation=search.continuation,
        temperature=settings.temperature if method == "smc" else search_choice.DEFAULT_TEMPERATURE,
        resampling="none",
    )
    config, temperature = search_choice.search_of(saved, choice)
    model = searching.search_model(saved.env, saved.network, reward_scale=saved.config.optimization.reward_scale)
    policy = counting_policy(
        saved.env, model, config, saved.network_params, temperature, follows_plan=search.follows_plan
    )
    num_envs = envs_at_a_time(levels, settings, particles)
    program = _Program(saved.env, policy, levels.keys, num_envs, deterministic=True)

    def play(params: Params, key: Key) -> Iterator[Played]:
        results, memory, seconds = program(params, key)
        for budget in budgets:
            yield Played(
                method,
                budget,
                particles,
                num_envs,
                seconds,
                results.episode_return,
                results.episode_length,
                memory.model_steps,
            )

    return play


class Counted(NamedTuple):
    """What a counting search remembers within an episode."""

    plan: Plan  # of no length where none is followed
    model_steps: Array  # [N] int32, so far


def counting_policy(
    env: Environment,
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
    *,
    follows_plan: bool,
) -> MemoryPolicy:
    """`searching.search_policy`, or `searching.planning_policy`, deterministic, that counts its model steps."""
    config = searching.deterministic(config)._replace(record_paths=follows_plan)

    def init(num_envs: int) -> Counted:
        horizon = smc.depth_of(config) if follows_plan else 0
        return Counted(no_plan(num_envs, horizon, env.action_spec.shape), jnp.zeros((num_envs,), jnp.int32))

    def act(
        params: Params, memory: Counted, env_state: EnvState, observation: Observation, key: Key, _deterministic: bool
    ) -> tuple[Array, Counted]:
        root = Root(env_state, observation)
        output = smc.search(model, network_params(params), key, root, temperature(params), config)
        action, plan = smc.best_action(output), memory.plan
        if output.paths is not None:
            plan = better_plan(plan, output.paths, config.gamma)
            action = trees.where(plan.remaining > 0, plan.actions[:, 0], action)
            plan = after_step(plan)
        return action, Counted(plan, memory.model_steps + output.diagnostics.model_steps)

    return MemoryPolicy(init, act)


def envs_at_a_time(levels: LevelSet, settings: Settings, particles: int) -> int:
    """How many levels are played at a time: as asked, but no more than there are, or than keep the particles few."""
    asked = settings.num_envs or DEFAULT_NUM_ENVS
    return max(1, min(asked, levels.keys.shape[0], MOST_PARTICLES // particles))


class _Program:
    """A policy on a level set, compiled when it is first called, so that seeds share it and compiling is not timed."""

    def __init__(
        self, env: Environment, policy: Policy | MemoryPolicy, level_keys: Key, num_envs: int, *, deterministic: bool
    ) -> None:
        num_levels = level_keys.shape[0]
        padded = jnp.arange(-(-num_levels // num_envs) * num_envs) % num_levels  # the last round is filled up

        def play(params: Params, key: Key) -> tuple[episodes.EpisodeResults, Any]:
            keys = level_keys[padded]
            played = episodes.evaluate_levels_with_memory(
                env, policy, params, keys, key, num_envs=num_envs, deterministic=deterministic
            )
            return jax.tree.map(lambda x: x[:num_levels], played)

        self._jitted = jax.jit(play)
        self._compiled: Callable[[Params, Key], Any] | None = None

    def __call__(self, params: Params, key: Key) -> tuple[episodes.EpisodeResults, Any, float]:
        """(results [E], the policy's memory [E, ...], seconds), on the host.

        Raises:
            RunError: out of memory, or too large to be compiled.
        """
        with plain_errors("the levels cannot be played", _LESS_MEMORY):
            if self._compiled is None:
                self._compiled = self._jitted.lower(params, key).compile()
            began = time.monotonic()
            results, memory = jax.device_get(self._compiled(params, key))
            return results, memory, time.monotonic() - began
