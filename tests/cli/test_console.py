"""`stoix-like NAME` does what `python scripts/NAME.py` does; doctor and envs tell what is there."""

import importlib
import json
import re
from pathlib import Path

import pytest

from stoix_like.envs import registry
from stoix_like.envs.probes import make_action_reward
from stoix_like.errors import ConfigError
from stoix_like.runtime import commands, console, doctor, list_envs
from stoix_like.runtime.cli import exit_code

ROOT = Path(__file__).parents[2]


def test_every_script_is_a_command_and_every_command_a_script():
    assert {command.script for command in commands.COMMANDS.values()} == {
        p.name for p in (ROOT / "scripts").glob("*.py")
    }


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_command_and_its_script_run_the_same_function(name):
    command = commands.COMMANDS[name]
    assert callable(getattr(importlib.import_module(command.module), command.function))
    text = (ROOT / "scripts" / command.script).read_text()
    called = f"{command.module.rpartition('.')[2]}.{command.function}(argv)"
    assert f"return {called}" in text
    assert name in console.help_text()


def test_without_a_command_all_are_listed(capsys):
    assert exit_code(console.dispatch, []) == exit_code(console.dispatch, ["--help"]) == 0
    out = capsys.readouterr().out
    assert out.count("usage: stoix-like COMMAND") == 2
    assert exit_code(console.dispatch, ["--version"]) == 0
    assert re.fullmatch(r"stoix-like \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_command_that_is_not_there_names_the_nearest(capsys):
    assert exit_code(console.dispatch, ["evalute", "latest"]) == 2
    assert capsys.readouterr().err == (
        "error: unknown command 'evalute'; did you mean 'evaluate'?\nhint: stoix-like --help lists them\n"
    )


def test_hints_and_next_steps_speak_of_how_it_was_started(monkeypatch):
    monkeypatch.setattr(commands.sys, "argv", ["scripts/train_ppo.py"])
    assert commands.program("plot") == "plot.py"
    assert commands.usage("train-spo") == "python scripts/train_spo.py"
    assert re.fullmatch(r"\S*python\S* scripts/plot.py 'runs/a b'", commands.typed("plot", "runs/a b"))
    monkeypatch.setattr(commands.sys, "argv", ["/opt/bin/stoix-like", "train-ppo"])
    assert commands.program("plot") == commands.usage("plot") == commands.named("plot") == "stoix-like plot"
    assert commands.typed("plot", "runs/a b") == "stoix-like plot 'runs/a b'"
    with pytest.raises(ConfigError) as caught:
        console.dispatch(["plot", "--metrc", "x", "run"])
    assert caught.value.hint == "stoix-like plot --help lists what it takes"


def test_a_training_can_be_asked_for_its_configuration(capsys):
    assert exit_code(console.dispatch, ["train-ppo", "--config", "ppo/maze", "--print-config"]) == 0
    assert "task_id: Maze-v0" in capsys.readouterr().out


def test_a_program_of_the_users_own_is_what_hints_spell(monkeypatch, capsys):
    monkeypatch.setattr(commands._SPELLING, "own", None)
    assert console.dispatch([], "tasks.py") == 0
    assert capsys.readouterr().out.startswith("usage: tasks.py COMMAND")
    assert commands.typed("evaluate", "a b").endswith("python tasks.py evaluate 'a b'")
    assert (commands.named("train-a2c"), commands.program("plot")) == ("tasks.py train-a2c", "tasks.py plot")
    with pytest.raises(ConfigError, match="unknown command 'nonsense'") as caught:
        console.dispatch(["nonsense"], "tasks.py")
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
    ):
        assert re.search(f"(?m)^{line}", out), line
    assert re.search(r"ready: \S*python\S* scripts/train_ppo.py\n$", out)


def test_the_doctor_names_what_would_keep_a_training_from_running(tmp_path, monkeypatch, capsys):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(doctor.run_folder, "versions", lambda: {"python": "3.11", "flax": "not installed"})
    monkeypatch.setattr(doctor, "EXTRAS", {"notebooks": ("no_such_module.at_all",)})
    assert doctor.main(["--save-dir", str(file / "runs"), "--device-type", "tpu"]) == 1
    out = capsys.readouterr().out
    assert "problem: install it: pip install stoix_like" in out
    assert "problem: " + str(file) + " cannot be written: Not a directory; choose another --save-dir" in out
    assert f"not installed: {commands.installs('stoix_like[notebooks]')}" in out
    assert "3 problems\n" in out  # no TPU here


def test_the_doctor_misses_any_dependency_and_takes_a_cache_that_cannot_be_kept(tmp_path, monkeypatch, capsys):
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


def test_environments_are_listed_with_what_they_are(capsys):
    assert list_envs.main(["Maze-v0", "Connector-v3"]) == 0
    maze, connector = capsys.readouterr().out.split("\n\n")
    assert "Maze-v0\n  4 actions, at most 100 steps" in maze
    assert re.search(r"  agent_view\.walls +bool\[10, 10\]", maze)
    assert re.search(r"  action_mask +bool\[4\]", maze)
    assert re.search(r"  \d+ × \d actions", connector)


@pytest.mark.parametrize("task_id", ["Maze-v0", "Snake-v1", "Sokoban-v0", "SearchAndRescue-v0"])
def test_the_shipped_table_holds_the_line_of_a_task(task_id):
    table = json.loads(list_envs.TABLE.read_text())["tasks"]
    assert table[task_id] == list_envs.status(task_id), "python -m stoix_like.runtime.list_envs writes the table"
    assert set(table) == {name for name in registry.task_ids() if name not in registry.OWN}


@pytest.mark.slow
def test_the_shipped_table_holds_the_line_of_every_task():
    assert json.loads(list_envs.TABLE.read_text()) == list_envs.make_table()


def test_the_list_builds_nothing_of_jumanji_but_what_a_program_adds(monkeypatch):
    def unwanted():
        raise AssertionError("Jumanji was asked")

    added = lambda: make_action_reward()._replace(time_limit=7)
    for name in ("Corridor-v0", "Snake-v1"):  # a new one, and one that replaces Jumanji's
        monkeypatch.setitem(registry.OWN, name, added)
    monkeypatch.setattr(registry, "jumanji_registration", unwanted)
    listed = list_envs.listing()
    assert list(listed) == sorted(listed)
    assert listed["Maze-v0"] == "4 actions, at most 100 steps"
    assert listed["Corridor-v0"] == listed["Snake-v1"] == "2 actions, at most 7 steps"


def test_another_jumanji_is_asked_for_its_tasks(monkeypatch, tmp_path):
    table = {"jumanji": "0.0.0", "tasks": {"Maze-v0": "of old", "Gone-v0": "of old"}}
    (tmp_path / "table.json").write_text(json.dumps(table))
    monkeypatch.setattr(list_envs, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(registry, "task_ids", lambda: ["Maze-v0"])
    assert list_envs.listing() == {"Maze-v0": "4 actions, at most 100 steps"}


def test_every_environment_is_listed(capsys):
    assert list_envs.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"BinPack-v2 +800 actions", line) for line in lines)
    assert any(re.match(r"Sokoban-v0 +not playable: downloads its levels", line) for line in lines)
