"""Commands of a user that are run when something has happened. Imports no JAX.

Each has a thread that reads the log for it, apart from the loop, so that a slow command holds nothing else up, and one
that a killed process did not run is run by the next. A command that fails is run three times in all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError, StoixError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.selfplay.events.clock import Periodic
from stoix_like.selfplay.events.kinds import EVENT_TYPES, PipelineEvent, StageFailed
from stoix_like.selfplay.events.log import EventLog, LoggedEvent, UnreadableEvent
from stoix_like.selfplay.events.router import MAX_ATTEMPTS

BREAKER_OPEN = "BREAKER_OPEN"  # a STAGE_FAILED that has opened its breaker
CONSUMER = "on_event"
TIMEOUT_SECONDS = 60.0
VARIABLE = "STOIX_LIKE_EVENT"  # the kind; the event itself is on standard input, as JSON
_LOOK_SECONDS = 1.0
MOST_WAITING = 100  # events of a command
_LAST_SECONDS = 10.0  # for commands after the loop has ended; one that still runs then is killed


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


class Command:
    """A program that is run for events.

    Args:
        text: its words, without a shell.
    """

    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._process: subprocess.Popen[str] | None = None  # that runs
        self._is_killed = False

    def run(self, kind: str, event: PipelineEvent) -> None:
        """Runs it. Raises CalledProcessError, TimeoutExpired or OSError if it fails."""
        text = json.dumps({"kind": kind, "key": event.key, **dataclasses.asdict(event)}) + "\n"
        environment = {**os.environ, VARIABLE: kind}
        with subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
        ) as process:
            self._process = process
            try:
                process.communicate(text, timeout=0.0 if self._is_killed else TIMEOUT_SECONDS)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, self._words)

    def kill(self) -> None:
        """Kills it, also one that is just being started: its run has failed."""
        self._is_killed = True
        if (process := self._process) is not None:
            process.kill()


class CommandQueue:
    """The events that a command is run for, one after the other: those of the log behind the place it has come to.

    At most `MOST_WAITING` wait; with more, the oldest are passed over.

    Args:
        log: whose events they are, from the next one on if the command is new.
        kind: of the events, or BREAKER_OPEN.
        command: no shell's.
        reporter: receives what failed.
    """

    def __init__(self, log: EventLog, kind: str, command: str, reporter: Reporter) -> None:
        self.kind, self.consumer = kind, f"{CONSUMER}/{kind}"
        self._log, self._reporter = log, reporter
        self.command = Command(command)
        self._attempts = 0  # on the event that it stands at
        self.counts = {"failed": 0, "passed_over": 0}  # events, by this process
        self.last_error: str | None = None
        if log.position(self.consumer) is None:
            before = log.position(CONSUMER)  # of an earlier version, which had one place for all commands
            log.advance(self.consumer, log.end() if before is None else before)

    @property
    def _event_kind(self) -> str:
        return StageFailed.kind if self.kind == BREAKER_OPEN else self.kind

    def run_next(self) -> bool:
        """Runs the command for the next event; whether it may go on with another one at once."""
        end, position = self._log.end(), self._log.position(self.consumer) or 0
        is_own = self.kind == self._event_kind  # most failures open no breaker, and none that does is passed over
        if is_own and (last := self._log.beyond(self._event_kind, position, MOST_WAITING)) is not None:
            self.counts["passed_over"] += last.number
            self._note(f"{last.number} events waited too long for {self.kind}, and are passed over")
            position = last.position
            self._log.advance(self.consumer, position)
        try:
            logged = self._log.next_of(self._event_kind, position)
        except UnreadableEvent as error:
            self.counts["failed"] += 1
            self._note(f"{self.consumer}: {error.line}; it is passed over")
            self._log.bury(self.consumer, error.position, error.line, time.time())
            return True
        if logged is None:
            if position < end:
                self._log.advance(self.consumer, end)
            return False
        return self._run(logged)

    def _run(self, logged: LoggedEvent) -> bool:
        event = logged.event
        try:
            if self.kind == event.kind or (isinstance(event, StageFailed) and event.breaker == "open"):
                self.command.run(self.kind, event)
        except Exception as error:
            self._attempts += 1
            told = f"{self.consumer} failed on {event.key}, {self._attempts} of {MAX_ATTEMPTS} times: {error!r}"
            self._note(told)
            if self._attempts < MAX_ATTEMPTS:
                return False
            self.counts["failed"] += 1
            self._log.bury(self.consumer, logged.position, told, time.time())
        else:
            self._log.advance(self.consumer, logged.position)
        self._attempts = 0
        return True

    def _note(self, text: str) -> None:
        self.last_error = text
        self._reporter.warning(text)


class HookThreads:
    """Runs the commands, for a block: each in a thread of its own, so that none waits for another.

    Args:
        log: whose events are looked at.
        commands: {kind: command}.
        reporter: receives what failed.
    """

    def __init__(self, log: EventLog, commands: Mapping[str, str], reporter: Reporter) -> None:
        self._log = log
        self._last = math.inf  # when the loop ended
        self.queues = [CommandQueue(log, kind, command, reporter) for kind, command in commands.items()]
        self._threads = [
            Periodic(one.consumer, _LOOK_SECONDS, functools.partial(self._drain, one), at_end=True)
            for one in self.queues
        ]
        self._forget_others()

    def __enter__(self) -> HookThreads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._last = time.monotonic()
        for thread in self._threads:
            thread.end()
        for queue, thread in zip(self.queues, self._threads, strict=True):
            if not thread.join(max(self._last + _LAST_SECONDS - time.monotonic(), 0.0)):
                queue.command.kill()
                thread.join()

    def report(self) -> dict[str, Any]:
        """{kind: what has failed} for the status."""
        return {one.kind: one.counts | {"last_error": one.last_error} for one in self.queues}

    def _forget_others(self) -> None:
        """Nothing is kept for commands that are added later."""
        with contextlib.suppress(StoixError):
            self._log.forget(CONSUMER, [one.consumer for one in self.queues])

    def _drain(self, queue: CommandQueue) -> None:
        while time.monotonic() <= self._last + _LAST_SECONDS and queue.run_next():
            pass
