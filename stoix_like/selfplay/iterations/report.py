"""What is shown of a finished iteration."""

from __future__ import annotations

from stoix_like.runtime.console.text import aligned, interval_text, plural
from stoix_like.selfplay.files import records
from stoix_like.selfplay.iterations.steps import (
    IterationReport,
)
from stoix_like.selfplay.pipeline.programs import Pipeline


def report_lines(pipeline: Pipeline, report: IterationReport) -> list[str]:
    """The closing table of an iteration."""
    rows = [[f"iteration {report.iteration}", f"{report.seconds:.1f} s, {pipeline.layout.iteration(report.iteration)}"]]
    if report.played is not None:
        facts = report.played.facts
        played = report.played.recorded
        rate = played.get("games_of_last_process", facts["games"]) / max(played["seconds"], 1e-3)
        text = f"{facts['games']:,} games" + (f", {rate:,.0f}/s" if rate > 0 else "")
        text += f", {facts['positions']:,} positions"
        text += f", {facts['mean_plies']:.1f} plies a game"
        text += f", {facts['truncated']:,} more were cut" if facts.get("truncated") else ""
        rows.append(
            ["selfplay", f"{text}, {facts['draw_rate']:.0%} drawn, first player {facts['first_player_score']:.3f}"]
        )
    if report.synced is not None:
        facts = report.synced.facts
        done = report.synced.recorded
        text = f"{facts['games']:,} games in {facts['shards']:,} {plural('shard', facts['shards'])}"
        text += f", {done['new_shards']:,} new"
        rows.append(["store", text + (f", {len(done['refused'])} refused" if done["refused"] else "")])
    facts = report.exported.facts
    rows.append(["window", f"{facts['positions']:,} positions, and {facts['validation_positions']:,} to validate on"])
    rows.append(["train", _train_text(report)])
    if report.evaluated is not None:
        rows.append(["evaluate", _match_text(report)])
    rows.append(["decision", _decision_text(report)])
    return aligned([*rows, ["time", _time_text(report)]])


def _decision_text(report: IterationReport) -> str:
    facts, status = report.promoted.facts, records.status_of(report.promoted)
    reasons = "; ".join(facts["reasons"])
    if facts["promoted"]:
        return f"{status}: {reasons}"
    return f"{status}, the champion of iteration {facts['champion_iteration']} stays: {reasons}"


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
    text = f"{point:.3f} {interval_text(low, high, '.3f')} against the champion, {facts['games']:,} games"
    anchors = [f"{found['score'][0]:.3f} against {name}" for name, found in facts["anchors"].items()]
    return ", ".join([text, *anchors])
