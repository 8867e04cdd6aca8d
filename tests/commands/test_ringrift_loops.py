"""The original's own two commands, on its own games, in small: they play, learn, match, decide, and are rated."""

import pytest
from support.scripted_runs import command

from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES

LEAVES = {
    "num-envs": 4,
    "rollout-length": 32,
    "random-plies": 40,
    "num-simulations": 2,
    "quick-simulations": 1,
    "max-considered-actions": 2,
    "hidden-dim": 8,
    "num-layers": 1,
    "replay-buffer-size": 2048,
    "batch-size": 32,
    "max-reuse": 1,
    "shard-games": 4,
    "validation-share": 0.25,
    "most-pairs": 2,
    "pairs-per-look": 2,
    "match-anchors": "random",
    "anchor-pairs": 1,
}
SMALL = [word for leaf, value in LEAVES.items() for word in (f"--{leaf}", value)]


def check_iteration(folder, num_players):
    facts = {name: read_manifest(folder / "iterations" / "0001" / name).facts for name in STAGE_NAMES}
    assert facts["selfplay"]["games"] == 4
    assert facts["evaluate"]["games"] == 2 * num_players


@pytest.mark.full
def test_a_single_iteration_of_hex8(inside, tmp_path, capsys):
    argv = ["--board-type", "hex8", "--num-players", "2", "--selfplay-games", "4", *SMALL]
    assert command("run-training-loop", *argv) == 0
    check_iteration(tmp_path / "runs" / "hex8_2p", 2)
    assert command("ratings", "runs/hex8_2p") == 0
    assert "iteration" in capsys.readouterr().out


@pytest.mark.full
def test_the_continuous_loop_of_hex8_and_of_square8_for_four(inside, tmp_path):
    argv = ["--config", "hex8:2", "--config", "square8:4", "--games", "4", *SMALL]
    argv += ["--max-iterations", "2", "--cooldown", "0", "--min-samples", "0"]
    assert command("run-continuous-training", *argv) == 0
    check_iteration(tmp_path / "runs" / "hex8_2p", 2)
    check_iteration(tmp_path / "runs" / "square8_4p", 4)
