"""The command of self-play in stages: its flags, what it prints, and what bad input gets."""

import errno
import json
import shutil

import numpy as np
import pytest
from support.marks import full
from support.pipelines import SMALL, arrays_of, champion_hash, digests
from support.scripted_runs import command

from stoix_like.commands.entry import exit_code
from stoix_like.commands.selfplay import training_loop
from stoix_like.runtime.console import installation
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.iteration_start import read_start, write_start
from stoix_like.selfplay.iterations.begin import next_iteration
from stoix_like.selfplay.stages import evaluate, selfplay


def flags(save_dir, **leaves):
    leaves = SMALL | {"save_dir": save_dir} | leaves
    argv = ["--board-type", leaves.pop("task_id")]
    for name, value in leaves.items():
        argv += [f"--{name.replace('_', '-')}", "null" if value is None else str(value)]
    return argv


def run(*argv):
    return exit_code(training_loop.main, [str(word) for word in argv])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of a pipeline after one iteration."""
    folder = tmp_path_factory.mktemp("loop")
    assert run(*flags(folder)) == 0
    return folder


@pytest.fixture
def copied(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "loop")
    return tmp_path / "loop"


def test_it_says_what_each_stage_did_and_what_comes_next(copied, capsys):
    assert run(*flags(copied)) == 0
    out = capsys.readouterr().out
    names = [line.split()[0] for line in out.splitlines()]
    stages = ["iteration", "selfplay", "store", "window", "train", "evaluate", "decision", "time"]
    ratings = out.splitlines()[-1].split()  # a command a line, so that each can be pasted
    assert names == ["stoix_like", *stages, "next:", ratings[0]]
    assert ratings[-2:] == ["--lineage", str(copied / "tic_tac_toe_2p")]
    assert "iteration 2" in out
    assert "10 games" in out
    assert f"--save-dir {copied}" in out
    words = out.splitlines()[-2].split()
    assert run(*words[words.index("--board-type") :], "--dry-run") == 0  # what is printed goes on
    assert "iteration 3" in capsys.readouterr().out


@pytest.mark.parametrize("stage", [selfplay, full(evaluate)])
def test_a_full_disk_is_one_line_and_nothing_is_lost(copied, monkeypatch, capsys, stage):
    def no_space(*_args):
        raise OSError(errno.ENOSPC, "No space left on device", "shard")

    layout = Layout(copied / "tic_tac_toe_2p")
    before = champion_hash(layout)
    monkeypatch.setattr(stage, "write_arrays", no_space)
    assert run(*flags(copied)) == 1
    assert "error: No space left on device" in capsys.readouterr().err
    assert champion_hash(layout) == before
    monkeypatch.undo()
    assert run(*flags(copied)) == 0
    assert next_iteration(layout) == 3


def test_a_dry_run_says_what_is_to_do(copied, capsys):
    layout = Layout(copied / "tic_tac_toe_2p")
    for name in ("selfplay", "promote"):
        (layout.stage(1, name) / "manifest.json").unlink()
    assert run(*flags(copied), "--dry-run") == 0
    head, first, *lines = capsys.readouterr().out.splitlines()
    assert f"{layout.root} · seed 0 · champion {champion_hash(layout)[:12]} of iteration " in head
    assert first.startswith("iteration 1 in")
    due = {"selfplay": "to do", "promote": "to do"}
    assert lines == [f"  {name}: {due.get(name, 'done')}" for name in STAGE_NAMES]
    for refused, words in (
        (["--skip-evaluation"], "skip_evaluation is true, and it was begun with false"),
        (["--sync-from", "nowhere"], "--sync-from: no folder nowhere"),
    ):
        assert run(*flags(copied), "--dry-run", *refused) == 2
        assert words in capsys.readouterr().err
    assert run(*flags(copied, sync_from="nowhere")) == 2
    assert not layout.iteration(2).exists()  # it was not begun with that
    layout.champion.write_text("torn")
    assert run(*flags(copied), "--dry-run") == 4
    assert "or copy iterations/N/promote/champion.json" in capsys.readouterr().err


def test_help_and_print_config(capsys):
    assert run("--help") == 0
    text = capsys.readouterr().out
    for flag in ("--board-type", "--data-path", "--selfplay-games", "--promotion-rule", "--num-simulations"):
        assert flag in text
    assert run("--board-type", "tic_tac_toe:2", "--print-config") == 0
    assert "promotion_rule: non_inferior" in capsys.readouterr().out  # the preset of that game


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--board-type", "conect_four"], 3, ["unknown game 'conect_four'", "connect_four"]),
        (["--board-type", "hexagonal"], 3, ["hexagonal is not available yet"]),
        (["--board-type", "connect_four", "--num-players", "3"], 2, ["connect_four is a game of 2 players"]),
        (["--board-type", "hex8_3p", "--num-players", "2"], 2, ["--board-type hex8_3p and --num-players 2 differ"]),
        (["--num-players", "2"], 2, ["--num-players: of which game?"]),
        (["--promotion-alpha", "0.9"], 2, ["--promotion-alpha: must be at most 0.5, got 0.9"]),
        (["--promotion-alpha", "0.5", "--promotion-beta", "0.5"], 2, ["their sum must be less than 1"]),
        (["--max-iteration", "5"], 2, ["did you mean '--max-iterations'"]),
        (["--rollback", "--dry-run"], 2, ["--rollback: it cannot go with --dry-run"]),
        (["--rollback", "--max-iterations", "2"], 2, ["--rollback: it cannot go with --max-iterations"]),
        (["--selfplay-gmes", "5"], 2, ["--selfplay-gmes", "did you mean '--selfplay-games'"]),
        (["--num-updates", "5"], 2, ["--num-updates: --selfplay-games and --training-epochs decide"]),
        (["--run-name", "x"], 2, ["--run-name: the run of a pipeline is the folder train/"]),
        (["--engine", "heuristic"], 2, ["a game without a search teaches no policy"]),
        (["--engine", "mtcs-4"], 2, ["use gumbel-mcts, or mcts-N"]),
        (["--promotion-elo-1", "-5"], 2, ["--promotion-elo-1: must be greater than 0"]),
        (["--promotion-elo-0", "-2e5"], 2, ["--promotion-elo-0: must lie in [-4000, 4000]"]),
        (["--play-temperature", "1e-39"], 2, ["--play-temperature: must lie in [1e-06, 1000000]"]),
        (["--value-scale", "3e38"], 2, ["--value-scale: must lie in [1e-06, 1000000]"]),
        (["--promotion-elo-0", "60"], 2, ["promotion_elo_1: 50 is not above promotion_elo_0 = 60"]),
        (["--max-iterations", "0"], 2, ["--max-iterations", "positive whole number"]),
        (["--match-anchors", "sombody"], 2, ["--match-anchors: no engine is called 'sombody'"]),
        (["--num-seeds", "2"], 2, ["a pipeline has one seed"]),
    ],
)
def test_bad_flags(argv, code, words, capsys):
    assert run(*argv) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert "hint: " in err
    for word in words:
        assert word in err, err


def test_resume_rollback_and_sync_of_what_is_not_there(tmp_path, capsys):
    assert run(*flags(tmp_path), "--resume") == 4
    assert "no pipeline in" in capsys.readouterr().err
    assert run(*flags(tmp_path), "--rollback") == 4
    assert "is no folder of a self-play pipeline" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_resume_takes_the_settings_of_the_last_iteration_and_flags_overwrite_them(copied, capsys):
    where = ["--board-type", "tic_tac_toe", "--save-dir", copied]
    layout = Layout(copied / "tic_tac_toe_2p")
    assert run(*where, "--resume", "--skip-evaluation", "--promotion-alpha", 0.4) == 0
    changed = {"skip_evaluation": True, "promotion_alpha": 0.4}
    assert read_start(layout, 2).settings == read_start(layout, 1).settings | changed
    (layout.stage(2, "promote") / "manifest.json").unlink()
    capsys.readouterr()
    more = "--max-iterations", 2, "--selfplay-model", "latest"
    assert run(*where, "--resume", *more) == 0  # the unfinished one still skips its evaluation, the next one does not
    decisions = [line for line in capsys.readouterr().out.splitlines() if line.startswith("decision")]
    assert "not evaluated, the champion of iteration" in decisions[0]
    assert "not evaluated" not in decisions[1]
    assert run(*where, "--resume", "--print-config") == 0
    shown = capsys.readouterr().out
    assert "promotion_alpha: 0.4" in shown
    assert "selfplay_model: latest" in shown
    for words in (["--config", "selfplay/tic_tac_toe"], ["--config=selfplay/tic_tac_toe"]):
        assert run(*where, "--resume", *words) == 2
        assert "leave out --config" in capsys.readouterr().err


def test_the_folder_of_one_game_is_not_that_of_all(copied, capsys):
    folder = copied / "tic_tac_toe_2p"
    for words in ((), ("--resume",), ("--dry-run",)):
        assert run("--board-type", "connect_four", "--save-dir", folder, *words) == 2
        assert f"hint: give the one that it is in: --save-dir {copied}" in capsys.readouterr().err
    assert not (folder / "connect_four_2p").exists()


def test_without_a_game_the_only_one_of_the_folder_is_gone_on_with(copied, tmp_path, capsys):
    where = ["--save-dir", copied]
    assert run(*where, "--resume", "--print-config") == 0
    shown = capsys.readouterr().out
    assert "task_id: tic_tac_toe" in shown
    assert "hidden_dim: 8" in shown
    assert run(*where, "--rollback") in (0, 2)  # whether it has a predecessor
    assert "connect_four" not in capsys.readouterr().err
    shutil.copytree(copied / "tic_tac_toe_2p", copied / "othello_2p")
    assert run(*where, "--resume") == 2
    assert "has othello_2p, tic_tac_toe_2p: which of them?" in capsys.readouterr().err
    assert run("--save-dir", tmp_path / "nothing", "--resume") == 4
    assert "no pipeline in" in capsys.readouterr().err


def test_settings_that_are_taken_over_are_said(copied, capsys):
    layout = Layout(copied / "tic_tac_toe_2p")
    (layout.stage(1, "promote") / "manifest.json").unlink()
    start = read_start(layout, 1)
    write_start(layout, 1, start._replace(settings=start.settings | {"auto_promote": False}))
    assert run("--save-dir", copied, "--resume", "--dry-run") == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: as in iteration 1: ")]
    assert "--auto-promote false" in note
    assert "--hidden-dim 8" in note
    assert "--seed" not in note  # as in its preset


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--stage", "snyc"], 2, "--stage: no stage 'snyc'; did you mean 'sync'?"),
        (["--stage", "export", "--max-iterations", "2"], 2, "--stage: it cannot go with --max-iterations"),
        (["--stage", "export", "--rollback"], 2, "--rollback: it cannot go with --stage"),
        (["--stage", "train"], 2, "--stage train: the stage selfplay of iteration 2 is due"),
        (["--stage", "selfplay"], 0, "iteration 2: selfplay is done\n"),
    ],
)
def test_one_stage_alone_is_run_if_it_is_due(copied, capsys, words, code, said):
    assert run("--save-dir", copied, "--resume", *words) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    layout = Layout(copied / "tic_tac_toe_2p")
    assert list(digests(layout, 2)) == (["selfplay"] if code == 0 else [])
    assert layout.last_iteration() == (2 if code == 0 else 1)
    assert "--stage" not in captured.out  # what is printed goes on with all that is left


def test_what_cannot_be_finished_is_not_begun(copied, tmp_path, monkeypatch, capsys):
    assert run(*flags(tmp_path / "new"), "--skip-selfplay") == 1
    assert "has no games to learn from" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(installation, "is_installed", lambda module: module != "tensorboardX")
    assert run(*flags(copied), "--tensorboard") == 5
    assert not Layout(copied / "tic_tac_toe_2p").iteration(2).exists()


def test_a_data_path_with_a_pickle_or_of_something_else(copied, tmp_path, capsys):
    layout = Layout(copied / "tic_tac_toe_2p")
    before = champion_hash(layout)
    np.savez(tmp_path / "pickled.npz", planes=np.array([{}], object))
    for path, reason in (
        (tmp_path / "pickled.npz", "pickled objects, which are never loaded"),
        (next(layout.store.glob("*.npz")), "its kind is 'selfplay' and should be 'window'"),
        (tmp_path / "nothing.npz", "--data-path: no file"),
    ):
        assert run(*flags(copied), "--data-path", path) == 4
        assert reason in capsys.readouterr().err
    assert champion_hash(layout) == before
    assert not layout.iteration(2).exists()


def test_another_architecture_in_the_same_folder(copied, capsys):
    assert run(*flags(copied, hidden_dim=16)) == 2
    err = capsys.readouterr().err
    assert "hidden_dim: it is 16, and the run in train/ was begun with 8" in err
    assert "hint:" in err


@pytest.mark.full
def test_an_engine_plays_before_there_is_a_network_worth_playing(tmp_path):
    assert run(*flags(tmp_path, engine="mcts-4"), "--skip-evaluation") == 0
    layout = Layout(tmp_path / "tic_tac_toe_2p")
    shard = arrays_of(next(layout.store.glob("*.npz")))
    assert str(shard["text_player"]) == str(shard["text_engine"]) == "mcts-4"
    assert not shard["predicted"].any()


def test_the_champion_and_candidates_play_in_the_arena_and_the_lineage_is_rated(begun, tmp_path, capsys):
    root = begun / "tic_tac_toe_2p"
    assert command("arena", root, root / "iterations" / "0000", "--openings", 4) == 0
    out = capsys.readouterr().out
    assert "iteration 0" in out
    words = "--lineage", root, "--json", tmp_path / "lineage.json", "--out", tmp_path / "lineage.png"
    assert command("ratings", *words) == 0
    before, found = json.loads((tmp_path / "lineage.json").read_text())
    assert (found["iteration"], found["name"], found["games"]) == (1, "iteration 1", 4)
    assert (before["name"], {before["status"], found["status"]} & {"champion"}) == ("iteration 0", {"champion"})
    assert found["low"] < found["rating"] < found["high"]
    assert (tmp_path / "lineage.png").is_file()
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:2] == ["candidate", "rating"]
    assert "iteration 1" in out
    assert command("ratings", root) == 0  # the folder alone
    assert capsys.readouterr().out.splitlines()[0] == out.splitlines()[0]
    for words, metric in ((["plot", root], "policy_loss"), (["plot", root, "--metric", "value_loss"], "value_loss")):
        assert command(*words, "--out", tmp_path / "curves.png") == 0
        assert metric in capsys.readouterr().out
    assert command("ratings") == 2
    assert "no runs are named" in capsys.readouterr().err
    assert command("ratings", "--lineage", root, "--openings", 4) == 2
    assert "it cannot go with --openings" in capsys.readouterr().err
    assert command("ratings", "--lineage", begun) == 4


def test_a_run_that_only_learns_is_no_training_of_its_own(tmp_path, capsys):
    assert command("train-alphazero", task_id="tic_tac_toe", self_play="false", save_dir=tmp_path) == 2
    assert "learns only what a pipeline hands to it" in capsys.readouterr().err
