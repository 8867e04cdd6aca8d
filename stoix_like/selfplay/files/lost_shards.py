"""The shards of the store that were damaged and could not be had again. Imports no JAX.

Windows are made without them, so their names are an input of the stage `export`. The file may be removed: a shard that
is still missing is found again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.signed_json import SignedJsonError, read_signed, signed_text
from stoix_like.selfplay.files.folders import Layout


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
        return {name: LostShard(*fields) for name, fields in read_signed(layout.lost).items()}
    except (SignedJsonError, TypeError):
        return {}


def add_lost(layout: Layout, path: Path, iteration: int, games: int, positions: int, reason: str) -> None:
    """Notes that a shard is lost."""
    found = read_lost(layout) | {path.stem: LostShard(iteration, games, positions, reason, round(time.time(), 3))}
    atomic_write_text(layout.lost, signed_text({name: list(found[name]) for name in sorted(found)}))


def totals(layout: Layout) -> dict[str, int]:
    """How much is lost, for `--status`."""
    found = read_lost(layout).values()
    return {
        "shards": len(found),
        "games": sum(shard.games for shard in found),
        "positions": sum(shard.positions for shard in found),
    }
