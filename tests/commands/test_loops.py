"""What the commands of loops refuse or show before a loop begins; nothing is written."""

import pytest
import yaml
from support.scripted_runs import command

from stoix_like.commands.selfplay import master_loop
from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import ConfigError
from stoix_like.selfplay.loops.start import run_continuous
from stoix_like.selfplay.watch import supervisor

CONTINUOUS, MASTER = "run-continuous-training", "master-loop"


def test_print_config_shows_each_game_and_starts_nothing(tmp_path, capsys):
    argv = [
        "-c",
        "tic_tac_toe:2",
        "-c",
        "othello:2",
        "--print-config",
        "--games",
        7,
        "--hidden-dim",
        24,
        "--save-dir",
        tmp_path / "x",
    ]
    assert command(CONTINUOUS, *argv) == 0
    first, second = capsys.readouterr().out.split("---\n")
    assert "task_id: tic_tac_toe" in first
    assert "task_id: othello" in second
    for leaf in ("hidden_dim: 24", "selfplay_games: 7", "min_samples: 10000"):
        assert all(leaf in text for text in (first, second))
    assert not (tmp_path / "x").exists()


def test_the_configuration_that_a_master_loop_prints_holds_flags_of_games(tmp_path, capsys):
    leaves = "{hidden_dim: 16, tic_tac_toe: {hidden_dim: 8, num_layers: 1}}"
    flags = ["--games", "tic_tac_toe:2", "--game-leaves", leaves, "--hidden-dim", 24, "--print-config"]
    assert command(MASTER, *flags) == 0
    (tmp_path / "loop.yaml").write_text(capsys.readouterr().out)
    assert command(MASTER, "--config", tmp_path / "loop.yaml", "--print-config") == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["loop"]["game_leaves"] == {"hidden_dim": 24, "tic_tac_toe": {"num_layers": 1}}
    assert command(MASTER, "--print-config", "--hidden-dims", 24) == 2


def test_asking_the_continuous_loop_for_its_status_names_the_command_that_knows(capsys):
    assert command(CONTINUOUS, "--status") == 2
    assert "master_loop.py --status" in capsys.readouterr().err.replace("master-loop", "master_loop.py")


def test_help_says_what_config_means_here(capsys):
    assert command(CONTINUOUS, "--help") == 0
    shown = capsys.readouterr().out
    assert "[--config GAME[:N] ...]" in shown
    assert "FILE|PRESET" not in shown
    assert "[default 10000, >= 0]" in shown  # min_samples of a loop


@pytest.mark.parametrize(
    ("argv", "code", "what", "hint"),
    [
        ([CONTINUOUS, "-c", "selfplay/tic_tac_toe"], 2, "'selfplay/tic_tac_toe' is no game", "connect_four:2"),
        ([CONTINUOUS, "-c", "loop.yaml"], 2, "'loop.yaml' is no game", "master_loop.py takes files"),
        ([CONTINUOUS, "-c", "tic_tac_toe", "--engine", "mcts-0"], 2, "from 1 to 100000", ""),
        ([CONTINUOUS, "-c", "tic_tac_toe", "--engine", "mcst-8"], 2, "unknown; use gumbel-mcts", ""),
        ([CONTINUOUS, "--max-iteration", "3"], 2, "did you mean '--max-iterations'?", "--help lists every flag"),
        ([CONTINUOUS, "--resume", "x"], 2, "--resume: a loop goes on by itself", "leave it out"),
        ([MASTER, "--resume", "x"], 2, "--resume: a loop goes on by itself", "leave it out"),
        ([MASTER, "--idle-batchs", "3"], 2, "did you mean '--idle-batches'?", "--help lists every flag"),
        ([MASTER, "--statsu"], 2, "did you mean '--status'?", "--help lists every flag"),
        ([MASTER, "othello"], 2, "unexpected argument 'othello'", "--help lists every flag"),
        ([MASTER, "--engine", "mcts-0"], 2, "from 1 to 100000", ""),
        ([MASTER, "--game-leaves", "{tic_tac_toe: {tau: 1}}"], 2, "'tic_tac_toe' is no game of this loop", "{game:"),
        ([MASTER, "--game-leaves", "{hex8: {taw: 1}}"], 2, "did you mean 'tau'?", "{leaf: value}"),
        ([MASTER, "--game-leaves", "{chess: {tau: 1}}"], 2, "loop.game_leaves: 'chess' is no game of this loop", ""),
        ([MASTER, "--game-leaves", "{num_simulation: 4}"], 2, "did you mean 'num_simulations'?", "{leaf: value}"),
        ([MASTER, "--game-leaves", "{save_dir: x}"], 2, "loop.game_leaves: save_dir: loop.save_dir sets it", ""),
        ([MASTER, "--game-leaves", "{hex8: {save_dir: x}}"], 2, ".hex8: save_dir: loop.save_dir sets it", ""),
        ([MASTER, "--game-leaves", "{hex8: {task_id: hex}}"], 2, ".hex8: task_id: loop.games sets it", ""),
        ([MASTER, "--game-leaves", "{selfplay_games: 5}"], 2, "selfplay_games: loop.selfplay_games sets it", ""),
        ([MASTER, "--game-leaves", "{hex8: {num_updates: 5}}"], 2, "num_updates: --selfplay-games and", ""),
    ],
)
def test_wrong_input_is_one_line_each(tmp_path, capsys, argv, code, what, hint):
    folder = tmp_path / "runs"
    assert command(*argv, "--save-dir", folder) == code
    shown = capsys.readouterr().err
    assert what in shown
    assert hint in shown
    assert shown.startswith("error: ")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"leaves": {"save_dir": "x"}}, "leaves: save_dir: the argument save_dir sets it"),
        ({"leaves": {"task_id": "othello"}}, "leaves: task_id: LoopConfig.configs sets it"),
        ({"leaves": {"selfplay_games": 5}}, "leaves: selfplay_games: LoopConfig.selfplay_games_per_iteration sets it"),
        ({"leaves": {"run_name": "x"}}, "leaves: run_name: the run of a pipeline is the folder train/ of its game"),
        ({"words": ["--save-dir", "x"]}, "--save-dir: tic_tac_toe would be in x, and the loop is in "),
    ],
)
def test_leaves_that_a_loop_owns_are_refused_in_programs_too(tmp_path, arguments, problem):
    with pytest.raises(ConfigError) as caught:
        run_continuous(LoopConfig([("tic_tac_toe", 2)]), tmp_path / "runs", **arguments)
    assert caught.value.problems[0].startswith(problem)
    assert not (tmp_path / "runs").exists()


