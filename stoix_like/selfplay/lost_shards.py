"""The shards of the store that were damaged and could not be had again. Imports no JAX.

Windows are made without them, so their names are an input of the stage `export`. The file may be removed: a shard that
is still missing is found again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.digests import json_digest, meta_text
from stoix_like.selfplay.folders import Layout


class LostShard(NamedTuple):
    """What is known of a shard that is gone."""

    iteration: int  # that took it in
    games: int
    positions: int
    reason: str
    time: float  # when it was missed, in seconds since 1970


def read_lost(layout: Layout) -> dict[str, LostShard]:
    """{name: shard} of all that are lost; of a file that is damaged itself, none."""
    try:
        stored: dict[str, Any] = json.loads(layout.lost.read_bytes())
        found = {name: LostShard(*fields) for name, fields in stored["body"].items()}
        return found if stored["sha256"] == json_digest(stored["body"]) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def add_lost(layout: Layout, path: Path, iteration: int, games: int, positions: int, reason: str) -> None:
    """Notes that a shard is lost."""
    found = read_lost(layout) | {path.stem: LostShard(iteration, games, positions, reason, round(time.time(), 3))}
    atomic_write_text(layout.lost, meta_text({name: list(found[name]) for name in sorted(found)}))


def totals(layout: Layout) -> dict[str, int]:
    """How much is lost, for `--status`."""
    found = read_lost(layout).values()
    return {
        "shards": len(found),
        "games": sum(shard.games for shard in found),
        "positions": sum(shard.positions for shard in found),
    }
