"""Events from manifests: what a process writes after each stage, and what the next one adds if it was killed before.

Imports no JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.events import history, kinds
from stoix_like.selfplay.events.history import IterationResult, WatchRule
from stoix_like.selfplay.events.kinds import PipelineEvent
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import WINDOW_FILE, Layout
from stoix_like.selfplay.files.manifests import began_at, end_of, num_batches
from stoix_like.selfplay.iterations.table import files_of


def pipeline_run(layout: Layout) -> str:
    """What tells a pipeline from another one of the same game: of the parameters that it began with."""
    return records.promoted_record(layout, 0).hash[:12]


def events_of(layout: Layout, number: int, rule: WatchRule, known: history.Known | None = None) -> list[PipelineEvent]:
    """All events of the manifests of an iteration, in the order of the stages.

    Results of iterations that are `known` are not read again; this one's is added to them.
    """
    results: history.Known = {} if known is None else known
    files = files_of(layout, number)
    manifests = files.manifests
    results[number] = history.result_of(number, manifests)
    trained = manifests["train"]
    candidate = None if trained is None else str(trained.facts["candidate"])
    base = {"game": layout.root.name, "iteration": number, "run": pipeline_run(layout)}
    events = list[PipelineEvent]()
    for name, manifest in manifests.items():
        if manifest is not None:
            fields = base | {"candidate": candidate if name in ("train", "evaluate", "promote") else None}
            events += _of_stage(layout, name, manifest, manifests, fields)
    if files.is_finished:
        recent = list(itertools.islice(history.results(layout, number, results), rule.memory))
        events += _of_iteration(recent, manifests, base | {"candidate": candidate}, rule)
    return events


def training_started(layout: Layout, number: int, time: float) -> kinds.TrainingStarted:
    """The one event that is emitted before its manifest is written."""
    exported = read_manifest(layout.stage(number, "export"))
    window = "" if exported is None else exported.outputs[WINDOW_FILE]
    run = pipeline_run(layout)
    return kinds.TrainingStarted(game=layout.root.name, iteration=number, run=run, time=time, window=window)


def _of_stage(
    layout: Layout, name: str, manifest: Manifest, manifests: dict[str, Manifest | None], base: dict[str, Any]
) -> Iterator[PipelineEvent]:
    facts, fields = manifest.facts, base | {"time": end_of(manifest)}
    if name == "selfplay":
        fields |= {"part": num_batches(manifest), "player": manifest.inputs["player"]}
        yield kinds.SelfplayComplete(**fields, games=facts["games"], positions=facts["positions"])
    elif name == "sync" and _is_of(manifest, manifests["selfplay"]):  # else more was played since
        fields["part"] = num_batches(manifests["selfplay"]) + int(manifest.inputs.get("round", 0))
        totals = {key: facts[key] for key in ("games", "positions")}
        yield kinds.DataSyncCompleted(**fields, **totals, new_shards=manifest.recorded["new_shards"])
    elif name == "export":
        yield kinds.NpzExportComplete(
            **fields, **{key: facts[key] for key in ("games", "positions", "validation_positions")}
        )
    elif name == "train":
        yield training_started(layout, base["iteration"], began_at(manifest))
        numbers = {key: facts[key] for key in ("update", "gradient_steps", "new_positions")}
        yield kinds.TrainingCompleted(**fields, **numbers)
    elif name == "evaluate":
        score, low, high = facts.get("score", (None, None, None))
        anchors = {engine: one["score"][0] for engine, one in facts["anchors"].items()}
        match = {"score": score, "low": low, "high": high, "anchors": anchors}
        yield kinds.EvaluationCompleted(**fields, **match, champion=manifest.inputs["champion"], games=facts["games"])
    elif name == "promote" and facts["promoted"]:
        before = {"previous": facts["champion"], "previous_iteration": facts["champion_iteration"]}
        yield kinds.ModelPromoted(**fields, **before, reasons=facts["reasons"])
    elif name == "promote":
        status = records.status_of(manifest)
        yield kinds.PromotionRejected(**fields, champion=facts["champion"], status=status, reasons=facts["reasons"])


def _is_of(synced: Manifest, played: Manifest | None) -> bool:
    """Whether a stage `sync` was of the games that are there now. Older manifests do not say."""
    digest = "" if played is None else played.digest
    return synced.inputs.get("selfplay", digest) == digest


def _of_iteration(
    recent: list[IterationResult], manifests: dict[str, Manifest | None], base: dict[str, Any], rule: WatchRule
) -> Iterator[PipelineEvent]:
    done = [manifest for manifest in manifests.values() if manifest is not None]
    fields = base | {"time": end_of(done[-1])}
    drop, drop_before = (history.regression(rows, rule) for rows in (recent, recent[1:]))
    if drop is not None and history.begins(recent, drop, drop_before, rule.regression_iterations):
        yield kinds.RegressionDetected(**fields, drop=drop, iterations=rule.regression_iterations)
    gain, gain_before = (history.plateau(rows, rule) for rows in (recent, recent[1:]))
    if gain is not None and history.begins(recent, gain, gain_before, rule.plateau_iterations):
        yield kinds.PlateauDetected(**fields, gain=gain, iterations=rule.plateau_iterations)
    seconds = sum(float(manifest.recorded["seconds"]) for manifest in done)
    yield kinds.IterationComplete(**fields, promoted=bool(done[-1].facts["promoted"]), seconds=seconds)


def derive_missing(log: EventLog, layout: Layout, rule: WatchRule) -> list[PipelineEvent]:
    """The events that the log lacks, which it has now: of all iterations since the last one that it knows as finished.

    Called when a loop takes a game up; events are added after each stage, so what is missing is what a killed process
    did not write, or what another command has done meanwhile.
    """
    if not layout.champion.is_file():
        return []
    numbers = list[int]()
    for number in layout.newest_first():
        if log.count(layout.root.name, number, kinds.IterationComplete.kind):
            break
        numbers.append(number)
    known: history.Known = {}  # so that each manifest is read once, however many iterations the log lacks
    events = list[PipelineEvent]()
    for number in reversed(numbers):
        events += events_of(layout, number, rule, known)
    return log.append(events)
