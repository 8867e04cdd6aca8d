"""The flags `--network`, `--search` and `--search-...` of the commands that evaluate saved runs."""

from __future__ import annotations

import argparse

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, above_zero, checked_number, positive_int
from stoix_like.runtime.evaluators.policies import SearchChoice


def add_search_flags(parser: ArgumentParser) -> None:
    """Adds `--network`, `--search` and `--search-...` to the parser."""
    add = parser.add_argument
    add("--network", action="store_true", help="play the network alone, without the run's own search")
    add("--search", action="store_true", help="search for every action, also with a PPO run")
    add("--search-simulations", type=positive_int, metavar="N", help="simulations per move, of AlphaZero runs alone")
    add("--search-particles", type=positive_int, metavar="P", help="particles (PPO runs: 4)")
    add("--search-depth", type=_depth, metavar="D|full", help="model steps of each particle (PPO runs: full)")
    help_text = "first actions (PPO runs: topk; iid for factored ones)"
    add("--search-root", choices=["iid", "gumbel_topk", "topk"], help=help_text)
    add("--search-continuation", choices=["sampled", "greedy"], help="later actions (PPO runs: greedy)")
    help_text = "in reward units (PPO runs: 0.001; where a critic values the particles, about its error)"
    add("--search-temperature", type=_temperature, metavar="T", help=help_text)
    add("--search-resampling", choices=["period", "ess", "none"], help="when to resample (PPO runs: none)")
    add("--search-period", type=positive_int, metavar="N", help="depths between resamplings")
    help_text = "how ancestors are drawn (PPO runs: systematic)"
    add("--search-resampler", choices=["systematic", "multinomial"], help=help_text)
    help_text = "share of effective particles below which ess resamples (PPO runs: 0.5)"
    add("--search-ess-threshold", type=_share, metavar="X", help=help_text)
    add("--search-gamma", type=_share, metavar="X", help="discount per model step (PPO runs: gamma)")
    add("--search-gae-lambda", type=_share, metavar="X", help="lambda of the search's advantages (PPO runs: 1)")
    help_text = "follow the best finished path found so far (deterministic tasks)"
    add("--search-incumbent", action="store_true", help=help_text)


def _depth(text: str) -> int | str:
    return text if text == "full" else positive_int(text)


def _temperature(text: str) -> float:
    return checked_number(text, above_zero, "a number above 0")


def _share(text: str) -> float:
    return checked_number(text, lambda number: 0.0 <= number <= 1.0, "a number from 0 to 1")


def search_choice(arguments: argparse.Namespace) -> SearchChoice | None:
    """The search that the flags configure; None if none was given. Raises ConfigError with both kinds of flags."""
    values = {name: getattr(arguments, f"search_{name}") for name in SearchChoice._fields}
    is_given = arguments.search or any(value not in (None, False) for value in values.values())
    if is_given and arguments.network:
        raise ConfigError("--network: the network alone does not search", "leave out --network or the search")
    return SearchChoice(**values) if is_given else None
