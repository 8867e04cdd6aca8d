"""What loops and pipelines are doing, read from disk: of a loop in another process, of a killed one, of none.

Takes no lock and imports no JAX. SQLite may make the two small files beside its own that a reader needs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.text import aligned, plural
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay import due, lost_shards, records
from stoix_like.selfplay.due import Needs
from stoix_like.selfplay.folders import STAGES, Layout
from stoix_like.selfplay.iteration_start import read_start
from stoix_like.selfplay.orchestration import breaker, presence
from stoix_like.selfplay.orchestration.database import reading
from stoix_like.selfplay.orchestration.event_log import LoggedEvent, last_events
from stoix_like.selfplay.orchestration.events import PipelineEvent
from stoix_like.selfplay.orchestration.presence import CONTINUOUS, MASTER, Holder
from stoix_like.selfplay.orchestration.reports import counts_text
from stoix_like.selfplay.tuned_leaves import newest_found

SCHEMA = 1
LATE_SECONDS = 120.0  # age of a heartbeat from which on its loop is unhealthy
NUM_EVENTS = 10
_BAD_STATES = ("error", "stopped")


def read_status(save_dir: Path, now: float | None = None) -> dict[str, Any]:
    """Everything that `--status --json` shows; docs/self-play-loops.md has the schema."""
    now, kept, problem = time.time() if now is None else now, _Stored(), None
    try:
        kept = _read_stored(save_dir)
    except (CheckpointError, RunError) as error:  # the games are in files of their own
        problem = error.line
    names = sorted({*kept.beats, *(name for name in (MASTER, CONTINUOUS) if presence.is_present(save_dir, name))})
    loops = [_loop(save_dir, name, kept.beats.get(name), name in kept.stops, now) for name in names]
    games = [_game(layout, kept.breakers, now) for layout in layouts(save_dir)]
    running = [loop for loop in loops if loop["running"] and loop["name"] in (MASTER, CONTINUOUS)]
    return {
        "schema": SCHEMA,
        "save_dir": str(save_dir),
        "time": now,
        "error": problem,
        "healthy": problem is None and bool(running) and all(loop["healthy"] for loop in running),
        "loops": loops,
        "games": games,
        "events": [_event(one.event) for one in kept.events],
    }


class _Stored(NamedTuple):
    """What stands in the database; nothing if there is none."""

    beats: Mapping[str, Sequence[Any]] = {}  # {loop: the row of its heartbeat}
    stops: Sequence[str] = ()
    breakers: Mapping[tuple[str, str], breaker.Breaker] = {}
    events: Sequence[LoggedEvent] = ()


def _read_stored(save_dir: Path) -> _Stored:
    with reading(save_dir) as connection:
        if connection is None:
            return _Stored()
        beats = {beat[0]: beat for beat in connection.execute("SELECT * FROM heartbeats")}
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


def _loop(save_dir: Path, name: str, beat: Sequence[Any] | None, stops: bool, now: float) -> dict[str, Any]:
    """A loop, by its lock and its last heartbeat."""
    holder = presence.holder(save_dir, name)
    if beat is None or (holder is not None and _is_of_another(holder, beat)):
        return _silent_loop(name, holder, stops, now)
    _, pid, host, began, at, text = beat
    status: dict[str, Any] = json.loads(text)
    is_running, age = holder is not None, max(now - at, 0.0)
    state = status.get("current_state", "unknown")
    return {
        "name": name,
        "running": is_running,
        "healthy": is_running and age < LATE_SECONDS and state not in _BAD_STATES and not status.get("is_late"),
        "stop_requested": stops,
        "pid": pid,
        "host": host,
        "began": began,
        "heartbeat_age": age,
        "state": state if is_running else "stopped" if state == "stopped" else "killed",
        "details": status,
    }


def _is_of_another(holder: Holder, beat: Sequence[Any]) -> bool:
    """Whether the last heartbeat is of a process before the one that runs now."""
    _, pid, host, _, at, _ = beat
    return holder.began is not None and ((holder.pid, holder.host) != (pid, host) or at < holder.began)


def _silent_loop(name: str, holder: Holder | None, stops: bool, now: float) -> dict[str, Any]:
    """A loop without a heartbeat in the database: it has just been started, hangs, or writes into another one."""
    began = None if holder is None else holder.began
    is_new = began is None or now - began < LATE_SECONDS
    return {
        "name": name,
        "running": holder is not None,
        "healthy": holder is not None and is_new,
        "stop_requested": stops,
        **(holder or Holder())._asdict(),
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
    found = {name: read_manifest(layout.stage(number, name)) for name in STAGES}
    start = read_start(layout, number)
    needs = Needs(0 if start is None else int(start.kept.get("min_samples", 0)))
    step = None if start is None else due.due_step(layout, number, needs)
    champion = records.read_record(layout.champion) if layout.champion.is_file() else None
    synced = found["sync"]
    tuned = newest_found(layout)
    totals = {name: 0 if synced is None else synced.facts[name] for name in ("games", "positions")}
    return {
        "game": layout.root.name,
        "error": None,
        "iteration": number,
        "done": [name for name, manifest in found.items() if manifest is not None],
        "due": None if step is None else step.stage,
        "batches": due.num_batches(found["selfplay"]),
        "new_positions": due.new_positions(layout, number),
        "store_games": totals["games"],
        "store_positions": totals["positions"],
        "lost": lost_shards.totals(layout),
        "champion": None if champion is None else {"hash": champion.hash, "iteration": champion.iteration},
        "tuned": None if tuned is None else {"iteration": tuned[0], "leaves": tuned[1].leaves},
    }


def exit_code(status: dict[str, Any]) -> int:
    """0 if a loop runs and all that run are healthy, else 1."""
    return 0 if status["healthy"] else 1


def status_lines(status: dict[str, Any]) -> list[str]:
    """The status as a person reads it."""
    lines = [f"{status['save_dir']}: {'healthy' if status['healthy'] else _unhealthy_text(status)}"]
    lines += [status["error"]] if status["error"] else []
    for loop in status["loops"]:
        lines += _loop_lines(loop)
    if not status["loops"] and not status["error"]:
        lines.append("no loop was started here")
    if rows := [_game_row(game) for game in status["games"]]:
        lines += aligned([["game", "iteration", "champion", "store", "new", "next"], *rows])
    for game in status["games"]:
        lines += [f"{game['game']}: {game['error']}"] if game["error"] else []
        lines += _tuned_lines(game) + _lost_lines(game)
        lines += [
            f"{game['game']}: {one['failures']} {plural('failure', one['failures'])} of {one['stage']} in a row"
            f"{_breaker_text(one)}: {one['error']}"
            for one in game["breakers"]
        ]
    lines += [_event_line(event) for event in status["events"]]
    return lines


def _breaker_text(one: Mapping[str, Any]) -> str:
    if one["state"] == "open":
        return f", breaker open until {breaker.time_text(one['retry_at'])}"
    return "" if one["state"] == "closed" else ", breaker half-open: it is tried next"


def _unhealthy_text(status: dict[str, Any]) -> str:
    names = [loop["name"] for loop in status["loops"] if loop["running"]]
    if {MASTER, CONTINUOUS} & {*names}:
        return "unhealthy"
    return "no loop is running" + (", and its supervisor starts one again" if names else "")


def _loop_lines(loop: dict[str, Any]) -> list[str]:
    details = loop["details"]
    text = f"{presence.label(loop['name'])}: {loop['state']}"
    if loop["running"] and loop["pid"] is not None:
        age = loop["heartbeat_age"]
        text += f", process {loop['pid']} on {loop['host']}, "
        text += "no heartbeat" if age is None else f"heartbeat {age:.0f} s ago"
    if loop["stop_requested"]:
        text += ", to be stopped" if loop["running"] else " by --stop, and no supervisor starts it again"
    lines = [text]
    if loop["running"] and (game := details.get("current_config")):
        progress = details.get("progress") or ""  # another game's until this one has some
        lines.append(f"  {progress if progress.startswith(f'{game}: ') else game}")
    elif loop["running"] and details.get("progress"):
        lines.append(f"  {details['progress']}")
    if "total_iterations" in details:
        lines += [f"  {game} waits: {reason}" for game, reason in details.get("waiting", {}).items()]
        lines += [f"  {game} is on a plateau: its champions no longer gain" for game in details.get("on_plateau", ())]
        counts = counts_text(details["successful_iterations"], details["failed_iterations"])
        lines.append(
            f"  {counts} since it was started"
            + (f"; last error: {details['last_error']}" if details["last_error"] else "")
        )
    return lines


def _game_row(game: dict[str, Any]) -> list[str]:
    if game["error"]:
        return [game["game"], "-", "-", "-", "-", "cannot be read"]
    champion = game["champion"]
    name = "-" if champion is None else f"{champion['hash'][:12]} of {champion['iteration']}"
    games, new = f"{game['store_games']:,} games", f"{game['new_positions']:,}"
    return [game["game"], str(game["iteration"]), name, games, new, game["due"] or "next iteration"]


def _tuned_lines(game: dict[str, Any]) -> list[str]:
    if not (tuned := game.get("tuned")):
        return []
    leaves = ", ".join(f"{name} {_value_text(value)}" for name, value in tuned["leaves"].items())
    return [f"{game['game']}: {leaves}, tuned after iteration {tuned['iteration']}"]


def _lost_lines(game: dict[str, Any]) -> list[str]:
    if not (lost := game.get("lost")) or not (number := lost["shards"]):
        return []
    what = f"{number:,} {plural('shard', number)} lost, with {lost['games']:,} games"
    return [f"{game['game']}: {what}; quarantine/ has what was damaged"]


def _value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def _event_line(event: dict[str, Any]) -> str:
    where = f" {event['game']} iteration {event['iteration']}" if event["game"] else ""  # else of all games
    stage = f" {event['stage']}" if event["kind"] == "STAGE_FAILED" else ""
    return f"{_clock_text(event['time'])} {event['kind']}{where}{stage}"


def _clock_text(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
