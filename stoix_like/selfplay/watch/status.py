"""What loops and pipelines are doing, read from disk: of a loop in another process, of a killed one, of none.

Takes no lock and imports no JAX. SQLite may make the two small files beside its own that a reader needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError, RunError
from stoix_like.selfplay.events import breaker
from stoix_like.selfplay.events.clock import Moment, moment
from stoix_like.selfplay.events.database import reading
from stoix_like.selfplay.events.kinds import PipelineEvent
from stoix_like.selfplay.events.log import LoggedEvent, last_events
from stoix_like.selfplay.files import lost_shards, manifests, records
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.tuned_leaves import newest_found
from stoix_like.selfplay.iterations import due
from stoix_like.selfplay.iterations.due import Needs
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER, Holder

SCHEMA = 1
LATE_SECONDS = 120.0  # age of a heartbeat from which on its loop is unhealthy
NUM_EVENTS = 10
_BAD_STATES = ("error", "stopped")


def read_status(save_dir: Path, now: Moment | None = None) -> dict[str, Any]:
    """Everything that `--status --json` shows; docs/self-play-loops.md has the schema."""
    now, kept, problem = now or moment(), _Stored(), None
    try:
        kept = _read_stored(save_dir)
    except (CheckpointError, RunError) as error:  # the games are in files of their own
        problem = error.line
    holders = dict[str, Holder | None]()
    for name in sorted({*kept.beats, MASTER, CONTINUOUS}):
        try:
            holders[name] = presence.holder(save_dir, name)
        except OSError as error:
            holders[name], problem = None, f"{save_dir / name}.lock cannot be read: {error.strerror or error}"
    loops = [
        _loop(name, holder, kept.beats.get(name), name in kept.stops, now)
        for name, holder in holders.items()
        if holder is not None or name in kept.beats
    ]
    games = [_game(layout, kept.breakers, now.wall) for layout in layouts(save_dir)]
    running = [loop for loop in loops if loop["running"] and loop["name"] in (MASTER, CONTINUOUS)]
    return {
        "schema": SCHEMA,
        "save_dir": str(save_dir),
        "time": now.wall,
        "error": problem,
        "healthy": problem is None and bool(running) and all(loop["healthy"] for loop in running),
        "loops": loops,
        "games": games,
        "events": [_event(one.event) for one in kept.events],
    }


class _Beat(NamedTuple):
    """A row of heartbeats. Those of earlier versions end with the status."""

    name: str
    pid: int
    host: str
    began: float
    time: float
    status: str
    boot: str = ""
    monotonic: float = 0.0

    @property
    def at(self) -> Moment:
        return Moment(self.time, self.boot, self.monotonic)


class _Stored(NamedTuple):
    """What stands in the database; nothing if there is none."""

    beats: Mapping[str, _Beat] = {}  # by loop
    stops: Sequence[str] = ()
    breakers: Mapping[tuple[str, str], breaker.Breaker] = {}
    events: Sequence[LoggedEvent] = ()


def _read_stored(save_dir: Path) -> _Stored:
    with reading(save_dir) as connection:
        if connection is None:
            return _Stored()
        beats = {row[0]: _Beat(*row) for row in connection.execute("SELECT * FROM heartbeats")}
        stops = [name for (name,) in connection.execute("SELECT name FROM stops")]
        rows = connection.execute(breaker.SELECT).fetchall()
        return _Stored(beats, stops, breaker.read_all(rows), last_events(connection, NUM_EVENTS))


def layouts(save_dir: Path) -> list[Layout]:
    """The pipelines in a folder."""
    found = sorted(save_dir.iterdir()) if save_dir.is_dir() else []
    return [layout for path in found if _is_pipeline(layout := Layout(path))]


def _is_pipeline(layout: Layout) -> bool:
    """Whether a folder has a champion or iterations; of one that cannot be read, whether it is called like a game."""
    try:
        return layout.champion.is_file() or bool(layout.iterations())
    except OSError:
        return re.search(r"_\d+p$", layout.root.name) is not None


def _event(event: PipelineEvent) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in ("kind", "key", "game", "iteration", "time")}
    return fields | {"stage": event.stage_name}


def _loop(name: str, holder: Holder | None, beat: _Beat | None, stops: bool, now: Moment) -> dict[str, Any]:
    """A loop, by its lock and its last heartbeat."""
    if beat is None or (holder is not None and _is_of_another(holder, beat)):
        return _silent_loop(name, holder, stops, now)
    status = _details(beat)
    is_running, age = holder is not None, max(now.since(beat.at), 0.0)
    state = status.get("current_state", "unknown")
    return {
        "name": name,
        "running": is_running,
        "healthy": is_running and age < LATE_SECONDS and state not in _BAD_STATES and not status.get("is_late"),
        "stop_requested": stops,
        "pid": beat.pid,
        "host": beat.host,
        "began": beat.began,
        "heartbeat_age": age,
        "state": state if is_running else "stopped" if state == "stopped" else "killed",
        "details": status,
    }


def _details(beat: _Beat) -> dict[str, Any]:
    """What a loop has said of itself; nothing if it cannot be read."""
    try:
        found = json.loads(beat.status)
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_of_another(holder: Holder, beat: _Beat) -> bool:
    """Whether the last heartbeat is of a process before the one that runs now."""
    if holder.since is None:
        return False
    return (holder.pid, holder.host) != (beat.pid, beat.host) or beat.at.since(holder.since) < 0.0


def _silent_loop(name: str, holder: Holder | None, stops: bool, now: Moment) -> dict[str, Any]:
    """A loop without a heartbeat in the database: it has just been started, hangs, or writes into another one."""
    since = None if holder is None else holder.since
    is_new = since is None or now.since(since) < LATE_SECONDS
    who = holder or Holder()
    return {
        "name": name,
        "running": holder is not None,
        "healthy": holder is not None and is_new,
        "stop_requested": stops,
        "pid": who.pid,
        "host": who.host,
        "began": who.began,
        "heartbeat_age": None,
        "state": "stopped" if holder is None else "starting" if is_new else "silent",
        "details": {},
    }


def _game(layout: Layout, stored: Mapping[tuple[str, str], breaker.Breaker], now: float) -> dict[str, Any]:
    """A game; what cannot be read stands in `error`."""
    try:
        found = _readable_game(layout)
    except (CheckpointError, OSError) as error:
        found = {"game": layout.root.name, "error": error.line if isinstance(error, CheckpointError) else str(error)}
    breakers = {stage: one for (game, stage), one in stored.items() if game == layout.root.name and one.failures}
    found["breakers"] = [
        {
            "stage": stage,
            "state": breaker.state(one, now),
            "failures": one.failures,
            "retry_at": breaker.retry_at(one),
            "error": one.error,
        }
        for stage, one in breakers.items()
    ]
    return found


def _readable_game(layout: Layout) -> dict[str, Any]:
    number = layout.last_iteration()
    files = files_of(layout, number)
    found, start = files.manifests, files.begun
    needs = Needs(0 if start is None else int(start.kept.get("min_samples", 0)))
    step = None if start is None else due.due_step(layout, number, needs)
    champion = records.read_record(layout.champion) if layout.champion.is_file() else None
    synced = manifests.newest_synced(layout, number)
    tuned = newest_found(layout)
    totals = {name: 0 if synced is None else synced.facts[name] for name in ("games", "positions")}
    return {
        "game": layout.root.name,
        "error": None,
        "iteration": number,
        "done": [name for name, manifest in found.items() if manifest is not None],
        "due": None if step is None else step.stage,
        "batches": manifests.num_batches(found["selfplay"]),
        "new_positions": max(totals["positions"] - manifests.learned_positions(layout, number + files.is_finished), 0),
        "store_games": totals["games"],
        "store_positions": totals["positions"],
        "lost": lost_shards.totals(layout),
        "champion": None if champion is None else {"hash": champion.hash, "iteration": champion.iteration},
        "tuned": None if tuned is None else {"iteration": tuned[0], "leaves": tuned[1].leaves},
    }


def exit_code(status: dict[str, Any]) -> int:
    """0 if a loop runs and all that run are healthy, else 1."""
    return 0 if status["healthy"] else 1
