"""Paths that no system takes, and a folder that is gone: one line with the system's own words, in every command."""

import pytest
from support.scripted_runs import flags

from stoix_like.commands.entry import exit_code, run_command

LONG = "x" * 300
SMALL = flags(task_id="probe/constant_reward", num_envs=8, rollout_length=4, num_minibatches=2, num_updates=1)
READERS = ("evaluate", "plot", "animate", "export", "report", "compare", "compare-search", "play-board", "sweep")
CALLS = [
    *([name, LONG] for name in READERS),
    ["arena", LONG, "random"],
    ["ratings", LONG],
    ["ratings", "--lineage", LONG],
    ["train-ppo", "--config", LONG],
    ["train-ppo", "--resume", LONG],
    ["train-ppo", "--save-dir", LONG, *SMALL],
    ["train-ppo", "--load-path", LONG, *SMALL],
    ["evaluate", "here", "--json", LONG],
    ["plot", "here", "--out", f"{LONG}.png"],
    ["run-training-loop", "--board-type", "tic_tac_toe", "--save-dir", LONG],
    ["run-training-loop", "--board-type", "tic_tac_toe", "--data-path", LONG],
    ["run-continuous-training", "--save-dir", LONG],
    ["master-loop", "--status", "--save-dir", LONG],
    ["doctor", "--save-dir", LONG],
]


def _name(argv):
    return " ".join(word for word in argv[:2] if word != LONG)


@pytest.mark.parametrize("argv", CALLS, ids=_name)
def test_a_name_that_is_too_long_is_said_by_the_system(inside, capsys, argv):
    assert exit_code(run_command, argv) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert "File name too long" in error
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    "argv", [call for call in CALLS if call[0] in ("train-ppo", "run-training-loop", "doctor")], ids=_name
)
def test_a_current_folder_that_was_removed_is_said(inside, tmp_path, monkeypatch, capsys, argv):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    short = [word.replace(LONG, "runs") for word in argv]
    assert exit_code(run_command, short) != 0
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 2
    if "--config" not in argv and "--resume" not in argv:  # these look for a file, which is not there either
        assert captured.err == "error: the current folder was removed\nhint: go to another one: cd\n"


def test_a_path_with_a_null_byte_is_one_line(inside, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text('checkpointing: {save_dir: "a\\0b"}\n')
    assert exit_code(run_command, ["train-ppo", "--config", "run.yaml", *SMALL]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: a path has a null byte, which no system takes"
