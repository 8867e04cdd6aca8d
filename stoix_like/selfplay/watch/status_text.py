"""The status of loops and pipelines as a person reads it. Imports no JAX."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoix_like.runtime.console.text import aligned, plural
from stoix_like.selfplay.events import breaker
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.lines import counts_text
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER


def status_lines(status: dict[str, Any]) -> list[str]:
    """The status as a person reads it."""
    lines = [f"{status['save_dir']}: {'healthy' if status['healthy'] else _unhealthy_text(status)}"]
    lines += [status["error"]] if status["error"] else []
    for loop in status["loops"]:
        lines += _loop_lines(loop)
    if not status["loops"] and not status["error"]:
        is_there = Path(status["save_dir"]).exists()
        lines.append("no loop was started here" if is_there else "there is no such folder")
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
    for kind, one in details.get("hooks", {}).items():
        if one["failed"] or one["passed_over"]:
            counts = f"{one['failed']:,} failed, {one['passed_over']:,} passed over"
            lines.append(f"  command of {kind}: {counts}; last: {one['last_error']}")
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
