"""The command `compare.py`: experiments against each other, by few seeds of each, at equal budgets.

Which runs may be compared is in `groups.py`, the statistics in `aggregates.py` and `evaluation/comparison.py`, how
they are told in `reports/comparison.py` and drawn in `figures/comparison.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_json_flag,
    add_runs_argument,
    checked_number,
    output_file,
)
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.runs.find import find_runs
from stoix_like.runtime.storage.atomic import atomic_write_json


def main(argv: list[str]) -> int:
    """Compares, prints, and writes what was asked for; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    scales = scales_of(arguments.normalise)
    paths = find_runs(arguments.runs)
    from stoix_like.runtime.figures import comparison as comparison_figures
    from stoix_like.runtime.reports import comparison as comparison_tables
    from stoix_like.runtime.results.groups import comparison_groups
    from stoix_like.runtime.results.series import read_run
    from stoix_like.runtime.results.statistics import compare

    runs = [read_run(path) for path in paths]
    _check_tasks(scales, [run.task_id for run in runs])
    found = comparison_groups(runs, arguments.metric, scales)
    if not found.groups:
        raise RunError(f"nothing can be compared: {found.notes[0]}", "give runs that were evaluated on one level set")
    comparison = compare(arguments.metric, found.groups, found.notes)
    print(comparison_tables.text(comparison))
    if arguments.json:
        content = {"runs": list(map(str, paths)), **comparison_tables.json_values(comparison)}
        atomic_write_json(arguments.json, content, indent=1)
    for path in comparison_figures.save_figures(comparison, arguments.out) if arguments.out else ():
        print(f"figure {path}")
    return 0


def make_parser() -> ArgumentParser:
    """What the command takes."""
    parser = ArgumentParser(prog("compare"), "Compares experiments at equal steps and at equal wall-clock.")
    add_runs_argument(parser)
    parser.add_argument("--metric", default="mean_return", help="what is compared (default: mean_return)")
    parser.add_argument(
        "--normalise",
        nargs=3,
        action="append",
        default=[],
        metavar=("TASK", "MIN", "MAX"),
        help="the scores of a task that become 0 and 1, such as a random policy's and the best known; once per task",
    )
    add_json_flag(parser, "everything, curves too,")
    parser.add_argument("--out", type=_folder, metavar="FOLDER", help="draw the figures into this folder")
    return parser


def scales_of(given: Sequence[Sequence[str]]) -> dict[str, tuple[float, float]]:
    """{task: (the score that becomes 0, the one that becomes 1)} from the words of the flag.

    Raises:
        ConfigError: no numbers, not in order, or a task twice.
    """
    scales: dict[str, tuple[float, float]] = {}
    for task, *bounds in given:
        try:
            low, high = (checked_number(text, lambda number: abs(number) < float("inf"), "a number") for text in bounds)
        except argparse.ArgumentTypeError as error:
            raise ConfigError(f"--normalise {task}: {error}", "give TASK MIN MAX") from error
        if not high > low:
            raise ConfigError(f"--normalise {task}: {bounds[1]} is not above {bounds[0]}", "give TASK MIN MAX")
        if task in scales:
            raise ConfigError(f"--normalise {task} is given twice", "keep one")
        scales[task] = low, high
    return scales


def _check_tasks(scales: Mapping[str, object], task_ids: Sequence[str]) -> None:
    for task in scales:
        if task not in task_ids:
            known = sorted(set(task_ids))
            what = f"--normalise {task}: no run is of this task{nearest(task, known)}"
            raise ConfigError(what, f"the runs are of {', '.join(known)}")


def _folder(text: str) -> Path:
    """A folder that exists, or can be made: said before anything is computed."""
    path = Path(text)
    if not path.is_dir():
        if path.exists():
            raise argparse.ArgumentTypeError(f"{path} is no folder")
        output_file(text)
    return path
