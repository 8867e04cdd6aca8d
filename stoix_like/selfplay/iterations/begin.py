"""Begins an iteration: notes who plays and with which settings, after all that could refuse it.

A process that goes on with an iteration must have the same settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.config.checks.selfplay import NETWORK_ENGINE
from stoix_like.errors import RunError
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.hardware.state_size import require_memory
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.stages.run import refuse_changed_settings
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.runtime.telemetry.selected_sinks import sinks_from_config
from stoix_like.selfplay.files import manifests, records
from stoix_like.selfplay.files.folders import LOCK, PARAMETERS, Layout
from stoix_like.selfplay.files.iteration_start import (
    RESUMABLE_LEAVES,
    SKIPPED,
    WINDOW,
    IterationStart,
    SelfPlayer,
    read_start,
    write_start,
)
from stoix_like.selfplay.iterations import table
from stoix_like.selfplay.pipeline.candidates import begin_lineage, has_champion, read_champion
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import export, sync, train


class IterationOptions(NamedTuple):
    """What a call does differently.

    Attributes:
        skip_selfplay: learn from what the store has.
        skip_evaluation: play no match; nothing is then promoted.
        data_path: a window from elsewhere, instead of the store's.
        new_iteration: leave an unfinished iteration as it is, and begin the next one.
        exploration_boost: factor on the noise and the temperature of self-play, asked when an iteration is begun.
    """

    skip_selfplay: bool = False
    skip_evaluation: bool = False
    data_path: Path | None = None
    new_iteration: bool = False
    exploration_boost: Callable[[Layout], float] = lambda _: 1.0


NORMAL = IterationOptions()


def next_iteration(layout: Layout, *, new: bool = False) -> int:
    """The iteration that a call works on: the last one while it is unfinished, unless a new one is asked for."""
    if (last := layout.last_iteration()) == 0:
        return 1
    is_done = read_manifest(layout.stage(last, "promote")) is not None
    return last + (is_done or new)


@contextmanager
def work_lock(layout: Layout) -> Iterator[None]:
    """The lock of a game, while a stage runs. Raises RunError if another process holds it."""
    status = command_line("master-loop", "--status", "--save-dir", str(layout.root.parent))
    lock = RunLock(layout.root, LOCK, f"see whether it is a loop: {status}")
    try:
        yield
    finally:
        lock.close()


def begin_iteration(pipeline: Pipeline, options: IterationOptions = NORMAL, last: int | None = None) -> int:
    """The iteration that a call works on, begun if it was not. Raises as `run_iteration`.

    Args:
        pipeline: of the game.
        options: of this call.
        last: the last iteration, as the caller knows it: if it is another one by now, `new_iteration` leaves none.
    """
    layout = pipeline.layout
    last = layout.last_iteration() if last is None else last
    check_iteration(pipeline, options)
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {layout.root}: {error.strerror}", "use another --save-dir") from error
    with work_lock(layout):
        begin_lineage(pipeline)
        is_same = layout.last_iteration() == last  # else another process has begun the next one meanwhile
        number = next_iteration(layout, new=options.new_iteration and is_same)
        _begin(pipeline, number, options)
    return number


def check_iteration(pipeline: Pipeline, options: IterationOptions) -> None:
    """Refuses what an iteration could not be finished with, before it is begun. Writes nothing.

    Another process may change the folder before the iteration begins; each stage checks what it reads. Raises as
    `run_iteration`.
    """
    config, layout = pipeline.config, pipeline.layout
    sinks_from_config(config.logging, config.checkpointing.save_dir)
    train.check_fixed_leaves(pipeline)
    require_memory(pipeline.state_template, config)
    if has_champion(layout):
        read_champion(pipeline)
    number = next_iteration(layout, new=options.new_iteration)
    if options.data_path is None:
        has_sources = sync.has_sources(pipeline, number)
        if options.skip_selfplay and not (has_sources or sync.totals_before(layout, number + 1).games):
            raise RunError(
                f"--skip-selfplay: {layout.root} has no games to learn from", "leave it out, or give --sync-from"
            )
    else:
        export.read_window(pipeline, options.data_path)
    if not options.skip_evaluation:
        pipeline.matches.check_book()
    _check_settings(pipeline, number, options)


def _begin(pipeline: Pipeline, number: int, options: IterationOptions) -> None:
    """Notes who plays, and the settings, if the iteration is a new one."""
    if _check_settings(pipeline, number, options) is None:
        player, settings = _who_plays(pipeline, number), _settings_of(pipeline, options)
        start = IterationStart(
            player, settings, pipeline.leaves(RESUMABLE_LEAVES), options.exploration_boost(pipeline.layout)
        )
        write_start(pipeline.layout, number, start)


def _check_settings(pipeline: Pipeline, number: int, options: IterationOptions) -> IterationStart | None:
    """What an iteration was begun with; None if it was not. Raises ConfigError if its settings were others."""
    if (begun := read_start(pipeline.layout, number)) is not None:
        hint = "use the former values, or --new-iteration to begin the next one with these"
        refuse_changed_settings(f"iteration {number}", begun.settings, _settings_of(pipeline, options), hint)
    return begun


def _settings_of(pipeline: Pipeline, options: IterationOptions) -> dict[str, Any]:
    window = None if options.data_path is None else array_hash(read_arrays(options.data_path))
    skipped = {name: getattr(options, name) for name in SKIPPED}
    return pipeline.leaves(table.SETTINGS) | skipped | {WINDOW: window}


def _who_plays(pipeline: Pipeline, number: int) -> SelfPlayer:
    """The champion, or the newest candidate; an engine plays by its name alone."""
    section, layout = pipeline.config.selfplay, pipeline.layout
    if section.engine != NETWORK_ENGINE:
        return SelfPlayer(section.engine, None)
    if section.selfplay_model == "latest":
        for before in layout.newest_first(number - 1):
            if (manifest := manifests.manifest_of(layout, before, "train")) is not None:
                place = (layout.stage(before, "train") / PARAMETERS).relative_to(layout.root).as_posix()
                return SelfPlayer(manifest.facts["candidate"], place)
    champion = records.read_record(layout.champion)
    return SelfPlayer(champion.hash, champion.parameters)
