"""Scores of trained policies on frozen levels, three seeds per setting. Takes hours if the runs do not exist yet."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.bench.learning.trainings import SEEDS, Training, finished_run
from stoix_like.bench.timing.measure import Measurement
from stoix_like.evaluation.statistics import difference_interval, mean_interval
from stoix_like.runtime.console.text import interval_text
from stoix_like.runtime.evaluators.policies import SearchChoice
from stoix_like.runtime.results.series import read_started_run
from stoix_like.types import Environment, Policy


class Claim(NamedTuple):
    """A training, its frozen levels, the metric to report, and the policy that plays.

    Attributes:
        search: replaces the search of the run, or adds one.
        network: plays without search.
    """

    training: Training
    level_set: str
    metric: str
    row: str = ""
    search: SearchChoice | None = None
    network: bool = False


class Pair(NamedTuple):
    """Two claims that are compared, by their rows: the first above the second. `name` of the row, else the first's."""

    ours: str
    theirs: str
    name: str = ""


def _preset(preset: str, *flags: str, name: str | None = None) -> Training:
    return Training(name or preset.replace("/", "-"), preset, flags)


#: Distinct first actions, each followed greedily to the end: at most 80 model steps per decision on BinPack.
DISTINCT = SearchChoice(
    particles=4, depth="full", root="topk", continuation="greedy", temperature=0.001, resampling="none"
)
#: A few steps deep, valued by the critic: the search that SPO trains with on Maze, except for the root. Its temperature
#: is the best of five on the first 256 of these levels. At a tenth of it PPO's network is worse (docs/log.md).
SHORT = SearchChoice(
    particles=4, depth=8, root="topk", continuation="sampled", temperature=0.1, resampling="period", period=2
)
SHARP = SHORT._replace(temperature=0.01)
#: Four first actions followed by sampled ones, and the best path that any search of the episode has found.
PLAN = DISTINCT._replace(continuation="sampled", incumbent=True)
PACKED = ("binpack-2048", "utilisation")
PACKED_BY_SEARCH = ("binpack-512", "utilisation")
SOLVED = ("maze-2048", "solve_rate")
SEARCHED = ("maze-512", "solve_rate")  # a search of 2,048 takes a quarter of an hour on a core
#: The same networks and environment steps for both algorithms. PPO's rollout lengths and epochs are the best of those
#: tried at these numbers of steps (docs/log.md); on BinPack they are SPO's.
EQUAL_PACKING = (
    _preset(
        "ppo/quick",
        *("--num-envs", "64", "--rollout-length", "20", "--num-updates", "40"),
        name="ppo-quick-51k",
    ),
    _preset("spo/quick"),
)
#: PPO with the network of SPO, whose policy and value have a torso each, and the rates that were compared then.
_APART = ("--no-shared-torso", "--actor-lr", "0.001", "--critic-lr", "0.001", "--gamma", "0.99", "--clip-eps", "0.2")
EQUAL_MAZE = (_preset("ppo/maze", *_APART, name="ppo-maze-102k"), _preset("spo/maze"))
#: With constant learning rates, at which both learn faster.
EARLY_MAZE = (
    _preset("ppo/maze", *_APART, "--num-updates", "50", "--no-decay-learning-rates", name="ppo-maze-51k"),
    _preset("spo/maze", "--num-updates", "25", "--no-decay-learning-rates", name="spo-maze-51k"),
)
PACKING_CLAIMS = (
    Claim(_preset("ppo/quick"), *PACKED),
    Claim(_preset("ppo/binpack"), *PACKED),
    Claim(_preset("ppo/quick"), *PACKED, "ppo/quick+search", DISTINCT),
    Claim(_preset("ppo/binpack"), *PACKED, "ppo/binpack+search", DISTINCT),
    Claim(_preset("ppo/binpack"), *PACKED, "ppo/binpack+plan", PLAN),
    *(
        Claim(training, *PACKED, f"{training.name}{suffix}", search, network)
        for training in EQUAL_PACKING
        for suffix, search, network in (("/network", None, True), ("/search", DISTINCT, False))
    ),
)
MAZE_CLAIMS = (
    Claim(_preset("ppo/maze"), *SOLVED),
    *(Claim(training, *SOLVED, f"{training.name}/network", network=True) for training in (*EARLY_MAZE, *EQUAL_MAZE)),
    *(Claim(training, *SEARCHED, f"{training.name}/search", SHORT) for training in EARLY_MAZE),
    *(Claim(training, *SEARCHED, f"{training.name}/sharp_search", SHARP) for training in EARLY_MAZE),
)
#: The presets of BinPack-v2 on the levels of rust_rl's generator.
V0 = ("--task-id", "BinPack-v0")
V0_CLAIMS = tuple(
    Claim(_preset(preset, *V0, name=name), *levels, f"{name}/{suffix}", search, search is None)
    for preset, name in (("ppo/quick", "ppo-quick-v0"), ("spo/quick", "spo-quick-v0"))
    for suffix, search, levels in (("network", None, PACKED), ("search", DISTINCT, PACKED_BY_SEARCH))
)