def test_all_that_is_wrong_in_a_file_is_said_at_once(tmp_path, capsys):
    file = tmp_path / "loop.yaml"
    sections = ("loop: {game_leaves: {chess: {tau: 1}}}", "hooks: {on_event: {FOO: 'true'}}")
    file.write_text("\n".join((*sections, "plateau_hook: {enabled: true, function: bayes}")))
    assert command(MASTER, "--config", file, "--save-dir", tmp_path / "runs") == 2
    *errors, hint = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in errors] == [
        "loop.game_leaves",
        "hooks.on_event",
        "plateau_hook.plateau_function",
    ]
    assert hint == "hint: docs/self-play-loops.md describes every leaf"


def test_former_names_of_leaves_are_read_with_a_note(tmp_path):
    file = tmp_path / "loop.yaml"
    file.write_text("plateau_hook:\n  enabled: true\n  plateau_function: architectures\n")
    loaded = master_loop.load(["--config", str(file), "--function", "cma_es", "--no-plateau-hook", "--max-seconds=9"])
    hook = loaded.config.plateau_hook
    assert (hook.plateau_hook, hook.plateau_function, hook.plateau_seconds) == (False, "cma_es", 9.0)
    assert loaded.notes == [
        f"{file}:2: 'plateau_hook.enabled' is called plateau_hook now",
        "--function is called --plateau-function now",
        "--max-seconds is called --plateau-seconds now",
    ]
    file.write_text("plateau_hook:\n  enabled: true\n  plateau_hook: true\n")
    with pytest.raises(ConfigError, match="are the same key"):
        master_loop.load(["--config", str(file)])


def test_notes_of_a_printed_configuration_are_on_standard_error(tmp_path, capsys):
    file = tmp_path / "loop.yaml"
    file.write_text("curriculum: {smoothing: 0.5}\n")
    assert command(MASTER, "--config", file, "--no-enabled", "--print-config") == 0
    shown = capsys.readouterr()
    assert "weight_smoothing: 0.5" in shown.out
    assert "called" not in shown.out
    assert shown.err.splitlines() == [
        f"note: {file}:1: 'curriculum.smoothing' is called weight_smoothing now",
        "note: --no-enabled is called --no-plateau-hook now",
    ]


@pytest.mark.parametrize(
    "words",
    [("--continuous", "--num-simulatons", "8"), ("--master", "--num-simulatons", "8"), ("--master", "--tau", "x")],
)
def test_nothing_is_supervised_that_would_be_refused(words, tmp_path, capsys):
    folder = tmp_path / "runs"
    assert command("launch-daemons", *words, "--save-dir", folder) == 2
    assert "--tau" in (error := capsys.readouterr().err) or "did you mean '--num-simulations'" in error
    assert not folder.exists()


def test_a_folder_that_is_a_file_is_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert command(MASTER, "--status", "--save-dir", file) == 1
    assert "no loop is running" in capsys.readouterr().out
    for argv in ([CONTINUOUS, "-c", "tic_tac_toe"], [MASTER], ["launch-daemons", "--continuous"]):
        assert command(*argv, "--save-dir", file) == 1
        assert f"error: cannot write {file}" in capsys.readouterr().err
    assert command("run-training-loop", "--board-type", "tic_tac_toe", "--save-dir", file) == 1
    assert "error: cannot make" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["--master", "--config", "loop.yaml"], "elsewhere"),
        (["--master", "--config", "loop.yaml", "--save-dir", "here"], "here"),
        (["--master"], "runs"),
        (["--continuous"], "runs"),
    ],
)
def test_a_supervisor_works_in_the_folder_of_its_loop(tmp_path, monkeypatch, words, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.yaml").write_text("loop:\n  save_dir: elsewhere\n")
    given = []
    monkeypatch.setattr(supervisor, "supervise", lambda name, save_dir, argv, _: given.append((save_dir, argv)) or 0)
    assert command("launch-daemons", *words) == 0
    ((save_dir, argv),) = given
    assert str(save_dir) == argv[argv.index("--save-dir") + 1] == folder


def test_a_supervisor_of_a_wrong_configuration_is_refused(tmp_path, capsys):
    assert command("launch-daemons", "--master", "--config", tmp_path / "nowhere.yaml") == 2
    assert "nowhere.yaml" in capsys.readouterr().err
