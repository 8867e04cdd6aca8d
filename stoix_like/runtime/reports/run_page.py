"""The report of one or several runs as a single HTML file, which can be archived or sent.

It contains scores, curves, configuration, versions and history from the run folders, and the animation if `animate.py`
made one. A report of several runs begins with their comparison. `html.py` has the elements of the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.text import DASH, algorithm_title, duration_text, number_text, without_empty_columns
from stoix_like.runtime.figures import comparison as comparison_figures
from stoix_like.runtime.figures import learning_curves
from stoix_like.runtime.figures.style import png_bytes
from stoix_like.runtime.reports import comparison as comparison_tables
from stoix_like.runtime.reports.html import Markup, facts, folded, image, joined, page, table, tag
from stoix_like.runtime.results import curves
from stoix_like.runtime.results.groups import AXES, comparison_groups
from stoix_like.runtime.results.series import RunRecord, Series, read_run
from stoix_like.runtime.results.statistics import compare

_MAX_GIF_BYTES = 3_000_000
#: The metrics that are drawn if a run has them: scores, and diagnostics of learning.
_SCORES = ("mean_return", "solve_rate", "utilisation", "episode_length_mean")
_LEARNING = ("entropy", "explained_variance", "approx_kl", "global_grad_norm", "temperature", "steps_per_second")
_EVENTS = ("start", "resume", "changed", "checkpoint_loaded", "failed")
_SIZES = {"num_envs": "environments", "rollout_length": "steps"}
_EVALUATOR = "evaluator/"
_BEST_IS_BIASED = "The best of many noisy evaluations is biased upwards: a new evaluation tends to score lower."


def report(paths: Sequence[Path]) -> str:
    """The HTML page of some runs. Raises RunError if a run has no metrics yet."""
    runs = [read_run(path) for path in paths]
    if len(runs) == 1:
        title = f"{algorithm_title(runs[0].algorithm)} on {runs[0].task_id}"
        opening = tag("h1", title), tag("p", runs[0].path.name, class_="quiet")
        return page(f"{title}: {runs[0].path.name}", *opening, *_run_parts(runs[0], "h2"))
    title = f"Report of {len(runs)} runs"
    sections = [joined([tag("h2", run.path.name), *_run_parts(run, "h3")]) for run in runs]
    return page(title, tag("h1", title), _comparison_section(runs), *sections)


def _comparison_section(runs: Sequence[RunRecord]) -> Markup:
    heading = tag("h2", "Comparison")
    try:
        found = comparison_groups(runs, "mean_return")
    except ConfigError as error:
        return joined([heading, tag("p", error.what)])
    comparison = compare("mean_return", found.groups, found.notes)
    parts = [heading]
    for title, head, rows, pairs in comparison_tables.score_tables(comparison):
        parts += [tag("h3", title), *([table(head, rows)] if rows else [])]
        parts += [table(("probability of improvement", "value", "95 % interval"), pairs)] if pairs else []
    parts += [tag("p", f"note: {note}", class_="quiet") for note in comparison.notes]
    drawn = [(comparison_figures.efficiency_figure(comparison, axis), f"score over {axis}") for axis in AXES]
    drawn.append((comparison_figures.improvement_figure(comparison, "steps"), "probability of improvement"))
    pictures = [image(png_bytes(figure), "png", caption, caption) for figure, caption in drawn if figure is not None]
    side_by_side = "figures drawn" if len(comparison.results) == 1 else "drawn"
    return joined([*parts, tag("div", *pictures, class_=side_by_side)])


def _run_parts(run: RunRecord, heading: str) -> list[Markup]:
    """The sections of a run; `heading` is the tag of their headings."""
    return [
        facts(_facts(run)),
        tag(heading, "Scores"),
        *_scores(run),
        tag(heading, "Curves"),
        tag("div", *_pictures(run), class_="figures drawn"),
        *_animation(run.path, heading),
        tag(heading, "Configuration and versions"),
        *_files(run.path),
        folded("history", table(*without_empty_columns(("update", "seconds", "event", ""), list(_history(run))))),
    ]


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    last, planned = run.last, run.latest("num_updates")
    yield "algorithm", algorithm_title(run.algorithm)
    yield "task", run.task_id
    yield "device", run.device
    yield "seeds", ", ".join(map(str, sorted(run.seeds)))
    yield "updates", f"{last['update']:,}" + (f" of {planned:,}" if planned is not None else "")
    yield "environment steps", f"{last.get('timesteps', 0):,} of each seed"
    yield "wall-clock", duration_text(last.get("elapsed_seconds", 0.0))
    yield "levels", ", ".join(name or "fresh" for name in run.level_hashes.get("evaluator", (None,)))
    sizes = [f"{run.start[name]:,} {what}" for name, what in _SIZES.items() if name in run.start]
    yield "per update", " × ".join(sizes)


def _scores(run: RunRecord) -> list[Markup]:
    """The last and the best evaluation of every seed, by mean return. The most important metrics come first."""
    returns = run.series.get(f"{_EVALUATOR}mean_return", {})
    if not returns:
        return [tag("p", "not evaluated yet")]
    metrics = [key.removeprefix(_EVALUATOR) for key in run.series if key.startswith(_EVALUATOR)]
    names = [name for name in _SCORES if name in metrics]
    names += [name for name in metrics if name not in (*_SCORES, "duration_ms", "episodes")]
    lines = []
    for seed, one in sorted(returns.items()):
        best = int(one.values.argmax())
        for label, index in (("last", -1), ("best", best)):
            at = float(one.timesteps[index])
            cells = [_value_at(run.series[_EVALUATOR + name].get(seed), at) for name in names]
            lines.append([str(seed), label, f"{at:,.0f}", *cells])
    head = ["seed", "evaluation", "at step", *(name.replace("_", " ") for name in names)]
    return [table(*without_empty_columns(head, lines)), tag("p", _BEST_IS_BIASED, class_="quiet")]


def _value_at(series: Series | None, timesteps: float) -> str:
    found = [] if series is None else series.values[series.timesteps == timesteps]
    return number_text(float(found[0])) if len(found) else DASH


def _pictures(run: RunRecord) -> Iterator[Markup]:
    known = {key.partition("/")[2] for key in run.series}
    for metric in _SCORES + _LEARNING:
        if metric in known:
            figure = learning_curves.curves_figure(curves.make_curves([run], metric), metric, captioned=True)
            name = metric.replace("_", " ")
            yield image(png_bytes(figure), "png", f"{name} over environment steps", name)


def _animation(path: Path, heading: str) -> list[Markup]:
    gif = path / "episode.gif"
    if not gif.is_file():
        return []
    title, size = tag(heading, "An episode"), gif.stat().st_size
    if size > _MAX_GIF_BYTES:
        return [title, tag("p", f"episode.gif has {size / 1e6:.1f} MB and is not embedded: see the run folder")]
    return [title, image(gif.read_bytes(), "gif", "an episode")]


def _files(path: Path) -> Iterator[Markup]:
    """config.yaml as text, and versions.json as a table."""
    config, versions = path / "config.yaml", path / "versions.json"
    if config.is_file():
        yield folded("config.yaml", tag("pre", config.read_text(encoding="utf-8", errors="replace")))
    if versions.is_file():
        text = versions.read_text(encoding="utf-8", errors="replace")
        try:
            entries = [(str(name), str(value)) for name, value in json.loads(text).items()]
        except (ValueError, AttributeError):  # damaged, or not an object: shown as text
            yield folded("versions.json", tag("pre", text))
        else:
            yield folded("versions", table((), entries))


def _history(run: RunRecord) -> Iterator[tuple[str, ...]]:
    for row in run.events:
        if row["event"] in _EVENTS:
            detail = str(next(filter(None, map(row.get, ("changed", "message", "path", "device"))), ""))
            yield str(row.get("update", "")), f"{row.get('elapsed_seconds', 0.0):,.0f}", row["event"], detail
