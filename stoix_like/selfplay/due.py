"""Which stage of an iteration is due: a function of what is on disk. Imports no JAX.

A stage is done if its manifest names what is there now, and its files are there. An iteration whose games are too few,
or too old, plays another batch of them before it learns; so a threshold delays an iteration and never ends it.
"""

from __future__ import annotations

import calendar
import math
import time
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.manifest import FILE, Manifest, read_manifest
from stoix_like.selfplay import records
from stoix_like.selfplay.folders import STAGES, WINDOW_FILE, Layout
from stoix_like.selfplay.iteration_start import SKIPPED, WINDOW, IterationStart, read_start


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
    start = read_start(layout, number)
    if start is None:
        return Step("selfplay")
    found = {name: read_manifest(layout.stage(number, name)) for name in STAGES}
    if is_finished(found):
        return None
    for name in stages_of(start):
        manifest = found[name]
        if _is_done(layout, number, manifest, _inputs(layout, number, name, start, found)):
            continue
        batches = num_batches(found["selfplay"])
        if name == "export" and "selfplay" in stages_of(start) and is_below(layout, number, needs):
            return Step("selfplay", batches + 1)
        return Step(name, batches)
    return None


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
    last = layout.stage(number, STAGES[-1])
    if read_manifest(last) is None:
        return None
    start = read_start(layout, number)
    if start is not None and name in stages_of(start):
        what = f"{layout.stage(number, name) / FILE} is missing, and its iteration is finished"
        raise CheckpointError(what, f"put it back, or remove {last / FILE} as well: the iteration is then unfinished")
    return None


def is_finished(found: dict[str, Manifest | None]) -> bool:
    """Whether an iteration is over, by its manifests: the last stage is done."""
    return found[STAGES[-1]] is not None


def stages_of(start: IterationStart) -> list[str]:
    """The stages of an iteration, without those that it skips."""
    skipped = {name.removeprefix("skip_") for name in SKIPPED if start.settings[name]}
    skipped = {"evaluate" if name == "evaluation" else name for name in skipped}
    if start.settings[WINDOW] is not None:
        skipped |= {"selfplay", "sync"}
    return [name for name in STAGES if name not in skipped]


def _is_done(layout: Layout, number: int, manifest: Manifest | None, inputs: dict[str, Any]) -> bool:
    if manifest is None or any(manifest.inputs.get(name) != value for name, value in inputs.items()):
        return False
    folder = layout.stage(number, manifest.stage)
    return all((folder / name).is_file() for name in manifest.outputs)


def _inputs(
    layout: Layout, number: int, name: str, start: IterationStart, found: dict[str, Manifest | None]
) -> dict[str, Any]:
    """What the manifest of a stage names if it is of what is there now. The stages before it are done."""
    if name == "selfplay":
        return {"player": start.player.hash}
    if name == "sync":
        return {"selfplay": digest_of(found["selfplay"])}
    synced, exported, trained, evaluated = (found[key] for key in ("sync", "export", "train", "evaluate"))
    if name == "export":
        return {"store": synced.facts["store"]} if synced is not None else {"data_path": start.settings[WINDOW]}
    if name == "train":
        return {"window": "" if exported is None else exported.outputs[WINDOW_FILE]}
    if name == "evaluate":
        return {
            "candidate": "" if trained is None else trained.facts["candidate"],
            "champion": opponent(layout, number),
        }
    return {"train": digest_of(trained), "evaluate": digest_of(evaluated)}


def digest_of(manifest: Manifest | None) -> str:
    """The digest of a manifest; empty if there is none."""
    return "" if manifest is None else manifest.digest


def opponent(layout: Layout, number: int) -> str:
    """The hash of whom the candidate of an iteration plays: the champion, before it became champion itself."""
    record = records.read_record(layout.champion)
    if record.iteration == number:  # promoted by a process that was killed before it said so
        record = records.promoted_record(layout, record.previous or 0)
    return record.hash


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
