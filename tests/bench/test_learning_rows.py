"""Rows of learning by hand: the points of a curve, and what a note says of solved levels."""

from pathlib import Path

from stoix_like.bench.learning import curves, scores
from stoix_like.bench.timing.measure import Measurement
from stoix_like.runtime.results.series import RunRecord

CLAIM = scores.PACKING_CLAIMS[0]


def test_a_point_for_each_evaluation_with_the_seconds_of_the_run():
    evaluated = [(512, 0.5, 20.04), (1024, 0.75, 31.0)]
    rows = [
        {"category": "EVALUATOR", "update": n, "timesteps": steps, "elapsed_seconds": seconds, "seed": 0}
        | {"evaluator/utilisation": score, "evaluator/solve_rate": 0.1}
        for n, (steps, score, seconds) in enumerate(evaluated)
    ]
    assert list(curves.curve_rows("curve/ppo/quick/s0", RunRecord(Path("a"), rows))) == [
        Measurement("curve/ppo/quick/s0/512", 0.5, "utilisation", note="after 20.0 s"),
        Measurement("curve/ppo/quick/s0/1024", 0.75, "utilisation", note="after 31.0 s"),
    ]


def test_a_row_of_packed_volume_says_how_many_levels_each_seed_solves():
    score = {"mean": 0.9, "low": 0.8, "high": 1.0, "timesteps": 1000, "seconds": 60.0, "policy": "network"}
    of_seeds = [score | {"mean": mean, "solve_rate": solved} for mean, solved in ((0.9, 0.25), (0.95, 0.5), (1.0, 1.0))]
    row = scores._row(CLAIM, of_seeds)
    assert (row.name, row.unit) == ("learning/ppo/quick", "utilisation")
    assert round(row.value, 4) == 0.95
    assert row.note.startswith("binpack-2048, 1,000 steps, 1 to 1 min; network; seeds 0.9000 [0.8000, 1.0000]; ")
    assert row.note.endswith("; solved 0.2500, 0.5000, 1.0000")
    without = scores._row(CLAIM, [each | {"solve_rate": None} for each in of_seeds])
    assert "solved" not in without.note
