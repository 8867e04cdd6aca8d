"""What the manifests of a pipeline say of its iterations. Imports no JAX."""

from __future__ import annotations

import calendar
import time

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.manifest import FILE, Manifest, read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.iteration_start import read_start


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
    if start is not None and name in start.stages:
        what = f"{layout.stage(number, name) / FILE} is missing, and its iteration is finished"
        raise CheckpointError(what, f"put it back, or remove {last / FILE} as well: the iteration is then unfinished")
    return None


def num_batches(played: Manifest | None) -> int:
    """How many batches of self-play a manifest has; 1 if there is none."""
    return 1 if played is None else int(played.inputs.get("batches", 1))


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
