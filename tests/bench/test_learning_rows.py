"""Rows of learning by hand: the points of a curve, and what a note says of solved levels."""

from pathlib import Path

import pytest
import yaml

import stoix_like as sl
from stoix_like.bench.learning import agents, curves, scores, trainings
from stoix_like.bench.learning.trainings import refuse_other_settings
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import ConfigError
from stoix_like.runtime.results.series import RunRecord
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.runs.sources import load_config

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
    score = {
        "mean": 0.9,
        "low": 0.8,
        "high": 1.0,
        "timesteps": 1000,
        "policy": "network",
        "solve_rate": None,
        "ceiling": None,
    }
    seeds = ((0.9, 0.25, 60.0), (0.95, 0.5, 90.0), (1.0, 1.0, 70.0))
    of_seeds = [score | {"mean": mean, "solve_rate": solved, "seconds": s} for mean, solved, s in seeds]
    row = scores._row(CLAIM, of_seeds)
    assert (row.name, row.unit) == ("learning/ppo/quick", "utilisation")
    assert round(row.value, 4) == 0.95
    assert row.note.startswith("binpack-2048, 1,000 steps, 60 to 90 s; network; seeds 0.9000 [0.8000, 1.0000]; ")
    assert row.note.endswith("; solved 0.2500, 0.5000, 1.0000")
    assert "1 to 4 min" in scores._row(CLAIM, [score | {"seconds": 250.0}, of_seeds[0]]).note
    without = scores._row(CLAIM, [each | {"solve_rate": None} for each in of_seeds])
    assert "solved" not in without.note


@pytest.mark.parametrize(
    ("task_id", "stored", "changed"),
    [
        ("BinPack-v2", {}, None),
        ("BinPack-v2", {"relations": True}, None),
        ("BinPack-v2", {"relations": False}, "relations"),
        ("Maze-v0", {"relations": False}, None),
        ("BinPack-v2", {"hidden_dim": 16}, "hidden_dim"),
        ("BinPack-v2", {"shared_torso": None}, "shared_torso"),  # was not there: it had its default, false
        ("BinPack-v2", {"num_wheels": 4}, "num_wheels"),
    ],
)
def test_runs_of_other_settings_are_refused(task_id, stored, changed, tmp_path):
    expected = sl.ppo_config(task_id=task_id, shared_torso=changed == "shared_torso")
    sections = config_to_dict(expected)
    sections["architecture"] = {
        k: v for k, v in (sections["architecture"] | stored).items() if v is not None or k not in stored
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
    if changed is None:
        refuse_other_settings(tmp_path, expected, "a training")
    else:
        with pytest.raises(ConfigError, match=f"was trained with another {changed} than a training has now"):
            refuse_other_settings(tmp_path, expected, "a training")


def test_an_agent_begins_with_the_base_of_its_seed_and_each_has_its_own_command(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(trainings.subprocess, "run", lambda words, check: ran.append(words[1:]))
    monkeypatch.setattr(trainings, "RUNS", tmp_path)
    trainings.finished_run.cache_clear()
    run = trainings.finished_run(agents.AGENT, 2)
    trainings.finished_run.cache_clear()
    (pretrain, *base), (train, *agent) = ran
    assert [Path(pretrain).name, base[0], Path(train).name] == ["spa.py", "pretrain", "train_agent.py"]
    assert agent[agent.index("--load-path") + 1] == base[base.index("--save-dir") + 1] + "/pretrain-frozen-lake-s2"
    assert [words[words.index("--seed") + 1] for words in (base, agent)] == ["2", "2"]
    assert run == tmp_path / "agent-frozen-lake-s2"
    for algorithm, flags in (("pretrain", base[1:]), ("agent", agent)):  # as the two commands would have written them
        config = load_config(ALGORITHMS[algorithm].config_type, algorithm, flags, "").given
        folder = tmp_path / config.checkpointing.run_name
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(config_to_dict(config)))
    trainings.finished_run(agents.AGENT, 2)
    trainings.finished_run.cache_clear()
    assert [words[-3:-1] for words in ran[2:]] == [
        ["--resume", str(tmp_path / f"{name}-frozen-lake-s2")] for name in ("pretrain", "agent")
    ]
