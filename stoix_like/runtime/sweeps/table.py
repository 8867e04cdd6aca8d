"""The trials of a sweep as text, JSON and CSV. Pure functions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from stoix_like.runtime.console.text import DASH, aligned, number_text
from stoix_like.runtime.sweeps.plan import SweepPlan
from stoix_like.runtime.sweeps.study import Trial


def value_text(trial: Trial) -> str:
    """The value of a trial; a dash if it has none."""
    return DASH if trial.value is None else number_text(trial.value, 4)


def trial_text(trial: Trial, best: Trial | None) -> str:
    """One line: the state, the value and the parameters of a trial."""
    value = "" if trial.value is None else f" {value_text(trial)}"
    parameters = ", ".join(f"{name} {_leaf_text(value)}" for name, value in trial.parameters.items())
    parts = [f"trial {trial.number} {trial.state}{value}", parameters]
    if "seconds" in trial.notes:
        parts.insert(1, f"{trial.notes['updates']:,} updates in {trial.notes['seconds']:.1f} s")
    parts += [trial.notes["message"]] if "message" in trial.notes else []
    if best is not None:
        parts.append(f"best {value_text(best)} of trial {best.number}")
    return " · ".join(parts)


def _leaf_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return value if isinstance(value, str) else number_text(value)


def rows_text(plan: SweepPlan, trials: Sequence[Trial]) -> str:
    """The trials as a table, the best first and those without a value last, then a line for each failed trial."""
    sign = -1.0 if plan.settings.direction == "maximize" else 1.0
    ordered = sorted(trials, key=lambda t: (t.state != "complete", t.value is None, sign * (t.value or 0.0), t.number))
    lines = [("trial", plan.settings.metric, "state", "updates", "seconds", *plan.space)]
    lines += [_line(plan, trial) for trial in ordered]
    text = aligned(lines, right=True)
    text += [f"trial {t.number} failed: {t.notes['message']}" for t in trials if "message" in t.notes]
    return "\n".join(text)


def _line(plan: SweepPlan, trial: Trial) -> tuple[str, ...]:
    updates, seconds = trial.notes.get("updates"), trial.notes.get("seconds")
    return (
        str(trial.number),
        value_text(trial),
        trial.state,
        DASH if updates is None else f"{updates:,}",
        DASH if seconds is None else f"{seconds:.1f}",
        *(_leaf_text(trial.parameters[name]) for name in plan.space),
    )


def json_text(plan: SweepPlan, trials: Sequence[Trial], best: Trial | None, importances: Mapping[str, float]) -> str:
    """The trials as JSON, with the settings that they share."""
    content: dict[str, Any] = {
        **{name: getattr(plan.settings, name) for name in ("algorithm", "metric", "direction", "num_seeds")},
        "best": None if best is None else best.number,
        "importances": dict(importances),
        "trials": [_record(trial) | {"parameters": trial.parameters} for trial in trials],
    }
    return json.dumps(content, indent=2) + "\n"


def csv_text(plan: SweepPlan, trials: Sequence[Trial]) -> str:
    """The trials as CSV: one row per trial, one column per parameter. Missing values are empty, null is `null`."""
    text = io.StringIO()
    columns = [*_record(trials[0]), *plan.space] if trials else []
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        parameters = {name: "null" if value is None else value for name, value in trial.parameters.items()}
        writer.writerow(_record(trial) | parameters)
    return text.getvalue()


def _record(trial: Trial) -> dict[str, Any]:
    notes = {name: trial.notes.get(name) for name in ("updates", "seconds", "compile_seconds", "message")}
    return {"number": trial.number, "state": trial.state, "value": trial.value, **notes}
