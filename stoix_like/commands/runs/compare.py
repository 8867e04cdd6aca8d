"""The command `compare.py`: compares experiments with few seeds at equal budgets.

`results/groups.py` decides which runs may be compared. `results/statistics.py` and `evaluation/comparison.py` compute
the statistics, `reports/comparison.py` prints them, and `figures/comparison.py` draws them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.console.arguments import (
    ArgumentParser,
    add_json_flag,
    add_runs_argument,
    checked_number,
    output_file,
)
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.storage.atomic import write_output_json


def main(argv: list[str]) -> int:
    """Compares the runs, prints the tables and writes the requested files; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    scales = parse_scales(arguments.normalise)
    from stoix_like.runtime.figures import comparison as comparison_figures
    from stoix_like.runtime.reports import comparison as comparison_tables
    from stoix_like.runtime.results.groups import comparison_groups
    from stoix_like.runtime.results.series import read_run
    from stoix_like.runtime.results.statistics import compare
    from stoix_like.runtime.runs.find import find_runs

    paths = find_runs(arguments.runs)
    runs = [read_run(path) for path in paths]
    _check_tasks(scales, [run.task_id for run in runs])
    found = comparison_groups(runs, arguments.metric, scales)
    if not found.groups:
        raise RunError(f"nothing can be compared: {found.notes[0]}", "give runs that were evaluated on one level set")
    comparison = compare(arguments.metric, found.groups, found.notes)
    print(comparison_tables.text(comparison))
    if arguments.json:
        content = {"runs": list(map(str, paths)), **comparison_tables.json_values(comparison)}
        write_output_json(arguments.json, content, indent=1)
    for path in comparison_figures.save_figures(comparison, arguments.out) if arguments.out else ():
        print(f"figure {path}")
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("compare"), "Compares experiments at equal steps and at equal wall-clock.")
    add_runs_argument(parser)
    parser.add_argument("--metric", default="mean_return", help="metric to compare (default: mean_return)")
    parser.add_argument(
        "--normalise",
        nargs=3,
        action="append",
        default=[],
        metavar=("TASK", "MIN", "MAX"),
        help="the scores of a task that become 0 and 1, such as a random policy's and the best known; once per task",
    )
    add_json_flag(parser, "all results, with curves,")
    parser.add_argument("--out", type=_folder, metavar="FOLDER", help="draw the figures into this folder")
    return parser


def parse_scales(values: Sequence[Sequence[str]]) -> dict[str, tuple[float, float]]:
    """{task: (score that becomes 0, score that becomes 1)} from the values of --normalise.

    Raises:
        ConfigError: a bound is not a number, the bounds are not in order, or a task is given twice.
    """
    scales: dict[str, tuple[float, float]] = {}
    for task, *bounds in values:
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
            message = f"--normalise {task}: no run is of this task{nearest(task, known)}"
            raise ConfigError(message, f"the runs are of {', '.join(known)}")


def _folder(text: str) -> Path:
    """The path of a folder that exists or can be created: an error is then reported before anything runs."""
    path = Path(text)
    if not path.is_dir():
        if path.exists():
            raise argparse.ArgumentTypeError(f"{path} is no folder")
        output_file(text)
    return path
