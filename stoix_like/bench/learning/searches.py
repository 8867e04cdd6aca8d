"""Gains of searches over trained policies at equal model steps: rows of `compare_search` on the runs of the bench."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stoix_like.bench.learning.scores import EARLY_MAZE, SHORT
from stoix_like.bench.learning.trainings import SEEDS, Training, finished_run
from stoix_like.bench.timing.measure import Measurement
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.searches.compare import SeedResult, compare
from stoix_like.runtime.searches.settings import ComparisonSettings


class Comparison(NamedTuple):
    """Trainings of three seeds, the levels and the settings."""

    trainings: tuple[Training, ...]
    level_set: str
    settings: ComparisonSettings


#: A network of each algorithm: PPO's after half an hour, SPO's after seven minutes.
PACKING = (Training("ppo-binpack", "ppo/binpack"), Training("spo-quick", "spo/quick"))
#: {suite: its comparison}.
COMPARISONS = {
    "search": Comparison(PACKING, "binpack-512", ComparisonSettings(budgets=(16, 64))),
    "search_maze": Comparison(
        EARLY_MAZE, "maze-256", ComparisonSettings(("best_of", "smc"), (16, 64), SHORT.temperature)
    ),
}


def search_suite(name: str) -> Iterator[Measurement]:
    """Every method at every budget, as the mean over seeds. The spread is half a 95 % interval."""
    comparison = COMPARISONS[name]
    for training in comparison.trainings:
        yield from _rows(training, comparison)


def _rows(training: Training, comparison: Comparison) -> list[Measurement]:
    runs = [finished_run(training, seed) for seed in SEEDS]
    reporter = SILENT._replace(progress=print_to_stderr)
    found = compare(runs, "latest", comparison.level_set, comparison.settings, reporter)
    (result,) = found["over_runs"]
    if len(result["members"]) < len(runs):
        raise ConfigError(f"the runs of {training.name} differ in their settings", "move their folders away")
    return [_row(training, comparison, result, row) for row in result["rows"]]


def _row(training: Training, comparison: Comparison, result: SeedResult, row: dict[str, Any]) -> Measurement:
    budget = [str(row["budget"])] if row["budget"] else []
    name = "/".join(["search", training.name, comparison.level_set, row["method"], *budget])
    gain = row["gain"]
    note = "" if gain is None else f"{gain['mean']:+.4f} ± {gain['high'] - gain['mean']:.4f} over greedy, paired; "
    over = row["gain_over_best_of"]
    note += "" if over is None else f"{over['mean']:+.4f} ± {over['high'] - over['mean']:.4f} over best_of, paired; "
    note += f"{row['model_steps_per_decision']:.1f} model steps per decision; " if row["budget"] else ""
    note += "" if row["solve_rate"] is None else f"{row['solve_rate']:.4f} of the levels solved; "
    spread = (row["high"] - row["low"]) / 2 / row["mean"]
    return Measurement(
        name, row["mean"], "return", spread, note=f"{note}{len(SEEDS)} seeds, levels {result['level_hash']}"
    )