#: Rows of one suite whose means over seeds are compared: SPO's before PPO's.
PACKING_PAIRS = tuple(Pair(f"spo-quick/{what}", f"ppo-quick-51k/{what}") for what in ("network", "search"))
MAZE_PAIRS = (
    Pair("spo-maze-51k/network", "ppo-maze-51k/network"),
    Pair("spo-maze/network", "ppo-maze-102k/network"),
    Pair("spo-maze-51k/search", "ppo-maze-51k/search"),
)


def _ablated(mode: str, resampling: str, root: str) -> Training:
    """`spo/maze`, about four minutes on a core. Constant learning rates: a shortened schedule would end too early."""
    flags = ["--temperature-mode", mode, "--resampling", resampling, "--root", root]
    flags += ["--fixed-temperature", "0.03", "--dual-lr", "0.02", "--num-updates", "25", "--epochs", "64"]
    flags += ["--no-decay-learning-rates", "--no-save-replay"]
    flags += ["--eval-interval", "0", "--level-set", "maze-256"]
    return Training(f"spo-maze-{mode}-{resampling}-{root}", "spo/maze", tuple(flags))


ABLATION = tuple(
    _ablated(mode, resampling, root)
    for root in ("gumbel_topk", "iid")
    for resampling in ("period", "ess", "none")
    for mode in ("solve", "dual", "fixed", "std")
)


def learning_suite() -> Iterator[Measurement]:
    """BinPack: means over seeds of the last, deterministic policies; the spread is half a 95 % interval over seeds."""
    yield from claim_rows(PACKING_CLAIMS, PACKING_PAIRS)


def learning_maze_suite() -> Iterator[Measurement]:
    """Maze: like `learning_suite`."""
    yield from claim_rows(MAZE_CLAIMS, MAZE_PAIRS)


def learning_v0_suite() -> Iterator[Measurement]:
    """BinPack-v0: like `learning_suite`."""
    yield from claim_rows(V0_CLAIMS, ())


def ablation_suite() -> Iterator[Measurement]:
    """SPO's network on Maze by temperature mode, resampling and root. One seed; the spread is over levels."""
    yield from map(_ablation_row, ABLATION)


def _ablation_row(training: Training) -> Measurement:
    run = finished_run(training, 0)
    network = _score(run, Claim(training, *SOLVED, network=True))
    search = _score(run, Claim(training, "maze-256", "solve_rate"))
    spread = (network["high"] - network["low"]) / 2 / max(network["mean"], 1e-9)
    note = f"network on maze-2048; with its search {search['mean']:.3f} of maze-256; {network['timesteps']:,} steps"
    name = training.name.removeprefix("spo-maze-").replace("-", "/")
    return Measurement(f"ablation/{name}", network["mean"], "solve_rate", spread, note=note)


