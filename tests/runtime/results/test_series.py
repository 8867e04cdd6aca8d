"""What a record says of a run, from rows written by hand."""

import json

import numpy as np
import pytest

from stoix_like.errors import RunError
from stoix_like.runtime.results.series import read_run, read_started_run


def _row(category, update, seed=None, **values):
    at = {"category": category, "update": update, "timesteps": 100 * update, "elapsed_seconds": 0.5 * update}
    return at | {"seed": seed} | {name.replace("__", "/"): value for name, value in values.items()}


START = _row("MISC", 0, misc__event="start", misc__algorithm="PPO", misc__task_id="Maze-v0", misc__device="cpu")
ROWS = [
    START | {"misc/num_updates": 4, "misc/num_seeds": 2},
    _row("MISC", 0, misc__compile_seconds=2.5),
    _row("TRAINER", 2, 0, trainer__entropy=1.5),
    _row("EVALUATOR", 2, 0, evaluator__mean_return=0.25),
    _row("EVALUATOR", 2, 0, evaluator_network__mean_return=0.125),
    _row("EVALUATOR", 2, 1, evaluator__mean_return=None),
    _row("MISC", 2, misc__event="checkpoint_saved", misc__path="checkpoints/2"),
    _row("MISC", 2, misc__event="resume", misc__num_updates=8, misc__device="NVIDIA H200"),
    _row("EVALUATOR", 4, 1, evaluator__mean_return=0.75),
    _row("MISC", 3, misc__event="checkpoint_saved"),  # written later than what was logged after it
]


def _write(folder, rows):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_record_by_hand(tmp_path):
    run = read_run(_write(tmp_path, ROWS))
    assert (run.algorithm, run.task_id, run.device) == ("ppo", "Maze-v0", "cpu and NVIDIA H200")
    assert (run.start["num_updates"], run.start["num_seeds"]) == (4, 2)
    assert [run.latest(name) for name in ("num_updates", "compile_seconds", "unknown")] == [8, 2.5, None]
    assert [run.last[name] for name in ("update", "timesteps", "elapsed_seconds")] == [4, 400, 2.0]
    both = {"evaluator/mean_return": 0.25, "evaluator_network/mean_return": 0.125}
    assert run.evaluations == {
        2: {0: both, 1: {"evaluator/mean_return": None}},
        4: {1: {"evaluator/mean_return": 0.75}},
    }
    assert [(row["update"], row["event"]) for row in run.events] == [
        (0, "start"),
        (2, "checkpoint_saved"),
        (2, "resume"),
        (3, "checkpoint_saved"),
    ]
    assert (run.events[1]["path"], run.events[1]["elapsed_seconds"]) == ("checkpoints/2", 1.0)
    series = run.series["evaluator/mean_return"]  # a null is no point
    assert {seed: one.timesteps.tolist() for seed, one in series.items()} == {0: [200.0], 1: [400.0]}
    np.testing.assert_array_equal(series[1], [[400.0], [0.75], [2.0]])


@pytest.mark.parametrize("written", ["PPO", "ppo"])
def test_the_algorithm_is_its_key_however_the_file_spells_it(tmp_path, written):
    assert read_started_run(_write(tmp_path, [START | {"misc/algorithm": written}])).algorithm == "ppo"


def test_a_run_that_has_only_started_can_be_read_but_has_nothing_to_draw(tmp_path):
    run = read_started_run(_write(tmp_path, []))
    assert (run.start, run.series, run.evaluations, run.events, run.last) == ({}, {}, {}, [], {})
    run = read_started_run(_write(tmp_path, [START]))
    assert (run.task_id, run.series) == ("Maze-v0", {})
    with pytest.raises(RunError, match="has no metrics yet"):
        read_run(tmp_path)
    with pytest.raises(RunError, match="has no start row"):
        read_run(_write(tmp_path, ROWS[1:]))
