"""The output of a run on the terminal: banner, compilation, progress, closing lines. The only module that imports rich.

A terminal shows a live view. A pipe, a log file or `progress: false` gets one plain line per report, without escape
codes. If the reader goes away the display ends, and training continues (a lost connection also sends SIGHUP, which
stops the run after a checkpoint: see `stopping`). Logs and errors are not printed here.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from stoix_like.runtime.console.streams import SafeStream, is_terminal
from stoix_like.runtime.console.text import duration_text
from stoix_like.runtime.telemetry.sink import Report, RunMeta
from stoix_like.runtime.telemetry.summary import FILLING, GAP, SHOWN_APART, RunSummary, parse_labels

LABELS_VARIABLE = "STOIX_LIKE_METRIC_LABELS"


class TerminalView:
    """A sink that prints metrics, with methods for the other lines: `banner`, `compiling`, `warning`, `done`, ….

    Args:
        progress: False = plain lines even on a terminal.
        stream: None = standard output.
        environ: holds NO_COLOR and the labels; None = the environment of the process.
    """

    def __init__(
        self, progress: bool = True, stream: TextIO | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        environ = os.environ if environ is None else environ
        self._stream = SafeStream(sys.stdout if stream is None else stream)
        self.console = Console(
            file=self._stream,  # type: ignore[arg-type]  # rich calls write, flush, isatty, fileno and encoding only
            force_terminal=self._stream.isatty(),  # FORCE_COLOR must not put escape codes into a log file
            force_jupyter=False,
            force_interactive=self._stream.isatty(),
            no_color="NO_COLOR" in environ,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.is_live = progress and self._stream.isatty() and not self.console.is_dumb_terminal
        self._labels, problems = parse_labels(environ.get(LABELS_VARIABLE, ""))
        self._summary: RunSummary | None = None
        self._run_dir = Path()
        self._live: Live | None = None
        self._line_is_open = False
        for problem in problems:
            self.warning(f"{LABELS_VARIABLE}: {problem}")

    def banner(self, run_dir: Path, meta: RunMeta) -> None:
        """Prints three lines: the run and its device, its folder, and its number of steps."""
        first, last, every = meta.seeds[0], meta.seeds[-1], meta.config.evaluation.eval_interval
        seeds = f"seed {first}" if first == last else f"seeds {first}–{last}"
        jax_version = meta.versions.get("jax")
        device = f"{meta.device} (jax {jax_version})" if jax_version else meta.device
        name = f"stoix_like {meta.versions.get('stoix_like', '')}".rstrip()
        self._print(GAP.join((name, meta.title, meta.task_id, device, seeds)), style="bold")
        self._print(f"run  {run_dir}")
        num_envs, length = meta.config.environment.num_envs, meta.config.training_core.rollout_length
        reads_rows = hasattr(meta.config, "fine_tune")  # and has no environments
        of_update = f"{meta.steps_per_update:,} rows" if reads_rows else f"{num_envs:,} envs × {length:,} steps"
        plan = f"{of_update} × {meta.num_updates:,} updates"
        total = f"{meta.steps_per_update * meta.num_updates:,} steps"
        each = "" if first == last else f" for each of {len(meta.seeds)} seeds"
        when = f"every {every:,} updates" if 0 < every < meta.num_updates else "at the end"
        resumed = "" if meta.resumed_update is None else f"{GAP}resumed after update {meta.resumed_update:,}"
        self._print(f"plan {plan} = {total}{each}{GAP}evaluation {when}{resumed}")

    def note(self, text: str) -> None:
        """Prints a `note:` line: information that needs no action."""
        self._print(text if text.startswith("note: ") else f"note: {text}")

    def lines(self, lines: Sequence[str]) -> None:
        """Prints lines below everything shown so far, and ends the live view."""
        self.close()
        for line in lines:
            self._print(line)

    def compiling(self) -> None:
        """Prints that compilation has started; `compiled` completes the line."""
        self._print("compiling … ", end="")
        self._line_is_open = True

    def compiled(self, seconds: float) -> None:
        """Completes the line of `compiling` with the duration."""
        prefix = "" if self._line_is_open else "compiled in "
        self._line_is_open = False
        self._print(f"{prefix}{seconds:.1f} s")

    def warning(self, text: str) -> None:
        """Prints a `warning:` line on standard error, above the live view if both share the terminal."""
        self._end_line()
        if self._live is not None and is_terminal(sys.stderr):
            self._print(f"warning: {text}", style="yellow")
            return
        stream = SafeStream(sys.stderr)
        stream.write(f"warning: {text}\n")
        stream.flush()

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Prepares the view. It is shown with the first metrics, after banner and compilation."""
        self._run_dir = run_dir
        self._summary = RunSummary(meta, self._labels)

    def write(self, reports: Sequence[Report]) -> None:
        """Prints one plain line, or updates the live view. Events are not shown."""
        shown = [report for report in reports if any(not key.startswith("misc/") for key in report.values)]
        if self._summary is None or not shown or self._stream.is_lost:
            return
        self._summary.add(shown)
        if not self.is_live:
            is_training = any(key.startswith("actor/") for report in shown for key in report.values)
            self._print(self._summary.plain_line(is_training=is_training))
            return
        if self._live is None:
            self._end_line()
            # stderr is redirected above the live view only if it is a terminal.
            self._live = Live(console=self.console, refresh_per_second=4, redirect_stderr=is_terminal(sys.stderr))
            self._live.start()
        self._live.update(self._live_view(self._summary), refresh=True)

    def close(self) -> None:
        """Ends the live view; its last state stays visible. Safe to call twice."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._end_line()

    def done(self, timesteps: int, seconds: float, commands: Sequence[str] = (), ended: str = "done") -> None:
        """Prints the closing line: how the run ended, environment steps of all seeds, time, last evaluation and folder.

        The next commands follow, ready to be typed.
        """
        self.close()
        took = f"{seconds:.0f} s" if seconds < 60 else duration_text(seconds)
        parts = [f"{ended} {timesteps:,} steps in {took}"]
        if self._summary is not None:
            parts += [f"evaluation {text}" for text in self._summary.named("evaluator", ["mean_return"])]
        self._print(GAP.join([*parts, f"run {self._run_dir}"]), style="bold")
        for index, command in enumerate(commands):
            self._print(f"{'next:' if index == 0 else '     '} {command}")

    def _live_view(self, summary: RunSummary) -> Group:
        rate = f"{summary.steps_per_second:,.0f}" if math.isfinite(summary.steps_per_second) else "–"
        left = "–" if summary.seconds_left is None else duration_text(summary.seconds_left)
        bar = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(f"{rate} {summary.label('steps_per_second')}"),
            TextColumn(f"{left} left", style="cyan"),
            console=self.console,
        )
        title = f"{summary.meta.title}{GAP}{summary.meta.task_id}"
        bar.add_task(title, total=summary.meta.num_updates, completed=summary.update)
        table = Table.grid(padding=(0, 2))
        rows = {
            "trainer": [FILLING] if summary.is_filling else summary.named("trainer", summary.of("trainer")),
            "actor": summary.essential("actor"),
        }
        if summary.of("evaluator"):
            rows["evaluator"] = [summary.score_text(), *summary.essential("evaluator", *SHOWN_APART)]
        for category, texts in rows.items():
            table.add_row(Text(f" {category}", style="dim"), "  ".join(texts))
        return Group(bar, table)

    def _end_line(self) -> None:
        if self._line_is_open:
            self._line_is_open = False
            self._print("")

    def _print(self, text: str, style: str | None = None, end: str = "\n") -> None:
        if end == "\n" and self._line_is_open:
            self._end_line()
        self.console.print(text, style=style, end=end, soft_wrap=True)  # a long line on a pipe stays one line