def claim_rows(claims: tuple[Claim, ...], pairs: tuple[Pair, ...]) -> Iterator[Measurement]:
    """A row for each claim, and one for each pair of claims."""
    means = {}
    for claim in claims:
        scores = [_score(finished_run(claim.training, seed), claim) for seed in SEEDS]
        means[claim.row] = [score["mean"] for score in scores]
        yield _row(claim, scores)
    metric = claims[0].metric
    for ours, theirs, name in pairs:
        row = difference_row(ours, theirs, means[ours], means[theirs], metric)
        yield row._replace(name=f"learning/difference/{name}") if name else row


def difference_row(ours: str, theirs: str, first: Sequence[float], second: Sequence[float], metric: str) -> Measurement:
    """The difference of the means over seeds of two claims."""
    interval = difference_interval(first, second)
    note = f"95 % {interval_text(interval.low, interval.high, '+.4f')} over seeds (Welch); above {theirs}"
    return Measurement(f"learning/difference/{ours}", interval.point, metric, note=note)


def _row(claim: Claim, scores: list[dict[str, Any]]) -> Measurement:
    interval = mean_interval(np.array([score["mean"] for score in scores]))
    of_seeds = "; ".join(f"{score['mean']:.4f} {interval_text(score['low'], score['high'], '.4f')}" for score in scores)
    steps, seconds = scores[0]["timesteps"], [score["seconds"] for score in scores]
    note = (
        f"{claim.level_set}, {steps:,} steps, {_range_text(min(seconds), max(seconds))};"
        f" {scores[0]['policy']}; seeds {of_seeds}{_solved_note(claim, scores)}"
    )
    spread = (interval.high - interval.low) / 2 / max(interval.point, 1e-9)
    name, ceiling = f"learning/{claim.row or claim.training.preset}", scores[0]["ceiling"]
    share = interval.point / ceiling if ceiling else None
    return Measurement(name, interval.point, claim.metric, spread, ceiling=ceiling, share=share, note=note)


def baseline_row(name: str, env: Environment, policy: Policy, level_set: str, metric: str) -> Measurement:
    """A policy that does not learn, on a frozen level set. The spread is half a 95 % interval over levels."""
    from stoix_like.runtime.evaluators.scores import Evaluator, make_levels

    evaluator, root = Evaluator(env, policy, make_levels(env, level_set, 256), num_envs=256), jax.random.key(0)
    scores, ceiling = evaluator({}, root, 0), evaluator.ceiling(root, 0)
    interval = mean_interval(scores.results[metric][0])
    spread = (interval.high - interval.low) / 2 / max(interval.point, 1e-9)
    share = interval.point / ceiling if ceiling else None
    note = f"levels {scores.level_hash}"
    return Measurement(name, interval.point, metric, spread, ceiling=ceiling, share=share, note=note)


def _range_text(shortest: float, longest: float) -> str:
    """In seconds, from two minutes on in minutes."""
    unit, name = (1, "s") if longest < 120 else (60, "min")
    return f"{shortest / unit:.0f} to {longest / unit:.0f} {name}"


def _solved_note(claim: Claim, scores: list[dict[str, Any]]) -> str:
    """The share of levels that each seed solves, where that is not the metric of the row."""
    if claim.metric == "solve_rate" or scores[0]["solve_rate"] is None:
        return ""
    return "; solved " + ", ".join(f"{score['solve_rate']:.4f}" for score in scores)


@functools.cache
def _evaluated(run: Path, level_set: str, search: SearchChoice | None, network: bool) -> dict[str, Any]:
    """The result of a run's last checkpoint, which several claims may read."""
    from stoix_like.runtime.evaluators.saved_run import EvaluationSettings, evaluate_run

    settings = EvaluationSettings(level_set=level_set, search=search, network=network)
    return evaluate_run(str(run), "latest", settings)


def _score(run: Path, claim: Claim) -> dict[str, Any]:
    result = _evaluated(run, claim.level_set, claim.search, claim.network)
    (of_seed,) = result["seeds"].values()
    last = read_started_run(run).last
    return of_seed[claim.metric] | {
        "solve_rate": of_seed.get("solve_rate", {}).get("mean"),
        "policy": result["policy"],
        "ceiling": result.get("ceiling") if claim.metric == "solve_rate" else None,
        "timesteps": last["timesteps"],
        "seconds": last["elapsed_seconds"],
    }
