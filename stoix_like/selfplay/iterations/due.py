"""Which stage of an iteration is due: a function of what is on disk. Imports no JAX.

A stage is done if its manifest names what is there now, and its files are there. An iteration whose games are too few,
or too old, plays another batch of them before it learns; so a threshold delays an iteration and never ends it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.stages.table import first_due
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.manifests import end_of, new_positions, num_batches
from stoix_like.selfplay.iterations.table import files_of, stages_of


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
    files = files_of(layout, number)
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


def is_below(layout: Layout, number: int, needs: Needs) -> bool:
    """Whether an iteration, whose stage `sync` is done, has too few games or too old ones to learn from."""
    if new_positions(layout, number) < needs.min_samples:
        return True
    played = read_manifest(layout.stage(number, "selfplay"))
    return played is not None and needs.now - end_of(played) > needs.max_age
