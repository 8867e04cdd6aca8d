"""A loop that is told of no games goes on with those of the last one in its folder."""

import contextlib
import json

import pytest

from stoix_like.commands.selfplay import continuous_training, master_loop
from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.watch.last_games import last_games
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER, Heartbeat

OLD = {"games": ["connect_four_2p", "hex8_3p"]}


def leave_status(folder, loop, status):
    """What a loop that has ended leaves in its folder."""
    with contextlib.closing(Database(folder)) as database:
        Heartbeat(database, loop, lambda: status).beat()


def printed(capsys, command, *argv):
    assert command.main([*argv, "--print-config"]) == 0
    return capsys.readouterr().out


def test_the_defaults_are_those_of_the_original():
    assert list(LoopConfig().configs) == [("hex8", 2), ("square8", 2)]


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (OLD, [("connect_four", 2), ("hex8", 3)]),
        ({"games": ["othello_2p"], "seconds": {"hex8_2p": 1.0}}, [("othello", 2)]),
        ({"seconds": {"othello_2p": 3.0, "tic_tac_toe_2p": 1.0}}, [("othello", 2), ("tic_tac_toe", 2)]),  # older
        ({"seconds": {}}, []),
        ({"games": ["chess_2p"]}, []),
        ([1], []),
    ],
)
def test_games_are_read_from_what_the_last_loop_said(tmp_path, status, wanted):
    leave_status(tmp_path, CONTINUOUS, status)
    assert last_games(tmp_path, CONTINUOUS) == wanted
    assert last_games(tmp_path, MASTER) == []
    assert last_games(tmp_path / "other", CONTINUOUS) == []


def test_a_continuous_loop_without_games_goes_on_with_those_of_its_folder(tmp_path, capsys):
    folder = ["--save-dir", str(tmp_path)]
    assert printed(capsys, continuous_training, *folder).count("task_id: hex8 ") == 1
    leave_status(tmp_path, CONTINUOUS, OLD)
    found = printed(capsys, continuous_training, *folder)
    assert "task_id: connect_four " in found
    assert "task_id: hex8_3p " in found
    assert "square8" not in found
    told = printed(capsys, continuous_training, *folder, "--config", "othello:2")
    assert "task_id: othello " in told
    assert "connect_four" not in told


def test_a_master_loop_without_games_goes_on_with_those_of_its_folder(tmp_path, capsys):
    folder = ["--save-dir", str(tmp_path)]
    assert "games: 'hex8:2,square8:2'" in printed(capsys, master_loop, *folder)
    leave_status(tmp_path, MASTER, OLD)
    assert "games: 'connect_four:2,hex8:3'" in printed(capsys, master_loop, *folder)
    assert "games: 'othello:2'" in printed(capsys, master_loop, *folder, "--games", "othello:2")
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps({"loop": {"games": "tic_tac_toe:2", "save_dir": str(tmp_path)}}))
    assert "games: 'tic_tac_toe:2'" in printed(capsys, master_loop, "--config", str(file))
