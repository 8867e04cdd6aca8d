"""`stoix-like NAME` does what `python scripts/NAME.py` does; doctor and envs list what is there."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from stoix_like.commands.entry import exit_code, help_text, run_command
from stoix_like.commands.machine import doctor, envs
from stoix_like.commands.table import COMMANDS
from stoix_like.envs import registry
from stoix_like.envs.probes import make_action_reward
from stoix_like.errors import ConfigError
from stoix_like.runtime.console import spelling
from stoix_like.runtime.training.train import TrainResult


def test_every_script_is_a_command_and_every_command_a_script():
    assert {spelling.script_of(name) for name in COMMANDS} == {p.name for p in (ROOT / "scripts").glob("*.py")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_script_run_the_same_function(name):
    command = COMMANDS[name]
    assert callable(getattr(importlib.import_module(command.module), command.function))
    text = (ROOT / "scripts" / spelling.script_of(name)).read_text()
    called = f"{command.module.rpartition('.')[2]}.{command.function}(argv)"
    assert f"return {called}" in text
    assert name in help_text()


def test_without_a_command_all_are_listed_and_one_that_is_not_there_names_the_nearest(capsys):
    assert exit_code(run_command, []) == exit_code(run_command, ["--help"]) == 0
    out = capsys.readouterr().out
    assert out.count("usage: stoix-like COMMAND") == 2
    assert exit_code(run_command, ["--version"]) == 0
    assert re.fullmatch(r"stoix-like \d+\.\d+\.\d+\n", capsys.readouterr().out)
    assert exit_code(run_command, ["evalute", "latest"]) == 2
    assert capsys.readouterr().err == (
        "error: unknown command 'evalute'; did you mean 'evaluate'?\nhint: stoix-like --help lists them\n"
    )


def test_hints_and_next_steps_speak_of_how_it_was_started_and_of_what_there_is(monkeypatch, tmp_path):
    monkeypatch.setattr(spelling.sys, "argv", ["scripts/train_ppo.py"])
    assert spelling.prog("plot") == "plot.py"
    assert spelling.usage("train-spo") == "python scripts/train_spo.py"
    assert re.fullmatch(r"\S*python\S* scripts/plot.py 'runs/a b'", spelling.command_line("plot", "runs/a b"))
    for started, folder in ((f"{ROOT}/scripts/evaluate.py", f"{ROOT}/scripts/"), ("evaluate.py", "")):
        monkeypatch.chdir(ROOT / "scripts" if folder == "" else tmp_path)
        monkeypatch.setattr(spelling.sys, "argv", [started])
        assert spelling.usage("plot") == f"python {folder}plot.py"
        assert spelling.command_line("plot", "run").endswith(f" {folder}plot.py run")
    monkeypatch.setattr(spelling.sys, "argv", ["/opt/bin/stoix-like", "train-ppo"])
    assert spelling.prog("plot") == spelling.usage("plot") == spelling.command_name("plot") == "stoix-like plot"
    assert spelling.command_line("plot", "runs/a b") == "stoix-like plot 'runs/a b'"
    with pytest.raises(ConfigError) as caught:
        run_command(["plot", "--metrc", "x", "run"])
    assert caught.value.hint == "stoix-like plot --help lists its arguments"
    monkeypatch.setattr(spelling.sys, "argv", ["/opt/ipykernel_launcher.py"])
    assert spelling.usage("export") == "python scripts/export_policy.py"
    monkeypatch.setattr(spelling, "SCRIPTS", tmp_path / "scripts")
    assert spelling.usage("export") == spelling.command_name("export") == "stoix-like export"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        *((None, 0), (0, 0), (3, 3), (130, 130)),
        *((TrainResult(s, Path(), 1), c) for s, c in [("done", 0), ("interrupted", 130), ("x", 0)]),
    ],
)
def test_the_exit_code_of_what_a_program_returns(outcome, code):
    """A run that a callback has ended, as it was meant to, has not failed."""
    assert exit_code(lambda _argv: outcome, []) == code


def test_a_program_of_the_users_own_is_what_hints_spell(monkeypatch, capsys):
    monkeypatch.setattr(spelling._Program, "own", None)
    assert run_command([], "tasks.py") == 0
    assert capsys.readouterr().out.startswith("usage: tasks.py COMMAND")
    assert spelling.command_line("evaluate", "a b").endswith("python tasks.py evaluate 'a b'")
    assert (spelling.command_name("train-a2c"), spelling.prog("plot")) == ("tasks.py train-a2c", "tasks.py plot")
    with pytest.raises(ConfigError, match="unknown command 'nonsense'") as caught:
        run_command(["nonsense"], "tasks.py")
    assert caught.value.hint == "tasks.py --help lists them"


def test_the_doctor_finds_this_machine_ready(tmp_path, capsys):
    assert doctor.main(["--save-dir", str(tmp_path / "a" / "b"), "--device-type", "cpu"]) == 0
    out = capsys.readouterr().out
    assert not (tmp_path / "a").exists()  # it only looks
    for line in (
        r"jax +\d+\.\d+",
        r"extra notebooks +installed",
        r"runs +\S+ · writable, [\d.,]+ GB free",
        "devices +cpu",
        r"presets +ppo/maze, ppo/quick, spo/maze, spo/quick \(CPU\)$",
    ):
        assert re.search(f"(?m)^{line}", out), line
    assert re.search(r"ready: \S*python\S* scripts/train_ppo.py\n$", out)


def test_the_doctor_names_the_presets_on_disk_that_fit_the_device(monkeypatch):
    names = ["ppo/binpack", "ppo/binpack_gpu", "ppo/maze", "ppo/maze_mlp", "ppo/quick", "spo/maze_gpu", "spo/quick"]
    monkeypatch.setattr(doctor, "preset_paths", lambda: dict.fromkeys(names))
    assert [*doctor._presets("cpu")] == [doctor.Finding("presets", "ppo/maze, ppo/quick, spo/quick (CPU)")]
    for platform in ("gpu", "tpu"):
        found = doctor.Finding("presets", f"ppo/binpack_gpu, spo/maze_gpu ({platform.upper()})")
        assert [*doctor._presets(platform)] == [found]
    monkeypatch.setattr(doctor, "preset_paths", lambda: dict.fromkeys(["ppo/maze", "ppo/quick"]))
    assert [*doctor._presets("gpu")] == []


def test_the_doctor_names_what_would_keep_a_training_from_running(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["numpy>=2", "no-such.package>=1; python_version>'3'"])
    file = tmp_path / "file"
    file.touch()
    assert doctor._compile_cache(str(file / "xla")).problem is None
    assert "--no-compile-cache" in doctor._compile_cache(str(file / "xla")).found
    assert doctor.main(["--save-dir", str(tmp_path), "--device-type", "cpu"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"(?m)^other dependencies +no-such.package not installed$", out)
    assert "problem: install them: pip install no-such.package\n" in out
    assert out.endswith("1 problem\n")
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "versions", lambda: {"python": "3.11", "flax": "not installed"})
    monkeypatch.setattr(doctor, "EXTRAS", {"notebooks": ("no_such_module.at_all",)})
    assert doctor.main(["--save-dir", str(file / "runs"), "--device-type", "tpu"]) == 1
    out = capsys.readouterr().out
    assert "problem: install it: pip install stoix_like" in out
    assert "problem: " + str(file) + " cannot be written: Not a directory; choose another --save-dir" in out
    assert f"not installed: {spelling.pip_command('stoix_like[notebooks]')}" in out
    assert "3 problems\n" in out  # no TPU here


def test_environments_are_listed_with_what_they_are(capsys):
    assert envs.main(["Maze-v0", "Connector-v3"]) == 0
    maze, connector = capsys.readouterr().out.split("\n\n")
    assert "Maze-v0\n  4 actions, at most 100 steps" in maze
    assert re.search(r"  agent_view\.walls +bool\[10, 10\]", maze)
    assert re.search(r"  action_mask +bool\[4\]", maze)
    assert re.search(r"  \d+ × \d actions", connector)
    assert envs.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"BinPack-v2 +800 actions", line) for line in lines)
    assert any(re.match(r"Sokoban-v0 +not playable: downloads its levels", line) for line in lines)


@pytest.mark.parametrize("task_id", ["Maze-v0", "Snake-v1", "Sokoban-v0", "SearchAndRescue-v0"])
def test_the_shipped_table_holds_the_line_of_a_task(task_id):
    table = json.loads(envs.TABLE.read_text())["tasks"]
    assert table[task_id] == envs.task_line(task_id), "make docs writes the table"
    assert set(table) == {name for name in registry.task_ids() if name not in registry.ENVIRONMENTS}


@pytest.mark.slow
def test_the_shipped_table_holds_the_line_of_every_task():
    assert json.loads(envs.TABLE.read_text()) == envs.make_table()


def test_the_list_builds_nothing_of_jumanji_but_what_a_program_adds(monkeypatch):
    def unwanted():
        raise AssertionError("Jumanji was asked")

    added = lambda: make_action_reward()._replace(time_limit=7)
    for name in ("Corridor-v0", "Snake-v1"):  # a new one, and one that replaces Jumanji's
        monkeypatch.setitem(registry.ENVIRONMENTS, name, added)
    monkeypatch.setattr(registry, "jumanji_registration", unwanted)
    monkeypatch.delitem(sys.modules, "jumanji", raising=False)
    listed = envs.list_tasks()
    assert list(listed) == sorted(listed)
    assert listed["Maze-v0"] == "4 actions, at most 100 steps"
    assert listed["Corridor-v0"] == listed["Snake-v1"] == "2 actions, at most 7 steps"


def test_a_task_that_the_caller_registered_is_listed_and_another_jumanji_is_asked(monkeypatch, tmp_path):
    registration = registry.jumanji_registration()
    monkeypatch.setattr(registration, "_REGISTRY", dict(registration._REGISTRY))
    registration.register("Mine-v0", entry_point="jumanji.environments:Snake")
    listed = envs.list_tasks()
    assert list(listed) == sorted(listed)
    assert {"Mine-v0", "Maze-v0", "BinPack-v0"} <= set(listed)
    assert listed["Mine-v0"] == "4 actions, at most 4000 steps"
    table = {"jumanji": "0.0.0", "tasks": {"Maze-v0": "of old", "Gone-v0": "of old"}}
    (tmp_path / "table.json").write_text(json.dumps(table))
    monkeypatch.setattr(envs, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(registry, "task_ids", lambda: ["Maze-v0"])
    assert envs.list_tasks() == {"Maze-v0": "4 actions, at most 100 steps"}


def test_a_task_is_described_at_the_sizes_that_are_given(capsys):
    assert exit_code(envs.main, ["Maze-v0", "--kwargs", "{num_rows: 6, num_cols: 5}"]) == 0
    assert "bool[6, 5]" in capsys.readouterr().out
    for argv, error in (
        (["Maze-v0", "--kwargs", "[6]"], "error: --kwargs: expected mapping, got [6] (list)"),
        (["Maze-v0", "--kwargs", "{num_rows: 6"], "error: --kwargs: not valid YAML: "),
        (["--kwargs", "{}"], "error: --kwargs: no task is named"),
    ):
        assert exit_code(envs.main, argv) == 2
        assert capsys.readouterr().err.startswith(error)
