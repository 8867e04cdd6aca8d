"""A process that keeps a loop running: it starts it, and starts it again after a pause when it ends. Imports no JAX.

Pauses double with each end that comes soon after its start. A stop that was asked for sticks: the loop ends, and is not
started again until someone does so by hand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoix_like.errors import INTERRUPTED, RunError, StoixError
from stoix_like.runtime.console.reporter import Reporter, lossy
from stoix_like.runtime.training.stopping import StopRequest, stopping_on_signals
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.presence import SUPERVISOR, Heartbeat

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0  # seconds before a loop is started again
LONG_ENOUGH = 600.0  # seconds after which an end begins with the first pause again
_LOOK_SECONDS = 0.2
REFUSED = (2, 3, 5)  # exit codes of what starting again does not mend: a wrong flag, no such game, a missing package


@dataclass
class SupervisorStats:
    """What a supervisor is doing."""

    current_state: str = "starting"  # running, pausing, stopped
    loop: str = ""
    restarts: int = 0
    last_exit_code: int | None = None


def pause_before(restart: int) -> float:
    """Seconds before a loop is started again for the n-th time in a row, from 0."""
    return min(FIRST_PAUSE * 2.0 ** min(restart, 30), LONGEST_PAUSE)


def supervise(
    name: str,
    save_dir: Path,
    command: Sequence[str],
    reporter: Reporter,
    pause: Callable[[int], float] = pause_before,
) -> int:
    """Keeps a loop running until it is stopped, or ends by itself; returns the exit code.

    Args:
        name: of the loop, such as continuous.
        save_dir: the folder of all pipelines.
        command: that starts it.
        reporter: receives what is shown.
        pause: seconds before the n-th restart in a row.

    Raises:
        RunError: another supervisor works in the folder.
    """
    stats, supervisor, reporter = SupervisorStats(loop=name), f"{SUPERVISOR}-{name}", lossy(reporter)
    with (
        stopping_on_signals() as stop,
        presence.present(save_dir, supervisor),
        contextlib.closing(Database(save_dir)) as database,
        Heartbeat(database, supervisor, lambda: dict(vars(stats))),
    ):
        reporter.info(f"keeping a {name} loop running in {save_dir}, in the foreground; Ctrl-C stops both")
        presence.clear_stop(database, name)
        code = _keep_running(database, stats, command, stop, reporter, pause)
        stats.current_state = "stopped"
    return code


def _keep_running(
    database: Database,
    stats: SupervisorStats,
    command: Sequence[str],
    stop: StopRequest,
    reporter: Reporter,
    pause: Callable[[int], float],
) -> int:
    in_a_row = 0
    while _wait_for_another(database, stats, stop, reporter):
        stats.current_state, began = "running", time.monotonic()
        code = _run_once(command, stop, reporter)
        stats.last_exit_code = code
        with contextlib.suppress(StoixError):
            database.reopen_if_moved()  # by someone who wants a new one, which the loop makes when it is started
        if stop.is_set or _is_stopped(database, stats):
            return INTERRUPTED if stop.is_set else 0
        if code in (0, *REFUSED):
            return code
        in_a_row = 0 if time.monotonic() - began > LONG_ENOUGH else in_a_row
        seconds = pause(in_a_row)
        in_a_row, stats.restarts, stats.current_state = in_a_row + 1, stats.restarts + 1, "pausing"
        reporter.warning(f"the {stats.loop} loop {_end_text(code)}; it is started again in {seconds:g} s")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if stop.is_set or _is_stopped(database, stats):
                return INTERRUPTED if stop.is_set else 0
            time.sleep(_LOOK_SECONDS)
    return INTERRUPTED if stop.is_set else 0


def _end_text(code: int) -> str:
    """How a process ended; a negative exit code is that of a signal."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def _is_stopped(database: Database, stats: SupervisorStats) -> bool:
    """Whether the loop shall be stopped; not while the database cannot be read, which is tried again."""
    with contextlib.suppress(StoixError):
        return presence.is_stopped(database, stats.loop)
    return False


def _wait_for_another(database: Database, stats: SupervisorStats, stop: StopRequest, reporter: Reporter) -> bool:
    """Waits while a loop that someone else has started runs; False if this one shall not be started any more."""
    save_dir, told = database.path.parent, ""
    while reason := _why_not_now(save_dir, stats.loop):
        if reason != told:
            reporter.note(reason)
            stats.current_state, told = "waiting", reason
        if stop.is_set or _is_stopped(database, stats):
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _why_not_now(save_dir: Path, name: str) -> str:
    """Why a loop is not started yet; empty if nothing keeps it."""
    try:
        is_there = presence.is_present(save_dir, name)
    except OSError as error:
        return f"{save_dir / name}.lock cannot be read ({error.strerror or error}): it is looked at again"
    return f"a {name} loop runs already: another one is started when it has ended" if is_there else ""


def _run_once(command: Sequence[str], stop: StopRequest, reporter: Reporter) -> int:
    """The exit code of the loop, or that of an error if the system starts no process just now.

    A signal that this process receives is handed on, and the loop's end waited for.
    """
    environment = {**os.environ, presence.SUPERVISED: str(os.getpid())}
    try:
        started = subprocess.Popen(command, start_new_session=True, env=environment)
    except OSError as error:
        reporter.warning(f"no process can be started: {error.strerror or error}")
        return RunError.exit_code
    with started as process:
        is_told = False
        try:
            while process.poll() is None:
                if stop.is_set and not is_told:
                    process.send_signal(signal.SIGTERM)
                    is_told = True
                time.sleep(_LOOK_SECONDS)
        except BaseException:  # a second signal: the loop must not be left behind
            process.kill()
            process.wait()
            raise
        return int(process.returncode)


def stop_loop(save_dir: Path, name: str) -> dict[str, Any]:
    """Asks a loop to end at its next shard or chunk. Raises RunError if none of this name was ever started there."""
    if not any((save_dir / f"{one}.lock").is_file() for one in (name, f"{SUPERVISOR}-{name}")):
        raise RunError(f"no {name} loop was started in {save_dir}", "give its --save-dir, or the name of another one")
    with contextlib.closing(Database(save_dir)) as database:
        presence.request_stop(database, name)
    return {"running": presence.is_present(save_dir, name)}
