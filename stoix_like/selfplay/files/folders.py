"""Where the files of a game's pipeline are. Imports no JAX, so that a reader of its state stays light."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stoix_like.errors import CheckpointError

CHAMPION = "champion.json"  # as `runs.find` and `weights.parameters`, which import JAX, call these two
PARAMETERS = "params.safetensors"
ARRAYS = ".npz"
WINDOW_FILE, VALIDATION_FILE = f"window{ARRAYS}", f"validation{ARRAYS}"
_SHARD = "shard_"  # and a number: the files of self-play
#: Of an iteration, in their order, as their folders are called.
STAGE_NAMES = ("selfplay", "sync", "export", "train", "evaluate", "promote")
LOCK = "work.lock"  # held while a stage runs


def shard_file(shard: int) -> str:
    """The name of a shard in the folder of its stage."""
    return f"{_SHARD}{shard:04d}{ARRAYS}"


def shard_number(name: str) -> int:
    """The number of a shard, by the name of its file."""
    return int(name.removeprefix(_SHARD).removesuffix(ARRAYS))


class Layout(NamedTuple):
    """The folder of one game, `<save_dir>/connect_four_2p`."""

    root: Path

    @property
    def store(self) -> Path:
        """All shards, by hash."""
        return self.root / "store"

    def shard(self, name: str) -> Path:
        """The file of a shard in the store."""
        return self.store / f"{name}{ARRAYS}"

    @property
    def quarantine(self) -> Path:
        """Files that were to be taken in and could not."""
        return self.root / "quarantine"

    @property
    def lost(self) -> Path:
        """Which shards of the store are lost."""
        return self.root / "lost.json"

    @property
    def train_run(self) -> Path:
        """The run that trains, over all iterations."""
        return self.root / "train"

    @property
    def champion(self) -> Path:
        """The pointer to the champion."""
        return self.root / CHAMPION

    @property
    def matches(self) -> Path:
        """Games of evaluations, never learned from."""
        return self.root / "matches"

    @property
    def evaluations(self) -> Path:
        """Matches for the report, which decide nothing."""
        return self.root / "evaluations"

    def iteration(self, number: int) -> Path:
        """The folder of an iteration, whose stages have a folder each."""
        return self.root / "iterations" / f"{number:04d}"

    def stage(self, number: int, name: str) -> Path:
        """The folder of a stage of an iteration."""
        return self.iteration(number) / name

    def plateau(self, number: int) -> Path:
        """What was searched when champions no longer gained, at the end of an iteration."""
        return self.root / "plateau" / f"{number:04d}"

    def iterations(self) -> list[int]:
        """The numbers of the iterations that were begun, in order. It lists all of them."""
        return _numbers(self.root / "iterations")

    def last_iteration(self) -> int:
        """The newest iteration that was begun; 0 if there is none.

        It looks at the folders behind the one that it has seen last, however many there are before.
        """
        number = _last_seen.get(self.root)
        if number is None or not self.iteration(number).is_dir():  # nothing was seen yet, or it was removed
            number = max(self.iterations(), default=0)
        while self.iteration(number + 1).is_dir():
            number += 1
        _last_seen[self.root] = number
        return number

    def newest_first(self, last: int | None = None) -> Iterator[int]:
        """The iterations that were begun, from `last` or the newest back to 1."""
        newest = self.last_iteration()
        for number in range(newest if last is None else min(last, newest), 0, -1):
            if self.iteration(number).is_dir():
                yield number

    def plateaus(self) -> list[int]:
        """The numbers of the iterations after which something was searched, in order."""
        return _numbers(self.root / "plateau")


_last_seen: dict[Path, int] = {}  # by the folder of a game: its newest iteration, when it was looked for last


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal() and entry.is_dir())


def is_pipeline(text: str, save_dir: str = "runs") -> bool:
    """Whether a path, or a name under save_dir, is the folder of a self-play pipeline."""
    return any(Layout(folder).champion.is_file() for folder in (Path(text), Path(save_dir) / text))


def find_layout(text: str, save_dir: str = "runs") -> Layout:
    """The pipeline in an existing folder: a path, or a name under save_dir. Raises CheckpointError if there is none."""
    for layout in (Layout(Path(text)), Layout(Path(save_dir) / text)):
        if layout.champion.is_file():
            return layout
    folder = Path(text) if Path(text).is_dir() else Path(text).parent
    found = ", ".join(str(pointer.parent) for pointer in sorted(folder.glob(f"*/{CHAMPION}"))[:5])
    hint = f"there are {found}" if found else "give the one with its champion.json"
    raise CheckpointError(f"{text} is no folder of a self-play pipeline", hint)
