"""Iterations one after the other, in one process, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stoix_like.config.selfplay_section import SelfPlayConfig
from stoix_like.errors import INTERRUPTED
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.console.text import aligned
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.training.stopping import stopping_on_signals
from stoix_like.selfplay.folders import STAGES, Layout
from stoix_like.selfplay.iteration import IterationOptions, IterationReport, next_iteration, run_iteration
from stoix_like.selfplay.pipeline import Pipeline
from stoix_like.selfplay.progress import Interrupted


class LoopOptions(NamedTuple):
    """What a call of the command does.

    Attributes:
        iteration: of each iteration.
        max_iterations: how many are finished.
        dry_run: only say what would be done.
        argv: the command line, without what begins another iteration: typed again, it goes on.
    """

    iteration: IterationOptions = IterationOptions()
    max_iterations: int = 1
    dry_run: bool = False
    argv: tuple[str, ...] = ()


def run(config: SelfPlayConfig, options: LoopOptions, reporter: Reporter) -> int:
    """Runs the iterations; returns the exit code. Raises StoixError as `run_iteration`."""
    with stopping_on_signals() as stop:
        pipeline = Pipeline(config, reporter, stop)
        if options.dry_run:
            for line in plan_lines(pipeline.layout, options):
                reporter.info(line)
            return 0
        each = options.iteration
        for _ in range(options.max_iterations):
            try:
                report = run_iteration(pipeline, each)
            except Interrupted:
                reporter.info(f"interrupted; what is finished is kept\nnext: {_next_command(options)}")
                return INTERRUPTED
            for line in report_lines(pipeline, report):
                reporter.info(line)
            each = each._replace(new_iteration=False)
        reporter.info(f"next: {_next_command(options)}")
        return 0


def _next_command(options: LoopOptions) -> str:
    return command_line("run-training-loop", *options.argv)


def plan_lines(layout: Layout, options: LoopOptions) -> Iterator[str]:
    """What a call would do, a line for each stage of its first iteration. Writes nothing."""
    number = next_iteration(layout, new=options.iteration.new_iteration)
    yield f"iteration {number} in {layout.root}"
    skipped = {"selfplay": options.iteration.skip_selfplay or options.iteration.data_path is not None}
    skipped |= {"sync": options.iteration.data_path is not None, "evaluate": options.iteration.skip_evaluation}
    for name in STAGES:
        is_done = read_manifest(layout.stage(number, name)) is not None
        yield f"  {name}: " + ("skipped" if skipped.get(name) else "done" if is_done else "to do")
    if options.max_iterations > 1:
        yield f"then {options.max_iterations - 1} more"


def report_lines(pipeline: Pipeline, report: IterationReport) -> list[str]:
    """The closing table of an iteration."""
    rows = [[f"iteration {report.iteration}", f"{report.seconds:.1f} s, {pipeline.layout.iteration(report.iteration)}"]]
    if report.played is not None:
        facts = report.played.facts
        rate = facts["games"] / max(report.played.recorded["seconds"], 1e-3)
        text = f"{facts['games']:,} games, {rate:,.0f}/s, {facts['positions']:,} positions"
        text += f", {facts['mean_plies']:.1f} plies a game"
        rows.append(
            ["selfplay", f"{text}, {facts['draw_rate']:.0%} drawn, first player {facts['first_player_score']:.3f}"]
        )
    if report.synced is not None:
        facts = report.synced.facts
        done = report.synced.recorded
        text = f"{facts['games']:,} games in {facts['shards']:,} shards, {done['new_shards']:,} new"
        rows.append(["store", text + (f", {len(done['refused'])} refused" if done["refused"] else "")])
    facts = report.exported.facts
    rows.append(["window", f"{facts['positions']:,} positions, and {facts['validation_positions']:,} to validate on"])
    rows.append(["train", _train_text(report)])
    if report.evaluated is not None:
        rows.append(["evaluate", _match_text(report)])
    facts = report.promoted.facts
    verdict = "promoted" if facts["promoted"] else f"{facts['verdict']}, the champion of iteration"
    verdict += "" if facts["promoted"] else f" {facts['champion_iteration']} stays"
    rows.append(["decision", f"{verdict}: {'; '.join(facts['reasons'])}"])
    return aligned([*rows, ["time", _time_text(report)]])


def _time_text(report: IterationReport) -> str:
    """Seconds of each stage, and the share of the evaluation."""
    manifests = report.played, report.synced, report.exported, report.trained, report.evaluated, report.promoted
    seconds = {one.stage: float(one.recorded["seconds"]) for one in manifests if one is not None}
    share = seconds.get("evaluate", 0.0) / max(sum(seconds.values()), 1e-9)
    return ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()) + f"; {share:.0%} to evaluate"


def _train_text(report: IterationReport) -> str:
    facts = report.trained.facts
    text = f"{facts['gradient_steps']:,} gradient steps, {facts['samples']:,} samples"
    losses = report.trained.recorded
    if "policy_loss" in losses:
        text += f", policy loss {losses['policy_loss']:.3f}, value loss {losses['value_loss']:.3f}"
    if "validation_policy_loss" in facts:
        text += f"; on validation games {facts['validation_policy_loss']:.3f} and {facts['validation_value_loss']:.3f}"
    return f"{text}, candidate {facts['candidate'][:12]}"


def _match_text(report: IterationReport) -> str:
    assert report.evaluated is not None  # narrows the type
    facts = report.evaluated.facts
    if "score" not in facts:
        return "no games were played"
    point, low, high = facts["score"]
    text = f"{point:.3f} [{low:.3f}, {high:.3f}] against the champion, {facts['games']:,} games"
    anchors = [f"{found['score'][0]:.3f} against {name}" for name, found in facts["anchors"].items()]
    return ", ".join([text, *anchors])
