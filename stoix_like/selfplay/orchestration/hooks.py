"""Commands of a user that are run when something has happened. Imports no JAX.

A thread reads the log for them, apart from the loop, so that a slow command holds nothing up, and one that a killed
process did not run is run by the next. A command that fails is run three times in all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping

from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError, StoixError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.selfplay.orchestration.event_log import EventLog
from stoix_like.selfplay.orchestration.events import EVENT_TYPES, PipelineEvent, StageFailed
from stoix_like.selfplay.orchestration.router import EventRouter, Subscription

BREAKER_OPEN = "BREAKER_OPEN"  # a STAGE_FAILED that has opened its breaker
CONSUMER = "on_event"
TIMEOUT_SECONDS = 60.0
VARIABLE = "STOIX_LIKE_EVENT"  # the kind; the event itself is on standard input, as JSON
_LOOK_SECONDS = 1.0
_LAST_SECONDS = 10.0  # in which commands are begun after the loop has ended


def check_hooks(commands: Mapping[str, str]) -> None:
    """Raises ConfigError for a kind that does not exist, or a command that is none."""
    known = [*EVENT_TYPES, BREAKER_OPEN]
    problems = [f"hooks.on_event: no event '{kind}'{nearest(kind, known)}" for kind in commands if kind not in known]
    problems += [
        f"hooks.on_event: the command of {kind} is {command!r}"
        for kind, command in commands.items()
        if not (isinstance(command, str) and _words(command))
    ]
    problems += [
        f"hooks.on_event: the command of {kind}: no program '{words[0]}'"
        for kind, command in commands.items()
        if isinstance(command, str) and (words := _words(command)) and shutil.which(words[0]) is None
    ]
    if problems:
        what = "a command is a text such as 'notify-send stopped', without a shell: sh -c '...' is one"
        raise ConfigError(problems, f"events are {', '.join(known)}; {what}")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # quotes that are not closed
        return []


class HookThread:
    """Runs the commands, for a block.

    Args:
        log: whose events are looked at, from the next one on if the hooks are new.
        commands: {kind: command}; the command is no shell's.
        reporter: receives what failed.
    """

    def __init__(self, log: EventLog, commands: Mapping[str, str], reporter: Reporter) -> None:
        self._commands, self._ended = commands, threading.Event()
        self._last = math.inf  # when the loop ended
        self._router = EventRouter(log, reporter)
        if commands:
            self._router.subscribe(Subscription(CONSUMER, self._run_commands))
        self._log = log
        self._pass_over()
        self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)

    def __enter__(self) -> HookThread:
        if self._commands:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._last = time.monotonic()
        self._ended.set()
        if self._commands:
            self._thread.join()
        self._pass_over()

    def _pass_over(self) -> None:
        """Without commands nothing is kept for those that are added later."""
        if not self._commands:
            with contextlib.suppress(StoixError):
                self._log.advance(CONSUMER, self._log.end())

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._dispatch()
        self._dispatch()  # what the loop has told last

    def _dispatch(self) -> None:
        with contextlib.suppress(StoixError):  # the database is busy, or the disk is full: at the next look
            self._router.dispatch(self._is_over)

    def _is_over(self) -> bool:
        """Whether what is left is for the next process."""
        return time.monotonic() > self._last + _LAST_SECONDS

    def _run_commands(self, event: PipelineEvent) -> None:
        kinds = [event.kind]
        if isinstance(event, StageFailed) and event.breaker == "open":
            kinds.append(BREAKER_OPEN)
        for kind in kinds:
            if kind in self._commands:
                run_command(self._commands[kind], kind, event)


def run_command(command: str, kind: str, event: PipelineEvent) -> None:
    """Runs a command. Raises CalledProcessError, TimeoutExpired or OSError if it fails."""
    text = json.dumps({"kind": kind, "key": event.key, **dataclasses.asdict(event)}) + "\n"
    environment = {**os.environ, VARIABLE: kind}
    subprocess.run(
        _words(command),
        input=text,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
