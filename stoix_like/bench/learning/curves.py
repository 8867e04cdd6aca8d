"""Evaluations of the trained BinPack presets over their wall-clock: the points of a figure."""

from __future__ import annotations

from collections.abc import Iterator

from stoix_like.bench.learning.trainings import SEEDS, Training, finished_run
from stoix_like.bench.timing.measure import Measurement
from stoix_like.runtime.results.series import RunRecord, read_started_run

TRAINED = (Training("ppo-quick", "ppo/quick"), Training("ppo-binpack", "ppo/binpack"))
SCORE = "evaluator/utilisation"


def curves_suite() -> Iterator[Measurement]:
    """A row for each evaluation of each seed, on the fresh levels of the run, by the policy alone."""
    for training in TRAINED:
        for seed in SEEDS:
            yield from curve_rows(f"curve/{training.preset}/s{seed}", read_started_run(finished_run(training, seed)))


def curve_rows(name: str, run: RunRecord) -> Iterator[Measurement]:
    """The evaluations of a run of one seed, with the seconds of its own clock, compilation included."""
    (points,) = run.series[SCORE].values()
    for steps, score, seconds in zip(points.timesteps, points.values, points.seconds, strict=True):
        yield Measurement(f"{name}/{steps:.0f}", float(score), "utilisation", note=f"after {seconds:.1f} s")
