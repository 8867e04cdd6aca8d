"""What loops print: a line for each iteration, and how far the present stage is. Imports no JAX."""

from __future__ import annotations

from stoix_like.errors import INTERRUPTED, RunError
from stoix_like.runtime.console.reporter import Reporter, lossy
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.console.text import interval_text, plural
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.watch.presence import is_supervised
from stoix_like.selfplay.watch.stats import LoopStats


class LatestProgress:
    """Keeps the last line of progress, which the heartbeat shows, and hands it on. An empty line ends it."""

    def __init__(self, reporter: Reporter) -> None:
        self.line, self._show = "", reporter.progress
        self.reporter = reporter._replace(progress=self._receive)

    def _receive(self, line: str) -> None:
        self.line = line
        if line:
            self._show(line)


def counts_text(finished: int, failed: int) -> str:
    """What a loop has done since it was started."""
    return f"{finished:,} {plural('iteration', finished)} finished, {failed:,} failed"


def conclude(stats: LoopStats, next_command: str, reporter: Reporter) -> int:
    """Reports what a loop has done since it was started, and the command that goes on; returns the exit code."""
    reporter = lossy(reporter)
    counts = counts_text(stats.successful_iterations, stats.failed_iterations)
    reporter.info(counts + ("; ended by a signal or a stop" if stats.interrupted else ""))
    if not is_supervised():  # else the supervisor says what goes on
        reporter.info(f"next: {next_command}")
    if stats.interrupted:
        return INTERRUPTED
    return 0 if stats.successful_iterations > 0 else RunError.exit_code


def held_text(layout: Layout, task_id: str, stage: str) -> str:
    """Why a stage is waited for that does not follow by itself, with the command that runs it, and no other."""
    words = "--board-type", task_id, "--save-dir", str(layout.root.parent), "--resume", "--stage", stage
    return f"it does not follow by itself; this runs it: {command_line('run-training-loop', *words)}"


def iteration_line(layout: Layout) -> str:
    """What the last finished iteration of a game has come to."""
    number = next(one for one in layout.newest_first() if read_manifest(layout.stage(one, "promote")))
    manifests = files_of(layout, number).manifests
    done = {name: manifest for name, manifest in manifests.items() if manifest is not None}
    status = records.status_of(done["promote"])
    if status == "promoted" and done["promote"].settings["promotion_rule"] == "non_inferior":
        status = "promoted, as not weaker"
    parts = [f"{layout.root.name} iteration {number}: {status}"]
    if "evaluate" in done and "score" in done["evaluate"].facts:
        point, low, high = done["evaluate"].facts["score"]
        games = f"{done['evaluate'].facts['games']:,} games"
        parts.append(f"{point:.3f} {interval_text(low, high, '.3f')} against the champion over {games}")
    if "selfplay" in done:
        parts.append(f"{done['selfplay'].facts['games']:,} games played")
    seconds = sum(float(manifest.recorded["seconds"]) for manifest in done.values())
    return ", ".join([*parts, f"{seconds:.1f} s"])
