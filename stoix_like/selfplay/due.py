"""Which stage of an iteration is due: a function of what is on disk. Imports no JAX.

A stage is done if its manifest names what is there now, and its files are there. An iteration whose games are too few,
or too old, plays another batch of them before it learns; so a threshold delays an iteration and never ends it.
"""

from __future__ import annotations

import calendar
import math
import time
from typing import NamedTuple

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.manifest import FILE, Manifest, read_manifest
from stoix_like.runtime.stages.table import first_due
from stoix_like.selfplay.folders import Layout
from stoix_like.selfplay.iteration_start import read_start
from stoix_like.selfplay.table import STAGE_NAMES, IterationFiles, stages_of


class Needs(NamedTuple):
    """What an iteration has to have before it learns.

    Attributes:
        min_samples: positions in the store that no earlier candidate could learn from.
        max_age: of its newest games, in seconds.
        now: the time, in seconds since 1970.
    """

    min_samples: int = 0
    max_age: float = math.inf
    now: float = 0.0


NOTHING = Needs()
WAITING = ("sync", "export", "train")  # stages before which more games may be played


class Step(NamedTuple):
    """A stage that is due. For selfplay, `batches` is how many of them the iteration has when it is done."""

    stage: str
    batches: int = 1


def due_step(layout: Layout, number: int, needs: Needs = NOTHING) -> Step | None:
    """The first stage of a begun iteration that is not done; None if all are.

    Raises CheckpointError if a manifest, the champion or the start of the iteration cannot be read.
    """
    files = IterationFiles(layout, number)
    if files.begun is None:
        return Step("selfplay")
    if files.is_finished or (stage := first_due(stages := stages_of(files.start), files)) is None:
        return None
    batches = num_batches(files.find("selfplay"))
    if stage.name == "export" and stages[0].name == "selfplay" and is_below(layout, number, needs):
        return Step("selfplay", batches + 1)
    return Step(stage.name, batches)


def is_still_due(layout: Layout, number: int, step: Step) -> bool:
    """Whether a step that was due may be run now: asked again under the lock, since another process may have run it.

    A further batch of games may be played until the iteration has learned from what it has.
    """
    now = due_step(layout, number)
    if now is not None and step.stage == "selfplay" and now.stage in WAITING:
        return step.batches == now.batches + 1
    return now is not None and step.stage == now.stage


def manifest_of(layout: Layout, number: int, name: str) -> Manifest | None:
    """The manifest of a stage; None if the stage is not done, or its iteration was begun without it.

    Raises CheckpointError if it is missing though its iteration is finished: what follows would begin elsewhere.
    """
    if (manifest := read_manifest(layout.stage(number, name))) is not None:
        return manifest
    last = layout.stage(number, STAGE_NAMES[-1])
    if read_manifest(last) is None:
        return None
    start = read_start(layout, number)
    if start is not None and name in [stage.name for stage in stages_of(start)]:
        what = f"{layout.stage(number, name) / FILE} is missing, and its iteration is finished"
        raise CheckpointError(what, f"put it back, or remove {last / FILE} as well: the iteration is then unfinished")
    return None


def num_batches(played: Manifest | None) -> int:
    """How many batches of self-play a manifest has; 1 if there is none."""
    return 1 if played is None else int(played.inputs.get("batches", 1))


def is_below(layout: Layout, number: int, needs: Needs) -> bool:
    """Whether an iteration, whose stage `sync` is done, has too few games or too old ones to learn from."""
    if new_positions(layout, number) < needs.min_samples:
        return True
    played = read_manifest(layout.stage(number, "selfplay"))
    return played is not None and needs.now - end_of(played) > needs.max_age


def new_positions(layout: Layout, number: int) -> int:
    """Positions in the store of an iteration that no earlier candidate could learn from; 0 before it is synced."""
    synced = read_manifest(layout.stage(number, "sync"))
    return 0 if synced is None else max(int(synced.facts["positions"]) - learned_positions(layout, number), 0)


def newest_synced(layout: Layout, number: int) -> Manifest | None:
    """The newest manifest of a stage `sync` up to an iteration, which knows what the store has; None without one."""
    found = (manifest_of(layout, before, "sync") for before in layout.newest_first(number))
    return next((manifest for manifest in found if manifest is not None), None)


def learned_positions(layout: Layout, number: int) -> int:
    """Positions that the store had when the latest candidate of earlier iterations was trained; 0 if there is none."""
    for before in layout.newest_first(number - 1):
        exported = manifest_of(layout, before, "export")
        known = None if exported is None else exported.facts.get("store_positions")
        if known is not None and manifest_of(layout, before, "train") is not None:
            return int(known)
    return 0


def end_of(manifest: Manifest) -> float:
    """When a stage ended, in seconds since 1970."""
    return began_at(manifest) + float(manifest.recorded["seconds"])


def began_at(manifest: Manifest) -> float:
    """When a stage began, in seconds since 1970."""
    text = time.strptime(manifest.recorded["began"], "%Y-%m-%dT%H:%M:%SZ")
    return float(manifest.recorded.get("began_at", calendar.timegm(text)))  # older ones have the text alone
