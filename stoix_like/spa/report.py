"""One HTML page of pipelines: arms with intervals over seeds, curves at equal cost, Pass@k, and what they know.

Costs are episodes of PPO, tokens and seconds; of the last two, those of the data and of the fine-tuning are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.evaluation.statistics import Interval, mean_interval
from stoix_like.runtime.console.text import DASH, interval_text, number_text
from stoix_like.runtime.figures.panels import Line, Panel, panels_figure
from stoix_like.runtime.figures.style import png_bytes
from stoix_like.runtime.reports.html import Markup, folded, image, page, table, tag

Record = Mapping[str, Any]
_COSTS = {
    "episodes": "episodes of PPO",
    "tokens": "tokens, data and fine-tuning counted",
    "seconds": "seconds, data and fine-tuning counted",
}
POINT_NAMES = {"base": "pretrained", "sft": "fine-tuned", "ppo": "after PPO"}
WORLD_MODEL = {
    "observation_exact": "state exact",
    "next_state_exact": "next state exact",
    "answer_consistency": "answer leads to the prediction",
    "next_state_given_answer": "next state, given the answer",
    "next_state_by_chance": "and by chance",
    "prediction_cells": "cells of the next state",
    "prediction_perplexity_per_token": "perplexity of the next state per token",
    "prediction_perplexity_per_cell": "per cell",
    "forced_success": "success, prediction forced to the goal",
}
PLAY = {
    "well_formed": "well-formed",
    "valid_actions": "valid actions",
    "effective_actions": "actions with an effect",
    "effective": "turns with an effect",
    "actions": "actions",
    "turns": "turns",
    "answer_length": "tokens of an answer",
    "log_prob_gap_max": "largest gap of log-probabilities",
}
SHARES = (-0.03, 1.03)  # of an axis of success: intervals over few seeds may reach beyond
_NO_CURVES = "No evaluations were made while it learned (eval_levels, eval_interval)."
_MOST_MOMENTS = 13  # of a curve: intervals stay apart


class Group(NamedTuple):
    """The pipelines of one arm."""

    arm: str
    records: list[Record]  # a seed each


def spa_page(records: Sequence[Record]) -> str:
    """The page. Raises ConfigError if arms are of different worlds or levels, or a seed comes twice."""
    groups = groups_of(records)
    world = records[0]["world"]
    parts = [
        tag("h1", f"SPA on {world['task_id']}"),
        tag("p", _description(records), class_="quiet"),
        tag("h2", "Success on held-out levels"),
        table(("arm", "seeds", "at", "success", "95 % interval", "Pass@8", "95 % interval"), _success_rows(groups)),
        tag("p", "Intervals are over seeds; of one seed, over levels.", class_="quiet"),
        tag("h2", "While PPO learns"),
        tag("div", *_curves(groups), class_="figures drawn"),
        *([] if curve_panels(groups) else [tag("p", _NO_CURVES, class_="quiet")]),
        tag("h2", "The best of k samples"),
        tag("div", *_pass_at_k(groups), class_="figures drawn"),
        tag("h2", "What is known of the world"),
        _measures(groups, WORLD_MODEL),
        tag("h2", "How it plays"),
        _measures(groups, PLAY),
        tag("h2", "What it cost"),
        table(("arm", "seed", "stage", "seconds", "tokens"), _cost_rows(groups)),
        tag("h2", "Episodes"),
        *(folded(f"{one.arm}, seed {one.records[0]['seed']}", tag("pre", _example(one))) for one in groups),
        tag("h2", "Settings"),
        *(folded(f"{one.arm}, seed {one.records[0]['seed']}", tag("pre", _settings(one))) for one in groups),
    ]
    return page(f"SPA on {world['task_id']}", *parts)


def groups_of(records: Sequence[Record]) -> list[Group]:
    """The records by arm. Raises ConfigError if worlds, levels or settings differ, or a seed comes twice."""
    first = records[0]
    groups: dict[str, Group] = {}
    scored: dict[str, Any] = {}  # what the curves before have noted of their levels
    for record in records:
        for name in ("world", "level_hash"):
            if record[name] != first[name]:
                what = f"{record['arm']} of seed {record['seed']} was scored on other levels than {first['arm']}"
                raise ConfigError(what, "report pipelines of one world and one number of levels together")
        levels = record.get("curve_levels", {})
        if any(scored.setdefault(name, levels[name]) != levels[name] for name in levels):
            what = f"{record['arm']} of seed {record['seed']} has a curve over other levels than those before it"
            raise ConfigError(what, "report pipelines with one number of eval_levels and of eval_samples together")
        group = groups.setdefault(record["arm"], Group(record["arm"], []))
        if record["seed"] in [other["seed"] for other in group.records]:
            raise ConfigError(f"{record['arm']} of seed {record['seed']} is given twice", "leave out one of them")
        if other := _differing(record, *group.records[:1]):
            what = f"{record['arm']} of seed {record['seed']} has another {other} than that of another seed"
            raise ConfigError(what, "report pipelines of one arm that differ in their seeds alone")
        group.records.append(record)
    return list(groups.values())


def _differing(record: Record, other: Record | None = None) -> str | None:
    """The first setting in which two records differ, beside their seeds."""
    if other is None:
        return None
    ours, theirs = record["settings"], other["settings"]
    leaves = sorted(leaf for leaf in ours.keys() | theirs.keys() if ours.get(leaf) != theirs.get(leaf))
    return next((leaf for leaf in leaves if leaf != "seed"), None)


def _description(records: Sequence[Record]) -> str:
    first = records[0]
    kwargs = ", ".join(f"{name} {value}" for name, value in first["world"]["kwargs"].items())
    ceiling = f" The best player solves {first['ceiling']:.3f} of them." if first.get("ceiling") else ""
    return f"{kwargs or 'its own sizes'}; levels {first['levels']} ({first['level_hash']}).{ceiling}"


def interval_of(group: Group, point: str, name: str) -> Interval | None:
    """A number of a point over the seeds of an arm; of one seed, with its interval over levels if it has one."""
    values = [record["points"][point][name] for record in group.records if name in record["points"].get(point, {})]
    if not values:
        return None
    if len(values) == 1:
        return Interval(*values[0]) if isinstance(values[0], list) else Interval(values[0], np.nan, np.nan)
    return mean_interval([value[0] if isinstance(value, list) else value for value in values])


def _tells_states(group: Group) -> bool:
    """Whether its answers have states: in the mode base a stray tag is none."""
    return bool(group.records[0]["settings"].get("ppo_mode") != "base")


def _success_rows(groups: Sequence[Group]) -> Iterator[tuple[str, ...]]:
    for group in groups:
        for point, text in POINT_NAMES.items():
            success, best = (interval_of(group, point, name) for name in ("success", "pass_at_8"))
            if success is not None:
                yield group.arm, str(len(group.records)), text, *_texts(success), *_texts(best)


def _texts(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return DASH, DASH
    return number_text(interval.point, 3), interval_text(interval.low, interval.high, digits=3)


def _curves(groups: Sequence[Group]) -> Iterator[Markup]:
    for panel in curve_panels(groups):
        yield _picture([panel._replace(title="")], panel.title, "success")


def curve_panels(groups: Sequence[Group]) -> list[Panel]:
    """Success while PPO learns, over each of the costs, which is the title."""
    panels = []
    for cost, text in _COSTS.items():
        lines = [line for group in groups if (line := _curve(group, cost)) is not None]
        panels += [Panel(text, lines, {})] if lines else []
    return panels


def _curve(group: Group, cost: str) -> Line | None:
    """The mean success of the seeds over what they cost on average until then, after equal numbers of episodes."""
    curves = [_Curve.of(record, cost) for record in group.records if {cost, "episodes"} <= record["curve"].keys()]
    curves = [curve for curve in curves if len(curve.episodes)]
    if not curves:
        return None
    low, high = max(curve.episodes[0] for curve in curves), min(curve.episodes[-1] for curve in curves)
    moments = curves[0].episodes
    moments = moments[(moments >= low) & (moments <= high)]
    moments = moments[np.unique(np.linspace(0, len(moments) - 1, _MOST_MOMENTS).round().astype(int))]
    costs, values = (
        np.stack([np.interp(moments, curve.episodes, getattr(curve, name)) for curve in curves])
        for name in ("costs", "success")
    )
    nothing = Interval(np.nan, np.nan, np.nan)
    intervals = [mean_interval(column) if len(curves) > 1 else nothing for column in values.T]
    bounds = ([getattr(one, name) for one in intervals] for name in ("low", "high"))
    return Line(group.arm, costs.mean(axis=0).tolist(), values.mean(axis=0).tolist(), *bounds)


class _Curve(NamedTuple):
    """The evaluations of a pipeline while PPO learned: at each the episodes, the cost until then, and success."""

    episodes: Any
    costs: Any
    success: Any

    @classmethod
    def of(cls, record: Record, cost: str) -> _Curve:
        """With what data and fine-tuning cost."""
        curve = record["curve"]
        costs = np.array(curve[cost]) + record["before_ppo"].get(cost, 0)
        return cls(np.array(curve["episodes"]), costs, np.array(curve["success"]))


def _pass_at_k(groups: Sequence[Group]) -> Iterator[Markup]:
    if panels := pass_at_k_panels(groups):
        yield _picture(panels, "k", "the best of k samples succeeds", log_x=True)


def pass_at_k_panels(groups: Sequence[Group]) -> list[Panel]:
    """Pass@k over k, a panel for each point of time."""
    panels = []
    for point, text in POINT_NAMES.items():
        lines = []
        for group in groups:
            found = {k: interval_of(group, point, f"pass_at_{k}") for k in (1, 2, 4, 8)}
            known = {k: interval for k, interval in found.items() if interval is not None}
            if known:
                columns = zip(*known.values(), strict=True)
                lines.append(Line(group.arm, list(known), *map(list, columns)))
        panels += [Panel(text, lines, {})] if lines else []
    return panels


def _picture(panels: Sequence[Panel], x_label: str, y_label: str, *, log_x: bool = False) -> Markup:
    figure = panels_figure(panels, x_label, y_label, log_x=log_x, y_limits=SHARES)
    return image(png_bytes(figure), "png", f"{y_label} over {x_label}")


def _measures(groups: Sequence[Group], names: Mapping[str, str]) -> Markup:
    """A table of numbers of each point; of several seeds, their means."""
    rows = []
    for group in groups:
        if names is WORLD_MODEL and not _tells_states(group):
            continue
        for point, text in POINT_NAMES.items():
            found = [interval_of(group, point, name) for name in names]
            if any(interval is not None for interval in found):
                rows.append((group.arm, text, *(DASH if x is None else number_text(x.point, 3) for x in found)))
    return table(("arm", "at", *names.values()), rows)


def _cost_rows(groups: Sequence[Group]) -> Iterator[tuple[str, ...]]:
    for group in groups:
        for record in group.records:
            for name, stage in record["stages"].items():
                tokens = stage["facts"].get("generated_tokens", stage["facts"].get("trained_tokens"))
                seconds = f"{stage['seconds']:,.0f}"
                yield group.arm, str(record["seed"]), name, seconds, DASH if tokens is None else f"{tokens:,}"


def _example(group: Group) -> str:
    return str(group.records[0].get("example") or "no episodes were shown")


def _settings(group: Group) -> str:
    return json.dumps(group.records[0]["settings"], indent=1)
