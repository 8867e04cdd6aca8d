"""The output of a run on the terminal: banner, compilation, progress, closing lines. The only module that imports rich.

A terminal shows a live view. A pipe, a log file or `progress: false` gets one plain line per report, without escape
codes. If the reader goes away the display ends, and training continues (a lost connection also sends SIGHUP, which
stops the run after a checkpoint: see `stopping`). Logs and errors are not printed here.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from stoix_like.runtime.console.text import duration_text, number_text
from stoix_like.runtime.telemetry.sink import Row, RunMeta
from stoix_like.runtime.telemetry.summary import RunSummary, labelled, parse_labels

LABELS_VARIABLE = "STOIX_LIKE_METRIC_LABELS"
_PLAIN_TRAINER = ("policy_loss", "entropy")  # the TRAINER values of a plain line; metrics.jsonl holds all
FILLING = "filling the replay"  # shown instead of losses
_GAP = " · "


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
        self._stream = _SafeStream(sys.stdout if stream is None else stream)
        is_terminal = self._stream.isatty()
        self.console = Console(
            file=self._stream,  # type: ignore[arg-type]  # rich calls write, flush, isatty, fileno and encoding only
            force_terminal=is_terminal,  # FORCE_COLOR must not put escape codes into a log file
            force_jupyter=False,
            force_interactive=is_terminal,
            no_color="NO_COLOR" in environ,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.is_live = progress and is_terminal and not self.console.is_dumb_terminal
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
        self._print(_GAP.join((name, meta.algorithm, meta.task_id, device, seeds)), style="bold")
        self._print(f"run  {run_dir}")
        num_envs, length = meta.config.environment.num_envs, meta.config.training_core.rollout_length
        plan = f"{num_envs:,} envs × {length:,} steps × {meta.num_updates:,} updates"
        total = f"{meta.steps_per_update * meta.num_updates:,} steps"
        each = "" if first == last else f" for each of {len(meta.seeds)} seeds"
        when = f"every {every:,} updates" if 0 < every < meta.num_updates else "at the end"
        resumed = "" if meta.resumed_update is None else f"{_GAP}resumed after update {meta.resumed_update:,}"
        self._print(f"plan {plan} = {total}{each}{_GAP}evaluation {when}{resumed}")

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
        if self._live is not None and _is_terminal(sys.stderr):
            self._print(f"warning: {text}", style="yellow")
            return
        stream = _SafeStream(sys.stderr)
        stream.write(f"warning: {text}\n")
        stream.flush()

    def open(self, run_dir: Path, meta: RunMeta) -> None:
        """Prepares the view. It is shown with the first metrics, after banner and compilation."""
        self._run_dir = run_dir
        self._summary = RunSummary(meta)

    def write(self, rows: Sequence[Row]) -> None:
        """Prints one plain line, or updates the live view. MISC rows are not shown."""
        shown = [row for row in rows if row.category != "MISC"]
        if self._summary is None or not shown or self._stream.is_lost:
            return
        self._summary.add(shown)
        if not self.is_live:
            self._print(self._plain_line(self._summary, {row.category for row in shown}))
            return
        if self._live is None:
            self._end_line()
            # stderr is redirected above the live view only if it is a terminal.
            self._live = Live(console=self.console, refresh_per_second=4, redirect_stderr=_is_terminal(sys.stderr))
            self._live.start()
        self._live.update(self._live_view(self._summary), refresh=True)

    def close(self) -> None:
        """Ends the live view; its last state stays visible. Safe to call twice."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._end_line()

    def done(self, timesteps: int, seconds: float, commands: Sequence[str] = (), stopped_at: int | None = None) -> None:
        """Prints the closing lines: steps, time, last evaluation and run folder, then the next commands.

        Args:
            timesteps: environment steps of all seeds.
            seconds: wall-clock time of the run.
            commands: one per line, ready to be typed.
            stopped_at: the update after which the run was interrupted, or None if it was not.
        """
        self.close()
        evaluation = self._summary.evaluation.get("mean_return") if self._summary else None
        took = f"{seconds:.0f} s" if seconds < 60 else duration_text(seconds)
        ended = "done" if stopped_at is None else f"interrupted after update {stopped_at:,}, saved:"
        parts = [f"{ended} {timesteps:,} steps in {took}"]
        parts += [] if evaluation is None else [f"evaluation {self._label('mean_return')} {number_text(evaluation)}"]
        self._print(_GAP.join([*parts, f"run {self._run_dir}"]), style="bold")
        for index, command in enumerate(commands):
            self._print(f"{'next:' if index == 0 else '     '} {command}")

    def _label(self, name: str) -> str:
        return self._labels.get(name, "steps/s" if name == "steps_per_second" else name)

    def _named(self, values: Mapping[str, float], names: Iterable[str]) -> list[str]:
        return labelled(values, names, self._labels)

    def _score_text(self, summary: RunSummary) -> str:
        """`mean_return 0.83 (best 0.86 @ 110)`, plus `network alone 0.81` if the policy searches.

        Empty before the first evaluation.
        """
        best = [f"(best {number_text(summary.best[0])} @ {summary.best[1]:,})"] if summary.best else []
        score = self._named(summary.evaluation, ("mean_return",))
        network = summary.network_evaluation.get("mean_return")
        alone = [] if network is None else [f"network alone {number_text(network)}"]
        return _GAP.join([" ".join([*score, *best]), *alone]) if score else ""

    def _plain_line(self, summary: RunSummary, categories: set[str]) -> str:
        parts = [f"update {summary.update:,}/{summary.meta.num_updates:,}"]
        if categories != {"EVALUATOR"}:
            if math.isfinite(summary.steps_per_second):
                parts.append(f"{summary.steps_per_second:,.0f} {self._label('steps_per_second')}")
            parts += self._named(summary.actor, ("mean_return",))
            parts += [FILLING] if summary.is_filling else self._named(summary.trainer, _PLAIN_TRAINER)
        if score := self._score_text(summary):
            parts.append(f"eval {score}")
        if (left := summary.seconds_left) is not None:
            parts.append(f"{duration_text(left)} left")
        return _GAP.join(parts)

    def _live_view(self, summary: RunSummary) -> Group:
        rate = f"{summary.steps_per_second:,.0f}" if math.isfinite(summary.steps_per_second) else "–"
        left = "–" if summary.seconds_left is None else duration_text(summary.seconds_left)
        bar = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(f"{rate} {self._label('steps_per_second')}"),
            TextColumn(f"{left} left", style="cyan"),
            console=self.console,
        )
        title = f"{summary.meta.algorithm}{_GAP}{summary.meta.task_id}"
        bar.add_task(title, total=summary.meta.num_updates, completed=summary.update)
        table = Table.grid(padding=(0, 2))
        learned = [FILLING] if summary.is_filling else self._named(summary.trainer, summary.trainer)
        table.add_row(Text(" trainer", style="dim"), "  ".join(learned))
        table.add_row(Text(" actor", style="dim"), "  ".join(self._named(summary.actor, _shown_names(summary.actor))))
        if summary.evaluation:
            names = [name for name in _shown_names(summary.evaluation) if name not in ("mean_return", "episodes")]
            shown = [self._score_text(summary), *self._named(summary.evaluation, names)]
            table.add_row(Text(" evaluator", style="dim"), "  ".join(shown))
        return Group(bar, table)

    def _end_line(self) -> None:
        if self._line_is_open:
            self._line_is_open = False
            self._print("")

    def _print(self, text: str, style: str | None = None, end: str = "\n") -> None:
        if end == "\n" and self._line_is_open:
            self._end_line()
        self.console.print(text, style=style, end=end, soft_wrap=True)  # a long line on a pipe stays one line


def _shown_names(names: Iterable[str]) -> list[str]:
    """The names that fit into a line: extremes, times and what stops a run are left to metrics.jsonl."""
    hidden = ("steps_per_second", "duration_ms")
    return [
        n for n in names if n not in hidden and not n.startswith(("max_", "min_")) and not n.endswith(("_max", "_min"))
    ]


class _SafeStream:
    """A text stream whose writes never fail. Once the reader is gone, `is_lost` is True and writes are ignored.

    rich exits the process on a broken pipe, but a training must outlive its terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    @property
    def encoding(self) -> str:
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return _is_terminal(self._stream)

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        if not self.is_lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:  # a terminal without · and –
                self.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError) as error:  # ValueError: the stream is closed
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        if not self.is_lost:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def _lose(self, error: Exception) -> None:
        self.is_lost = True
        if isinstance(error, OSError) and self._stream in (sys.__stdout__, sys.__stderr__):
            # Flushing the buffer at exit would fail again and turn exit code 0 into 120.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
