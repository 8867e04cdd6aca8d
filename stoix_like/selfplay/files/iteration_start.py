"""What is noted when an iteration begins: who plays, and the settings that it is finished with. Imports no JAX."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError
from stoix_like.runtime.storage.atomic import atomic_write_json
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout

FILE = "iteration.json"
#: {setting: the stage that it leaves out}. They are no leaves of the configuration.
SKIPPED = {"skip_selfplay": "selfplay", "skip_evaluation": "evaluate"}
WINDOW = "data_path"  # another one: the hash of a window from elsewhere
#: Leaves that `--resume` takes over too, and that may differ in an unfinished iteration.
RESUMABLE_LEAVES = ("selfplay_model", "sync_from", "min_samples", "verify_evidence")


class SelfPlayer(NamedTuple):
    """Who plays in an iteration, noted when it begins: the champion may change before it is over."""

    hash: str
    parameters: str | None  # the file, below the folder of the game; None of an engine


class IterationStart(NamedTuple):
    """What an iteration was begun with."""

    player: SelfPlayer
    settings: dict[str, Any]  # {leaf: value}, what is skipped, and the window from elsewhere: with others it is refused
    kept: Mapping[str, Any] = {}  # {leaf: value} of `RESUMABLE_LEAVES`
    exploration_boost: float = 1.0  # a factor on the noise and the temperature of its self-play

    @property
    def stages(self) -> list[str]:
        """The names of the stages that it has, without those that it skips."""
        skipped = {stage for setting, stage in SKIPPED.items() if self.settings[setting]}
        if self.settings[WINDOW] is not None:
            skipped |= {"selfplay", "sync"}
        return [name for name in STAGE_NAMES if name not in skipped]

    @property
    def leaves(self) -> dict[str, Any]:
        """All of it that are leaves of the configuration."""
        return {name: value for name, value in self.settings.items() if name not in (*SKIPPED, WINDOW)} | {**self.kept}


def read_start(layout: Layout, number: int) -> IterationStart | None:
    """What an iteration was begun with; None if it was not. Raises CheckpointError if the file cannot be read."""
    path = layout.iteration(number) / FILE
    if not path.is_file():
        return None
    try:
        return _start_of(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read", "use --new-iteration to begin the next one") from error


def _start_of(found: Any) -> IterationStart:
    """What a file says. Raises ValueError, KeyError, TypeError or AttributeError if that is no start."""
    player, settings, kept = SelfPlayer(**found["player"]), dict(found["settings"]), dict(found.get("kept", {}))
    if not (isinstance(player.hash, str) and isinstance(player.parameters, str | None)):
        raise TypeError("a player is a text")
    if missing := {*SKIPPED, WINDOW} - settings.keys():
        raise KeyError(*missing)
    if "min_samples" in kept and type(kept["min_samples"]) is not int:
        raise TypeError("min_samples is a number")
    return IterationStart(player, settings, kept, float(found.get("exploration_boost", 1.0)))


def write_start(layout: Layout, number: int, start: IterationStart) -> None:
    """Notes that an iteration begins."""
    path = layout.iteration(number) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, start._asdict() | {"player": start.player._asdict(), "kept": dict(start.kept)})
