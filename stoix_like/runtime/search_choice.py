"""How a saved run is made to search when it is evaluated: flags, defaults, and the policy they mean.

A PPO run has no search of its own; it gets the one that won on BinPack (docs/benchmarks.md): the most probable first
actions, all different, each followed greedily to the end. An SPO run gets its own search, changed by what is given.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from stoix_like.errors import ConfigError
from stoix_like.runtime.arguments import ArgumentParser, positive

if TYPE_CHECKING:
    from stoix_like.runtime.saved_run import SavedRun
    from stoix_like.search.model import SearchConfig, SearchModel
    from stoix_like.search.roots import RootKind
    from stoix_like.types import MemoryPolicy, Policy

DEFAULT_PARTICLES = 4
DEFAULT_TEMPERATURE = 0.001  # reward units: the best path decides


class SearchChoice(NamedTuple):
    """What the flags `--search-...` said; None where they said nothing."""

    particles: int | None = None
    depth: int | str | None = None
    root: str | None = None
    continuation: str | None = None
    temperature: float | None = None
    resampling: str | None = None
    period: int | None = None
    incumbent: bool = False


class Chosen(NamedTuple):
    """A policy, and how it is called in tables and files."""

    policy: Policy | MemoryPolicy
    name: str


def add_search_flags(parser: ArgumentParser) -> None:
    """`--network`, `--search` and the flags that change it."""
    parser.add_argument("--network", action="store_true", help="the network alone, of a run that was trained to search")
    parser.add_argument("--search", action="store_true", help="search for every action, also with a PPO run")
    parser.add_argument("--search-particles", type=positive, metavar="P", help="particles (PPO runs: 4)")
    parser.add_argument("--search-depth", type=_depth, metavar="D|full", help="model steps each (PPO runs: full)")
    parser.add_argument(
        "--search-root",
        choices=["iid", "gumbel_topk", "topk"],
        help="first actions (PPO runs: topk; iid for factored ones)",
    )
    parser.add_argument("--search-continuation", choices=["sampled", "greedy"], help="then (PPO runs: greedy)")
    parser.add_argument("--search-temperature", type=_above_zero, metavar="T", help="reward units (PPO runs: 0.001)")
    parser.add_argument("--search-resampling", choices=["period", "ess", "none"], help="(PPO runs: none)")
    parser.add_argument("--search-period", type=positive, metavar="N", help="depths between resamplings")
    what = "follow the best finished path found so far (deterministic tasks)"
    parser.add_argument("--search-incumbent", action="store_true", help=what)


def _depth(text: str) -> int | str:
    return text if text == "full" else positive(text)


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got '{text}'")
    return number


def choice_of(arguments: argparse.Namespace) -> SearchChoice | None:
    """What the flags said; None if none was given.

    Raises:
        ConfigError: `--network` beside a search.
    """
    values = {name: getattr(arguments, f"search_{name}") for name in SearchChoice._fields}
    is_given = arguments.search or any(value not in (None, False) for value in values.values())
    if is_given and arguments.network:
        raise ConfigError("--network: the network alone does not search", "leave out --network or the search")
    return SearchChoice(**values) if is_given else None


def chosen_policy(saved: SavedRun, choice: SearchChoice | None, network: bool, deterministic: bool) -> Chosen:
    """The policy to evaluate: the run's own, its network alone, or a search as chosen; named as it will be played.

    Raises:
        ConfigError: a search that does not fit the environment.
    """
    if choice is None:
        learner = saved.learner
        searches = learner.policy is not learner.network_policy
        if network or not searches:
            return Chosen(learner.network_policy, "network")
        return Chosen(learner.policy, "search as trained")
    from stoix_like.algorithms import searching

    config, temperature = search_of(saved, choice)
    env, model = saved.env, model_of(saved)
    arguments = model, config, saved.network_params, temperature
    policy: Any = (
        searching.planning_policy(env, *arguments) if choice.incumbent else searching.search_policy(*arguments)
    )
    return Chosen(policy, describe(searching.deterministic(config) if deterministic else config, choice))


def model_of(saved: SavedRun) -> SearchModel:
    """The run's environment and network as a model, rewards and randomness as in its training."""
    from stoix_like.algorithms import searching

    rekey = saved.config.spo.rekey_particles if saved.meta.algorithm == "spo" else "auto"
    scale = saved.config.optimization.reward_scale
    return searching.search_model(saved.env, saved.network, reward_scale=scale, rekey=rekey)


def search_of(saved: SavedRun, choice: SearchChoice) -> tuple[SearchConfig, Any]:
    """(the search, what gives its temperature from the run's parameters).

    Raises:
        ConfigError: see `model.check`.
    """
    from stoix_like.algorithms import searching, spo
    from stoix_like.config import SPOSectionConfig
    from stoix_like.search.model import check

    factored = saved.env.action_spec.num_factors is not None
    core, is_spo = saved.config.training_core, saved.meta.algorithm == "spo"
    section = saved.config.spo if is_spo else SPOSectionConfig()
    config = searching.search_config(saved.env, section, core.gamma, core.gae_lambda)
    if not is_spo:
        depth = "full" if saved.env.time_limit is not None else config.search_depth
        root: RootKind = "iid" if factored else "topk"
        config = config._replace(
            num_particles=DEFAULT_PARTICLES, search_depth=depth, root=root, continuation="greedy", resampling="none"
        )
    names = {"particles": "num_particles", "depth": "search_depth", "period": "resampling_period"}
    given = {names.get(k, k): v for k, v in choice._asdict().items() if k not in ("temperature", "incumbent")}
    config = config._replace(**{name: value for name, value in given.items() if value is not None})
    check(config, factored=factored)
    if choice.temperature is None and is_spo:
        settings = spo.settings_of(saved.env, saved.config)
        return config, lambda params: spo.temperature_of(settings, params)
    temperature = choice.temperature or DEFAULT_TEMPERATURE
    return config, lambda _params: temperature


def describe(config: SearchConfig, choice: SearchChoice) -> str:
    """`search 4 x full, root topk, greedy, resampling none`."""
    parts = [f"search {config.num_particles} x {config.search_depth}", f"root {config.root}", config.continuation]
    parts.append(f"resampling {config.resampling}")
    parts += [f"temperature {choice.temperature:g}"] if choice.temperature is not None else []
    return ", ".join([*parts, "incumbent plan"] if choice.incumbent else parts)
