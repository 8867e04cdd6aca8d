"""Commands that are run when something has happened: at least once, in another thread, and never the loop's problem."""

import contextlib
import json
import sys
import time

import pytest

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.orchestration import events, hooks
from stoix_like.selfplay.orchestration.database import Database
from stoix_like.selfplay.orchestration.event_log import EventLog
from stoix_like.selfplay.orchestration.hooks import BREAKER_OPEN, HookThread, check_hooks

BASE = {"game": "tic_tac_toe_2p", "run": "abc", "time": 5.0, "iteration": 3}
#: Adds a line: what a command reads ends with one.
WRITES = "import os, sys; open(sys.argv[1], 'a').write(os.environ['STOIX_LIKE_EVENT'] + ' ' + sys.stdin.read())"


@pytest.fixture
def log(tmp_path):
    with contextlib.closing(Database(tmp_path)) as database:
        yield EventLog(database)


def failed(part, breaker):
    return events.StageFailed(**BASE, part=part, failed_stage="train", error="no memory", breaker=breaker)


def test_commands_get_the_event_also_after_a_restart(log, tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "_LOOK_SECONDS", 0.01)
    path = tmp_path / "told"
    commands = {BREAKER_OPEN: f'{sys.executable} -c "{WRITES}" {path}'}
    with HookThread(log, commands, SILENT):
        log.append([failed(1, "closed"), failed(2, "open")])
        while not path.is_file():
            time.sleep(0.01)
    log.append([failed(3, "open")])  # of a process that is killed before it is told
    with HookThread(log, commands, SILENT):
        while len(path.read_text().splitlines()) < 2:
            time.sleep(0.01)
    kinds, texts = zip(*(line.split(" ", 1) for line in path.read_text().splitlines()), strict=True)
    assert set(kinds) == {BREAKER_OPEN}
    assert [json.loads(text)["part"] for text in texts] == [2, 3]
    assert json.loads(texts[0])["key"] == "tic_tac_toe_2p/3/train/STAGE_FAILED/2"


def test_a_command_that_fails_is_said_and_passed_over(log, monkeypatch):
    monkeypatch.setattr(hooks, "_LOOK_SECONDS", 0.01)
    said = []
    with HookThread(log, {"STAGE_FAILED": "false"}, SILENT._replace(warning=said.append)):
        log.append([failed(1, "closed")])
        while len(said) < 3:
            time.sleep(0.01)
    assert all("on_event failed on tic_tac_toe_2p/3/train/STAGE_FAILED/1" in line for line in said)


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ({"MODEL_PROMOTE": "true"}, "hooks.on_event: no event 'MODEL_PROMOTE'; did you mean 'MODEL_PROMOTED'?"),
        ({"MODEL_PROMOTED": "'open"}, 'hooks.on_event: the command of MODEL_PROMOTED is "\'open"'),
        (
            {"MODEL_PROMOTED": "./nothing.sh now"},
            "hooks.on_event: the command of MODEL_PROMOTED: no program './nothing.sh'",
        ),
        ({"MODEL_PROMOTED": 3}, "hooks.on_event: the command of MODEL_PROMOTED is 3"),
    ],
)
def test_wrong_hooks_are_refused(commands, problem):
    with pytest.raises(ConfigError) as caught:
        check_hooks(commands)
    assert caught.value.problems == [problem]


def test_without_commands_nothing_is_read(log):
    with HookThread(log, {}, SILENT) as thread:
        assert not thread._thread.is_alive()


def test_what_the_loop_has_told_last_is_begun_before_it_ends(log, tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "_LOOK_SECONDS", 1e6)  # the thread looks when the loop ends
    path = tmp_path / "told"
    commands = {BREAKER_OPEN: f'{sys.executable} -c "{WRITES}" {path}'}
    with HookThread(log, commands, SILENT):
        log.append([failed(1, "closed"), failed(2, "open"), failed(3, "open")])
    assert len(path.read_text().splitlines()) == 2
    monkeypatch.setattr(hooks, "_LAST_SECONDS", -1.0)  # it takes too long
    with HookThread(log, commands, SILENT):
        log.append([failed(4, "open"), failed(5, "open")])
    assert len(path.read_text().splitlines()) == 3
    with HookThread(log, commands, SILENT):  # of the next process
        pass
    assert len(path.read_text().splitlines()) == 4


def test_commands_that_are_added_later_are_not_run_for_the_past(log, tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "_LOOK_SECONDS", 0.01)
    path = tmp_path / "told"
    with HookThread(log, {}, SILENT):
        log.append([failed(1, "open")])
    with HookThread(log, {BREAKER_OPEN: f'{sys.executable} -c "{WRITES}" {path}'}, SILENT):
        log.append([failed(2, "open")])  # and the thread ends before its next look: it is told at the end
    assert [json.loads(line.split(" ", 1)[1])["part"] for line in path.read_text().splitlines()] == [2]
